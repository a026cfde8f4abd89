"""Policies whose values have components, which can be weighed otherwise without training again."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from agents.policy import Policy
from envs.simulation.snapshot import Observation


class WeighedPolicy(Policy):
    """Ranks choices by a weighted sum of K value components."""

    @property
    @abstractmethod
    def value_weights(self) -> tuple[float, ...]:
        """(K,) weights of the components."""

    @abstractmethod
    def set_weights(self, weights: Sequence[float]) -> None:
        """Change the weights. Raises ValueError for another number of them, or one that is not finite."""

    @abstractmethod
    def value_table(self, observations: Observation) -> NDArray[np.float64]:
        """(n, J', C + 1, K) components in physical units; NaN for choices that the policy did not weigh."""


def checked_weights(weights: Sequence[float], count: int) -> tuple[float, ...]:
    """The weights of `count` components as floats.

    Raises:
        ValueError: for another number of weights, or one that is not finite.
    """
    if len(weights) != count:
        raise ValueError(f"{len(weights)} value weights given, but the policy has {count} value components")
    if not np.isfinite(np.asarray(weights, np.float64)).all():
        raise ValueError(f"value weights must be finite numbers, got {list(weights)}")
    return tuple(float(weight) for weight in weights)
