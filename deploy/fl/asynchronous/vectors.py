"""A model's arrays as one row of numbers, which is what aggregators and brokers know of it, and back."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from agents.federated.asynchronous.updates import UpdateError, Vector

Arrays = Mapping[str, NDArray[np.generic]]


def flatten(arrays: Arrays) -> Vector:
    """(d,), in the order of the arrays.

    Raises:
        UpdateError: if one holds no numbers.
    """
    for name, array in arrays.items():
        if array.dtype.kind not in "fiu":
            raise UpdateError(f"array {name!r} holds {array.dtype}: expected numbers")
    kind = np.result_type(np.float32, *arrays.values())
    row: Vector = np.concatenate([np.zeros(0, kind), *(array.ravel() for array in arrays.values())])
    return row


def unflatten(row: Vector, like: Arrays) -> dict[str, NDArray[np.generic]]:
    """Arrays with the names, shapes and types of others; counters (integers) are rounded."""
    ends = np.cumsum([array.size for array in like.values()])[:-1]
    parts = np.split(row, ends)
    return {
        name: (part if array.dtype.kind == "f" else np.rint(part)).reshape(array.shape).astype(array.dtype)
        for (name, array), part in zip(like.items(), parts, strict=True)
    }


def require_alike(given: Arrays, expected: Arrays) -> None:
    """Refuse arrays of another model.

    Raises:
        UpdateError: one line: the first that differs.
    """
    if list(given) != list(expected):
        raise UpdateError(
            f"it holds the arrays {str(list(given))[:100]}: expected {str(list(expected))[:100]}"
        )
    for name, array in expected.items():
        if given[name].shape != array.shape:
            raise UpdateError(f"its array {name!r} has shape {given[name].shape}: expected {array.shape}")


def difference(after: Arrays, before: Arrays) -> dict[str, NDArray[np.generic]]:
    """D = M_K - M_0 of a client's local training (Liu 2022, Algorithm 4).

    Raises:
        UpdateError: if they are not of one model, or hold NaN.
    """
    require_alike(after, before)
    found = {name: np.subtract(after[name], before[name]) for name in before}
    if any(not np.isfinite(array).all() for array in found.values()):
        raise UpdateError(
            "the trained weights hold NaN or infinity: expected numbers; lower the learning rate"
        )
    return found
