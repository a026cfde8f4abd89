"""A ring of the latest decisions as columns: what all replays share."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from agents.networks.base import NetworkInput
from envs.simulation.snapshot import HISTORY_STEPS, N_CLUSTER_FIELDS, N_JOB_FIELDS, N_PAIR_FIELDS


class Replay:
    """Columns of the latest `capacity` decisions.

    Occupation is kept as float16 (ratios in 0..1), everything else that was seen as float32.

    Args:
        capacity: decisions kept.
        n_clusters: C.
        labels: empty columns of what was learned about each decision.
        rng: the run's "replay" stream.
    """

    def __init__(
        self, capacity: int, n_clusters: int, labels: dict[str, NDArray[Any]], rng: np.random.Generator
    ) -> None:
        self.capacity = capacity
        self.rng = rng
        self._added = 0
        self._columns: dict[str, NDArray[Any]] = {
            "clusters": np.zeros((capacity, n_clusters, N_CLUSTER_FIELDS), np.float32),
            "occupation": np.zeros((capacity, n_clusters, HISTORY_STEPS), np.float16),
            "jobs": np.zeros((capacity, N_JOB_FIELDS), np.float32),
            "pairs": np.zeros((capacity, n_clusters, N_PAIR_FIELDS), np.float32),
            **labels,
        }

    @property
    def size(self) -> int:
        """Decisions held."""
        return min(self._added, self.capacity)

    def _tensor(self, name: str, rows: NDArray[np.int64], device: torch.device) -> torch.Tensor:
        return torch.from_numpy(self._columns[name][rows]).to(device)

    def _inputs(self, rows: NDArray[np.int64], device: torch.device) -> NetworkInput:
        """What was seen, with the decided job only (J = 1)."""
        return NetworkInput(
            clusters=self._tensor("clusters", rows, device),
            occupation=self._tensor("occupation", rows, device).float(),
            jobs=self._tensor("jobs", rows, device)[:, None],
            pairs=self._tensor("pairs", rows, device)[:, None],
        )

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
