"""One question to a scheduler of bags, workflows or rounds: its choices, as a rule and a network see them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from envs.simulation.snapshot import FloatArray

BOUND = 6.0
"""Bound of every column in its own unit."""


class Question(NamedTuple):
    """n decisions about one task each; C places, then "none for now".

    Attributes:
        valid: (n, C + 1).
        cost: (n, C + 1) USD expected by the rule.
        unit: (n,) USD, a measure of what the decision is about.
        task: (n, T) columns of each task.
        choice: (n, C + 1, K) of each of its choices.
    """

    valid: NDArray[np.bool_]
    cost: NDArray[np.float64]
    unit: NDArray[np.float64]
    task: FloatArray
    choice: FloatArray


def bounded(columns: NDArray[np.float64]) -> FloatArray:
    """Columns as a network reads them."""
    return np.clip(columns, -BOUND, BOUND).astype(np.float32)
