"""Replay of decisions whose choices were all tried: the labels of counterfactual learning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from agents.learning.replay import Replay
from agents.networks.base import NetworkInput
from agents.rules.appraisal import MOST


@dataclass(frozen=True)
class LabelledBatch:
    """B decisions with up to M tried choices each.

    Attributes:
        inputs: what was seen, with the decided job only (J = 1).
        choices: (B, M) clusters, C for "none for now"; 0 where not tried.
        tried: (B, M) bool.
        outcomes: (B, M, K) what the system had come to in the end, physical units.
    """

    inputs: NetworkInput
    choices: torch.Tensor
    tried: torch.Tensor
    outcomes: torch.Tensor


class LabelledReplay(Replay):
    """A ring of the latest labelled decisions.

    Args:
        capacity: decisions kept.
        n_clusters: C.
        n_choices: M.
        n_components: K.
        rng: the run's "replay" stream.
    """

    def __init__(
        self,
        capacity: int,
        n_clusters: int,
        n_choices: int,
        n_components: int,
        rng: np.random.Generator,
    ) -> None:
        labels: dict[str, NDArray[Any]] = {
            "choices": np.full((capacity, n_choices), -1, np.int64),
            "outcomes": np.zeros((capacity, n_choices, n_components), np.float32),
        }
        super().__init__(capacity, n_clusters, labels, rng)

    def add(self, **columns: NDArray[Any]) -> None:
        """Append one decision; `choices` (m,) and `outcomes` (m, K) may be shorter than M.

        It may have fewer clusters than C: rows of clusters that are not there are zero, and "none for now"
        becomes C whatever it was.
        """
        n_here, n_clusters = len(columns["clusters"]), self._columns["clusters"].shape[1]
        where = self._added % self.capacity
        self._columns["choices"][where] = -1
        self._columns["outcomes"][where] = 0.0
        for name, array in columns.items():
            row = self._columns[name][where]
            if name == "choices":
                row[: len(array)] = np.where(array == n_here, n_clusters, array)
            elif name == "appraisal":
                row[:n_here], row[n_here:], row[n_clusters] = array[:n_here], MOST, array[n_here]
            else:
                row[len(array) :] = 0
                row[: len(array)] = array
        self._added += 1

    def sample(self, n: int, device: torch.device) -> LabelledBatch:
        """Decisions drawn uniformly, with replacement."""
        return self.rows(self.rng.integers(0, self.size, n), device)

    def rows(self, rows: NDArray[np.int64], device: torch.device) -> LabelledBatch:
        """The decisions at the given places of the ring."""
        choices, outcomes = (self._tensor(name, rows, device) for name in ("choices", "outcomes"))
        return LabelledBatch(self._inputs(rows, device), choices.clamp(min=0), choices >= 0, outcomes)
