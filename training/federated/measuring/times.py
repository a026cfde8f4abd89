"""Repeated seconds in short, and the error of measuring."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np


class MeasureError(ValueError):
    """A measurement that could not be taken; the message is one line that a user can act on."""


@dataclass(frozen=True)
class Times:
    """Median and spread of repeated seconds.

    Attributes:
        median_s: the figure to use.
        q1_s: a quarter of them are below.
        q3_s: a quarter of them are above.
        min_s: the shortest.
        max_s: the longest.
        n: how many there are.
    """

    median_s: float
    q1_s: float
    q3_s: float
    min_s: float
    max_s: float
    n: int

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Times:
        """Summarise at least one time."""
        low, q1, median, q3, high = (float(value) for value in np.quantile(seconds, (0, 0.25, 0.5, 0.75, 1)))
        return cls(median, q1, q3, low, high, len(seconds))

    @property
    def text(self) -> str:
        """For people: the median and the middle half."""
        return f"{self.median_s:.4g} s (half of {self.n} between {self.q1_s:.4g} and {self.q3_s:.4g})"

    @property
    def warning(self) -> str:
        """Nothing, or what to do where the middle half is wider than 15 % (Brum 2023 had few above that)."""
        wide = self.q3_s - self.q1_s > 0.15 * self.median_s
        return "; they vary much: is the machine or the link busy? Try more --repetitions" if wide else ""

    @property
    def document(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)
