"""What a policy offers to a search over its weights: one vector, and decisions by many vectors at once."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from agents.policy import Policy
from envs.simulation.snapshot import Observation


@dataclass(frozen=True)
class Layout:
    """Where each weight of a small network lies in its vector.

    In order: input weights (columns x H), bias (H), output weights (outputs x H), and direct weights from the
    inputs to the score, which pass by the hidden units.

    Attributes:
        hidden: H, hidden units.
        columns: inputs.
        outputs: of the network.
        direct: direct weights.
    """

    hidden: int
    columns: int
    outputs: int
    direct: int

    def __post_init__(self) -> None:
        if self.hidden < 1:
            raise ValueError(f"a scorer needs at least 1 hidden unit, got {self.hidden}")

    @property
    def inputs(self) -> int:
        """Weights between the columns and the hidden units."""
        return self.columns * self.hidden

    @property
    def size(self) -> int:
        """Length of the vector."""
        return self.inputs + (1 + self.outputs) * self.hidden + self.direct

    def start(self, rng: np.random.Generator) -> NDArray[np.float32]:
        """(size,) random input weights, outputs of 0: an untrained scorer adds nothing to its rule."""
        vector = np.zeros(self.size, np.float32)
        vector[: self.inputs] = rng.normal(0.0, 1.5 / np.sqrt(self.columns), self.inputs)
        return vector

    def scales(self) -> NDArray[np.float32]:
        """(size,) by how much each weight is varied in a search, relative to the others."""
        scales = np.ones(self.size, np.float32)
        scales[: self.inputs] = 0.15
        scales[self.inputs + self.hidden :] = 0.5
        scales[self.size - self.direct :] = 0.7
        return scales


class Scorer:
    """The weights of a small network: one float32 vector.

    Args:
        layout: sizes.

    Attributes:
        layout: sizes.
        vector: (layout.size,) float32, all zero at first: it acts as its rule.
    """

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.vector = np.zeros(layout.size, np.float32)

    def set_vector(self, vector: NDArray[np.float32]) -> None:
        """Replace the weights.

        Raises:
            ValueError: for another length, or a weight that is not finite.
        """
        if vector.shape != self.vector.shape:
            raise ValueError(
                f"a scorer of {self.layout.hidden} hidden units has {len(self.vector)} weights, "
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


class VectorPolicy(Policy):
    """A rule that a small network corrects. It takes no draw and remembers nothing.

    Args:
        network: what is searched.
        name: shown in tables.
    """

    def __init__(self, network: Scorer, name: str) -> None:
        self.network = network
        self.name = name

    def act_batch(self, observations: Observation, lanes: NDArray[np.int64]) -> NDArray[np.int64]:
        """(n,) flat actions for observations with a leading axis of n.

        Raises:
            ValueError: if an observation has no valid action.
        """
        return self.act_lanes(observations, np.arange(len(observations["jobs"])))

    def act_lanes(self, observations: Observation, lanes: NDArray[np.int64]) -> NDArray[np.int64]:
        """(n,) flat actions for the rows `lanes` of the observations, which are not copied."""
        vectors, rows = self.network.vector[None], np.ascontiguousarray(lanes)
        return self.act_with(vectors, observations, rows, np.zeros(len(lanes), np.int64))

    @abstractmethod
    def act_with(
        self,
        vectors: NDArray[np.float32],
        observations: Observation,
        rows: NDArray[np.int64],
        which: NDArray[np.int64],
    ) -> NDArray[np.int64]:
        """(n,) flat actions for the rows of the observations, row k decided by vectors[which[k]]."""
