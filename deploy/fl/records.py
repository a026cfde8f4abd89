"""Flower's array records as NumPy arrays by name, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from flwr.app import Array, ArrayRecord
from numpy.typing import NDArray

from envs.traces.images import DIGITS_TRAINING as TRAINING


def from_record(record: ArrayRecord) -> dict[str, NDArray[np.generic]]:
    """The arrays, in their order."""
    return {name: np.asarray(array.numpy()) for name, array in record.items()}


def to_record(arrays: Mapping[str, NDArray[np.generic]]) -> ArrayRecord:
    """The record; names and order stay."""
    return ArrayRecord({name: Array(np.asarray(array)) for name, array in arrays.items()})


# The handwritten digits that come with the package, and shares of them, for examples and tests.


def share(shares: Sequence[int], index: int) -> slice:
    """The part of the training images that one of several participants has.

    Args:
        shares: relative amounts of data, one per participant, e.g. (6, 3, 1).
        index: which of them.

    Raises:
        ValueError: if there is no such participant.
    """
    if not 0 <= index < len(shares) or min(shares) < 1:
        raise ValueError(f"partition {index} of shares {list(shares)}: expected 0..{len(shares) - 1}")
    bounds = [TRAINING * sum(shares[:end]) // sum(shares) for end in range(len(shares) + 1)]
    return slice(bounds[index], bounds[index + 1])
