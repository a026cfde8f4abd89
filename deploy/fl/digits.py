"""The handwritten digits that come with the package, and shares of them, for examples and tests."""

from __future__ import annotations

from collections.abc import Sequence

from spotweave.envs.traces.images import DIGITS_TRAINING as TRAINING
from spotweave.envs.traces.images import load_digits

__all__ = ["TRAINING", "load_digits", "share"]


def share(shares: Sequence[int], index: int) -> slice:
    """The part of the training images that participant `index` of those with these relative shares has.

    Raises ValueError if there is no such participant.
    """
    if not 0 <= index < len(shares) or min(shares) < 1:
        raise ValueError(f"partition {index} of shares {list(shares)}: expected 0..{len(shares) - 1}")
    bounds = [TRAINING * sum(shares[:end]) // sum(shares) for end in range(len(shares) + 1)]
    return slice(bounds[index], bounds[index + 1])
