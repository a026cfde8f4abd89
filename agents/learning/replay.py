"""What a network learns from: the latest decisions and their targets."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from spotweave.agents.networks.base import NetworkInput
from spotweave.envs.simulation.series import Ints
from spotweave.envs.simulation.snapshot import HISTORY_STEPS, N_CLUSTER_FIELDS, N_JOB_FIELDS, N_PAIR_FIELDS


class Replay:
    """The latest decisions and their targets, drawn uniformly.

    Args:
        capacity: decisions kept.
        n_columns: of what the network is given; kept as float16.
        n_targets: of a decision.
        rng: draws samples.
    """

    def __init__(self, capacity: int, n_columns: int, n_targets: int, rng: np.random.Generator) -> None:
        self.columns = np.zeros((capacity, n_columns), np.float16)
        self.targets = np.zeros((capacity, n_targets), np.float32)
        self.rng = rng
        self.size = self.next = 0

    def add(self, columns: NDArray[np.float32], targets: NDArray[np.float32]) -> None:
        """Keep N decisions; the oldest make room."""
        rows = (self.next + np.arange(len(columns))) % len(self.columns)
        self.columns[rows], self.targets[rows] = columns, targets
        self.next = int((self.next + len(rows)) % len(self.columns))
        self.size = min(len(self.columns), self.size + len(rows))

    def sample(self, n: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """Columns (n, n_columns) and targets (n, n_targets) of decisions drawn at random."""
        rows = self.rng.integers(0, self.size, n)
        columns, targets = torch.from_numpy(self.columns[rows]), torch.from_numpy(self.targets[rows])
        return columns.to(device).float(), targets.to(device)

    def state_dict(self) -> dict[str, Any]:
        """What is kept, and where the draws stand."""
        return {
            "columns": torch.from_numpy(self.columns[: self.size].copy()),
            "targets": torch.from_numpy(self.targets[: self.size].copy()),
            "next": self.next,
            "rng": self.rng.bit_generator.state,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` gave."""
        self.size, self.next = len(state["columns"]), int(state["next"])
        self.columns[: self.size] = state["columns"].numpy()
        self.targets[: self.size] = state["targets"].numpy()
        self.rng.bit_generator.state = state["rng"]


# Replay of single decisions with their Monte-Carlo values (the knowledge buffer of Liu 2022, Fig. 4.2).


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

    def add(self, **columns: NDArray[Any]) -> Ints:
        """Append n decisions whose worth is not known yet; returns their ids (n,) for `fill`."""
        n = len(columns["targets"])
        ids = self._added + np.arange(n)
        where = ids % self.capacity
        for name, array in columns.items():
            self._columns[name][where] = array
        self._added += n
        return ids

    def fill(self, ids: Ints, values: NDArray[np.floating[Any]]) -> None:
        """Supplement the values (n, K) of decisions added before; those overwritten since are skipped."""
        kept = ids >= self._added - self.capacity
        self._columns["values"][ids[kept] % self.capacity] = values[kept]

    def sample(self, n: int, device: torch.device) -> tuple[NetworkInput, torch.Tensor, torch.Tensor]:
        """Uniformly drawn decisions: inputs with B = n and J = 1, chosen clusters (n,), values (n, K)."""
        return self.rows(self.rng.integers(0, self.size, n), device)

    def rows(self, rows: Ints, device: torch.device) -> tuple[NetworkInput, torch.Tensor, torch.Tensor]:
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
