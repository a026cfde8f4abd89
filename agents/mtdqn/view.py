"""What differs between the kinds of tasks that `mtdqn` decides: what is seen, and what outcomes mean."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from spotweave.agents.mtdqn.decide import Acting, Exploring, Label, Sizes
from spotweave.envs.simulation.snapshot import ObservationArrays

Batch = ObservationArrays  # arrays with a leading axis
DecideRows = Callable[
    [Batch, NDArray[np.int64], Acting, Exploring, Label, NDArray[np.float32], NDArray[np.int64]], None
]
"""Fills actions (n,) for some rows of a batch, NO_ACTION where nothing is valid. Before them, unless they are
empty, the first n rows of the label, and the values (n, C + 1, heads + 1) of the choices that are weighed."""


class View(ABC):
    """How one kind of task is seen."""

    decide_rows: DecideRows  # takes decisions
    sizes: Sizes  # of the network
    rule: NDArray[np.float64]  # parameters of the guide
    # arrivals of a block of time: returns of lanes are compared block by block, so that an effect is looked
    # for near its cause
    block_jobs: int
    # time after its end, in units of the world's clock, in which a job's effect on others shows
    aftermath: float
    # whether the objective itself is learned, from nothing but whole episodes: there are no own heads and no
    # blocks, RANDOM follows a taste that a lane keeps for an episode instead of a new draw, and the weights
    # are those that were trained with
    whole_episodes: bool = False

    @abstractmethod
    def of_heads(self, weights: tuple[float, ...]) -> NDArray[np.float32]:
        """(heads + 1,) what values are multiplied by, given the objective's weights.

        The weights come in the order of the world's components (own misses, mutual, delay, ...), the values
        in that of the heads (own misses, delay, ..., mutual).
        """

    @abstractmethod
    def reward_unit(self, weights: tuple[float, ...]) -> float:
        """What the mutual value is learned in, in units of the world's reward."""

    def targets(
        self, label: Label, side: NDArray[np.int64], outcomes: NDArray[np.float64]
    ) -> NDArray[np.float32]:
        """(D, heads) what the own heads should have said of D decisions.

        Args:
            label: the decisions.
            side: (D,) which of the two choices kept was taken.
            outcomes: (D, K) what became of the job since, as the world's `outcomes` tells it.

        Without own heads it is not called, nor is `losses`.
        """
        raise NotImplementedError(f"{type(self).__name__} has no own heads")

    def losses(self, outputs: Tensor, targets: Tensor, weights: Tensor) -> dict[str, Tensor]:
        """Losses by name for outputs (networks, N, heads) of the own heads; their sum is minimised."""
        raise NotImplementedError(f"{type(self).__name__} has no own heads")

    @abstractmethod
    def own_worth(self, outputs: Tensor, known: Tensor, facts: Tensor, weights: Tensor) -> Tensor:
        """(...) weighed own values for outputs and known (..., heads) and facts (..., N_FACTS)."""
