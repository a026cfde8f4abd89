"""Replay of decisions whose choices were all tried: the labels of counterfactual learning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from agents.networks.base import NetworkInput
from agents.rules.appraisal import MOST
from envs.simulation.snapshot import HISTORY_STEPS, N_CLUSTER_FIELDS, N_JOB_FIELDS, N_PAIR_FIELDS


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


class LabelledReplay:
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
        self.capacity = capacity
        self.rng = rng
        self._added = 0
        self._columns: dict[str, NDArray[Any]] = {
            "clusters": np.zeros((capacity, n_clusters, N_CLUSTER_FIELDS), np.float32),
            "occupation": np.zeros((capacity, n_clusters, HISTORY_STEPS), np.float16),
            "jobs": np.zeros((capacity, N_JOB_FIELDS), np.float32),
            "pairs": np.zeros((capacity, n_clusters, N_PAIR_FIELDS), np.float32),
            "appraisal": np.zeros((capacity, n_clusters + 1), np.float32),
            "choices": np.full((capacity, n_choices), -1, np.int64),
            "outcomes": np.zeros((capacity, n_choices, n_components), np.float32),
        }

    @property
    def size(self) -> int:
        """Decisions held."""
        return min(self._added, self.capacity)

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

        def tensor(name: str) -> torch.Tensor:
            return torch.from_numpy(self._columns[name][rows]).to(device)

        choices = tensor("choices")
        inputs = NetworkInput(
            clusters=tensor("clusters"),
            occupation=tensor("occupation").float(),
            jobs=tensor("jobs")[:, None],
            pairs=tensor("pairs")[:, None],
            appraisal=tensor("appraisal")[:, None],
        )
        return LabelledBatch(inputs, choices.clamp(min=0), choices >= 0, tensor("outcomes"))

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
