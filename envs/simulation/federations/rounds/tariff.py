"""What a second on an offer costs: the integral of a price that changes in time."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise

from envs.simulation.series import StepSeries

SECONDS_PER_HOUR = 3600
HORIZON_S = 10 * 365 * 86_400
"""Money that lasts longer than this lasts for ever."""


class Tariff:
    """A step-wise constant price; before its first time the first price holds.

    Args:
        times_s: strictly increasing whole seconds.
        usd_hour: the price from each time on, >= 0.

    Raises:
        ValueError: for no price, prices below zero or not finite, times that do not increase.
    """

    def __init__(self, times_s: Sequence[int], usd_hour: Sequence[float]) -> None:
        if not times_s or len(times_s) != len(usd_hour):
            raise ValueError(
                f"a price series needs as many times as prices, at least one: "
                f"got {len(times_s)} times and {len(usd_hour)} prices"
            )
        for before, after in pairwise(times_s):
            if after <= before:
                raise ValueError(f"times of a price series must increase: {after} follows {before}")
        for price in usd_hour:
            if not 0 <= price < float("inf"):
                raise ValueError(f"a price is {price} USD per hour: expected a number >= 0")
        self._times = [int(time) for time in times_s]
        self._prices = [float(price) for price in usd_hour]
        self._sums = [0.0]
        """USD-seconds per hour from the first time to each time."""
        for start, end, price in zip(self._times, self._times[1:], self._prices, strict=False):
            self._sums.append(self._sums[-1] + (end - start) * price)

    @staticmethod
    def constant(usd_hour: float) -> Tariff:
        """One price for ever."""
        return Tariff([0], [usd_hour])

    @staticmethod
    def of(series: StepSeries) -> Tariff:
        """The price of a recorded series (USD per hour)."""
        return Tariff(series.times_s.tolist(), series.values.tolist())

    def usd_hour(self, time_s: float) -> float:
        """The price that holds at `time_s`."""
        if len(self._prices) == 1:
            return self._prices[0]
        return self._prices[max(0, bisect_right(self._times, time_s) - 1)]

    def cost_usd(self, start_s: float, end_s: float) -> float:
        """What one instance costs from `start_s` to `end_s` (seconds, in this order)."""
        if len(self._prices) == 1:
            return (end_s - start_s) * self._prices[0] / SECONDS_PER_HOUR
        return (self._sum(end_s) - self._sum(start_s)) / SECONDS_PER_HOUR

    def _sum(self, time_s: float) -> float:
        at = max(0, bisect_right(self._times, time_s) - 1)
        return self._sums[at] + (time_s - self._times[at]) * self._prices[at]
