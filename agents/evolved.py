"""What a policy offers to a search over its weights: one vector, and decisions by many vectors at once."""

from __future__ import annotations

from abc import abstractmethod
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from agents.policy import Policy
from envs.simulation.snapshot import Observation


class Layout(Protocol):
    """Where each weight lies in the vector."""

    @property
    def size(self) -> int:
        """Length of the vector."""

    def start(self, rng: np.random.Generator) -> NDArray[np.float32]:
        """(size,) first weights."""

    def scales(self) -> NDArray[np.float32]:
        """(size,) by how much each weight is varied, relative to the others."""


class Weights(Protocol):
    """The vector, as something that can be replaced and saved."""

    @property
    def layout(self) -> Layout:
        """What the vector is made of."""

    @property
    def vector(self) -> NDArray[np.float32]:
        """(layout.size,) the weights."""

    def set_vector(self, vector: NDArray[np.float32]) -> None:
        """Replace the weights. Raises ValueError for another length or a weight that is not finite."""

    def state_dict(self) -> dict[str, torch.Tensor]:
        """The weights as tensors."""

    def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        """Restore what `state_dict` gave. Raises RuntimeError if it does not fit."""


class EvolvedPolicy(Policy):
    """A rule that a small network corrects."""

    @property
    @abstractmethod
    def network(self) -> Weights:
        """What is searched."""

    @abstractmethod
    def act_with(
        self,
        vectors: NDArray[np.float32],
        observations: Observation,
        rows: NDArray[np.int64],
        which: NDArray[np.int64],
    ) -> NDArray[np.int64]:
        """(n,) flat actions for the rows of the observations, row k decided by vectors[which[k]]."""
