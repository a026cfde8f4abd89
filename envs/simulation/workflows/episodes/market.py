"""What an offer costs and when it can be rented in one episode."""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

import numpy as np

from envs.simulation.series import StepSeries

HOUR_S = 3600.0
DAY_S = 86_400.0
WEEK_S = 7 * DAY_S


class Habits(NamedTuple):
    """What is known of an offer's availability at a moment (columns of `clusters` in an observation).

    Attributes:
        up_ratio: share of the latest 24 h in which it was available.
        spell_s: since availability last changed.
        mean_up_s: mean of the parts of its up-spells within the latest 7 days; 0 without any.
    """

    up_ratio: float
    spell_s: float
    mean_up_s: float


class Quotes:
    """Price and availability of one offer; 0 is the episode's start.

    Args:
        price_usd_hour: of an instance.
        availability: 1.0 where an instance could be rented; its history begins at its first time.

    Attributes:
        prices: as given.
    """

    def __init__(self, price_usd_hour: StepSeries, availability: StepSeries) -> None:
        self.prices, self._availability = price_usd_hour, availability
        self._price_times: list[float] = price_usd_hour.times_s.tolist()
        self._prices: list[float] = price_usd_hour.values.tolist()
        spans = np.diff(price_usd_hour.times_s) * price_usd_hour.values[:-1] / HOUR_S
        self._spent: list[float] = np.concatenate([[0.0], np.cumsum(spans)]).tolist()
        self._times: list[float] = availability.times_s.tolist()
        self._up: list[bool] = (availability.values > 0).tolist()
        ups = np.diff(availability.times_s) * (availability.values[:-1] > 0)
        self._up_s: list[float] = np.concatenate([[0.0], np.cumsum(ups)]).tolist()

    def price_usd_hour(self, at_s: float) -> float:
        """The price that holds at a moment."""
        return self._prices[max(0, bisect_right(self._price_times, at_s) - 1)]

    def cost_usd(self, start_s: float, end_s: float) -> float:
        """What an instance costs from one moment to another."""
        return self._bill_usd(end_s) - self._bill_usd(start_s)

    def available(self, at_s: float) -> bool:
        """Whether an instance can be rented, and those rented run on."""
        return self._up[self._row(at_s)]

    def changes_s(self) -> list[float]:
        """After the start: when its availability changes."""
        return [time_s for time_s in self._times[1:] if time_s > 0]

    def digest(self) -> bytes:
        """All of it."""
        arrays = (array for one in (self.prices, self._availability) for array in (one.times_s, one.values))
        return b"".join(array.tobytes() for array in arrays)

    def least_usd_hour(self, until_s: float) -> float:
        """The lowest price from the start on at which it is available; infinite if it never is."""
        edges = {0.0, *self._times, *self._price_times}
        seen = [edge for edge in edges if 0 <= edge < until_s and self.available(edge)]
        return min((self.price_usd_hour(edge) for edge in seen), default=np.inf)

    def habits(self, at_s: float) -> Habits:
        """What the past tells at a moment; it goes back no further than the history."""
        row, first_s = self._row(at_s), self._times[0]
        day_s, week_s = max(first_s, at_s - DAY_S), max(first_s, at_s - WEEK_S)
        ratio = (self._above_s(at_s) - self._above_s(day_s)) / (at_s - day_s) if at_s > day_s else 0.0
        spells = sum(self._up[self._row(week_s) : row + 1])
        mean_s = (self._above_s(at_s) - self._above_s(week_s)) / spells if spells else 0.0
        return Habits(ratio, at_s - self._times[row], mean_s)

    def _bill_usd(self, at_s: float) -> float:
        row = max(0, bisect_right(self._price_times, at_s) - 1)
        return self._spent[row] + (at_s - self._price_times[row]) * self._prices[row] / HOUR_S

    def _row(self, at_s: float) -> int:
        return max(0, bisect_right(self._times, at_s) - 1)

    def _above_s(self, at_s: float) -> float:
        row = self._row(at_s)
        return self._up_s[row] + (at_s - self._times[row]) * self._up[row]
