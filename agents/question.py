"""One question to a scheduler of bags, workflows or rounds: its choices, as a rule and a network see them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from envs.simulation.snapshot import FloatArray

BOUND = 6.0
"""Bound of every column in its own unit."""


class Question(NamedTuple):
    """n decisions about one task each; C places, then "none for now"."""

    valid: NDArray[np.bool_]  # (n, C + 1)
    cost: NDArray[np.float64]  # (n, C + 1) USD expected by the rule
    unit: NDArray[np.float64]  # (n,) USD, a measure of what the decision is about
    task: FloatArray  # (n, T) columns of each task
    choice: FloatArray  # (n, C + 1, K) of each of its choices


def bounded(columns: NDArray[np.float64]) -> FloatArray:
    """Columns as a network reads them."""
    return np.clip(columns, -BOUND, BOUND).astype(np.float32)
