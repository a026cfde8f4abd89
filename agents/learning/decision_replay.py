"""Replay of single decisions with their Monte-Carlo values (the knowledge buffer of Liu 2022, Fig. 4.2)."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from agents.learning.replay import Replay
from agents.networks.base import NetworkInput


class DecisionReplay(Replay):
    """A ring of the latest decisions: what was seen, which cluster was chosen, what it was worth.

    Args:
        capacity: decisions kept (K = 50,000 in the thesis).
        n_clusters: C.
        n_components: K value components.
        rng: the run's "replay" stream.
    """

    def __init__(self, capacity: int, n_clusters: int, n_components: int, rng: np.random.Generator) -> None:
        labels: dict[str, NDArray[Any]] = {
            "targets": np.zeros(capacity, np.int64),
            "values": np.zeros((capacity, n_components), np.float32),
        }
        super().__init__(capacity, n_clusters, labels, rng)

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
        targets, values = (self._tensor(name, rows, device) for name in ("targets", "values"))
        return self._inputs(rows, device), targets, values
