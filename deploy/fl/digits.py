"""Two thousand handwritten digits (MNIST) that come with the package, for examples and tests."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files

import numpy as np
from numpy.typing import NDArray

TRAINING = 1500
"""This many, from the first, are for training, the others for tests."""


def load_digits() -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Images (2000, 28, 28) with values 0..1, and labels (2000,) 0..9."""
    with files("deploy.fl").joinpath("digits.npz").open("rb") as file, np.load(file) as stored:
        return (stored["images"] / 255.0).astype(np.float32), stored["labels"].astype(np.int64)


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
