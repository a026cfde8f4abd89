"""Replay of single decisions with their Monte-Carlo values (the knowledge buffer of Liu 2022, Fig. 4.2)."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from agents.networks.base import NetworkInput
from envs.simulation.snapshot import HISTORY_STEPS, N_CLUSTER_FIELDS, N_JOB_FIELDS, N_PAIR_FIELDS


class DecisionReplay:
    """A ring of the latest decisions: what was seen, which cluster was chosen, what it was worth.

    Occupation is kept as float16 (ratios in 0..1), everything else that was seen as float32.

    Args:
        capacity: decisions kept (K = 50,000 in the thesis).
        n_clusters: C.
        n_components: K value components.
        rng: the run's "replay" stream.
    """

    def __init__(self, capacity: int, n_clusters: int, n_components: int, rng: np.random.Generator) -> None:
        self.capacity = capacity
        self.rng = rng
        self._added = 0
        self._columns: dict[str, NDArray[Any]] = {
            "clusters": np.zeros((capacity, n_clusters, N_CLUSTER_FIELDS), np.float32),
            "occupation": np.zeros((capacity, n_clusters, HISTORY_STEPS), np.float16),
            "jobs": np.zeros((capacity, N_JOB_FIELDS), np.float32),
            "pairs": np.zeros((capacity, n_clusters, N_PAIR_FIELDS), np.float32),
            "targets": np.zeros(capacity, np.int64),
            "values": np.zeros((capacity, n_components), np.float32),
        }

    @property
    def size(self) -> int:
        """Decisions held."""
        return min(self._added, self.capacity)

    def add(self, **columns: NDArray[Any]) -> NDArray[np.int64]:
        """Append n decisions whose worth is not known yet; returns their ids (n,) for `fill`."""
        n = len(columns["targets"])
        ids = self._added + np.arange(n)
        where = ids % self.capacity
        for name, array in columns.items():
            self._columns[name][where] = array
        self._added += n
        return ids

    def fill(self, ids: NDArray[np.int64], values: NDArray[np.floating[Any]]) -> None:
        """Supplement the values (n, K) of decisions added before; those overwritten since are skipped."""
        kept = ids >= self._added - self.capacity
        self._columns["values"][ids[kept] % self.capacity] = values[kept]

    def sample(self, n: int, device: torch.device) -> tuple[NetworkInput, torch.Tensor, torch.Tensor]:
        """Uniformly drawn decisions: inputs with B = n and J = 1, chosen clusters (n,), values (n, K)."""
        return self.rows(self.rng.integers(0, self.size, n), device)

    def rows(
        self, rows: NDArray[np.int64], device: torch.device
    ) -> tuple[NetworkInput, torch.Tensor, torch.Tensor]:
        """The decisions at the given places of the ring."""
        seen = {name: torch.from_numpy(array[rows]).to(device) for name, array in self._columns.items()}
        inputs = NetworkInput(
            clusters=seen["clusters"],
            occupation=seen["occupation"].float(),
            jobs=seen["jobs"][:, None],
            pairs=seen["pairs"][:, None],
        )
        return inputs, seen["targets"], seen["values"]

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to go on bit for bit."""
        kept = {name: torch.from_numpy(array[: self.size].copy()) for name, array in self._columns.items()}
        return {"columns": kept, "added": self._added, "rng": self.rng.bit_generator.state}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` gave."""
        self._added = int(state["added"])
        for name, array in self._columns.items():
            array[: self.size] = state["columns"][name].numpy()
        self.rng.bit_generator.state = state["rng"]
