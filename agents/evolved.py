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


class VectorWeights:
    """The weights of a scorer: one float32 vector, laid out as its layout says.

    Args:
        layout: sizes.
        hidden: hidden units, for messages.

    Attributes:
        vector: (layout.size,) float32.
    """

    def __init__(self, layout: Layout, hidden: int) -> None:
        self._hidden = hidden
        self.vector = np.zeros(layout.size, np.float32)

    def set_vector(self, vector: NDArray[np.float32]) -> None:
        """Replace the weights.

        Raises:
            ValueError: for another length, or a weight that is not finite.
        """
        if vector.shape != self.vector.shape:
            raise ValueError(
                f"a scorer of {self._hidden} hidden units has {len(self.vector)} weights, "
                f"got an array of shape {vector.shape}"
            )
        if not np.isfinite(vector).all():
            raise ValueError("a scorer's weights must be finite numbers")
        self.vector = np.ascontiguousarray(vector, np.float32)

    def state_dict(self) -> dict[str, torch.Tensor]:
        """The weights as tensors, for a checkpoint."""
        return {"vector": torch.from_numpy(self.vector.copy())}

    def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        """Restore what `state_dict` gave. Raises RuntimeError if it does not fit, as torch's modules do."""
        try:
            self.set_vector(state["vector"].numpy())
        except (KeyError, ValueError) as error:
            raise RuntimeError(str(error)) from error


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
