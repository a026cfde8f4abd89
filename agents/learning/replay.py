"""What a network learns from: the latest decisions and their targets."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


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
