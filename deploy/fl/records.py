"""Flower's array records as NumPy arrays by name, and back."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from flwr.app import Array, ArrayRecord
from numpy.typing import NDArray


def from_record(record: ArrayRecord) -> dict[str, NDArray[np.generic]]:
    """The arrays, in their order."""
    return {name: np.asarray(array.numpy()) for name, array in record.items()}


def to_record(arrays: Mapping[str, NDArray[np.generic]]) -> ArrayRecord:
    """The record; names and order stay."""
    return ArrayRecord({name: Array(np.asarray(array)) for name, array in arrays.items()})
