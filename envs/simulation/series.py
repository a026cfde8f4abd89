"""Arrays of numbers, and piecewise-constant series in time: prices and availability."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


class Polarity(Enum):
    """What a 1 in an availability record means. Published data exist in both polarities."""

    AVAILABLE = "available"
    UNAVAILABLE = "unavailable"


@dataclass(frozen=True)
class StepSeries:
    """A value that holds from each time until the next; before the first time the first value holds."""

    times_s: Ints  # (n,) int64, strictly increasing seconds
    values: Floats  # (n,) float64, finite

    def __post_init__(self) -> None:
        if self.times_s.ndim != 1 or self.times_s.shape != self.values.shape or not len(self.times_s):
            raise ValueError(
                f"a step series needs as many times as values, at least one: got {self.times_s.shape} "
                f"and {self.values.shape}"
            )
        if (self.times_s[1:] <= self.times_s[:-1]).any():
            row = int(np.argmax(np.diff(self.times_s) <= 0)) + 1
            raise ValueError(f"times of a step series must strictly increase: row {row} does not")
        if not np.isfinite(self.values).all():
            raise ValueError("a step series holds a value that is not finite")

    def at(self, time_s: float) -> float:
        """The value that holds at `time_s`."""
        return float(self.values[max(0, int(np.searchsorted(self.times_s, time_s, side="right")) - 1)])

    def window(self, start_s: int, end_s: int) -> StepSeries:
        """The part in [start_s, end_s), shifted so that start_s becomes 0."""
        if end_s <= start_s:
            raise ValueError(f"empty window [{start_s}, {end_s})")
        inside = (self.times_s > start_s) & (self.times_s < end_s)
        times = np.concatenate([[start_s], self.times_s[inside]]) - start_s
        values = np.concatenate([[self.at(start_s)], self.values[inside]])
        return StepSeries(times.astype(np.int64), values.astype(np.float64))


@dataclass(frozen=True)
class OfferTrace:
    """Recorded (or synthetic) market of one offer. `availability` is 1.0 where a launch could succeed."""

    price_usd_hour: StepSeries
    availability: StepSeries
    synthetic_availability: bool = False
