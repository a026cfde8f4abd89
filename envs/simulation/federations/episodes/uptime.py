"""What the past of an offer's availability says, as the snapshot's columns want it."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate

from envs.simulation.series import StepSeries

DAY_S = 86_400
WEEK_S = 7 * DAY_S


class Uptime:
    """Sums over a recorded availability, so that any look at its past takes two bisections.

    Args:
        series: 1.0 where available; times before its first one count as nothing known.
    """

    def __init__(self, series: StepSeries) -> None:
        times: list[int] = series.times_s.tolist()
        ups: list[bool] = (series.values > 0).tolist()
        kept = [k for k in range(len(ups)) if k == 0 or ups[k] != ups[k - 1]]
        self._times = [times[k] for k in kept]
        self._up = [ups[k] for k in kept]
        lengths = [b - a for a, b in zip(self._times, self._times[1:], strict=False)]
        gains = [length if up else 0 for length, up in zip(lengths, self._up, strict=False)]
        self._sums = [0, *accumulate(gains)]
        self._spells = list(accumulate(1 if up else 0 for up in self._up))

    def up(self, time_s: float) -> bool:
        """Whether it is available."""
        return self._up[self._at(time_s)]

    def _at(self, time_s: float) -> int:
        return max(0, bisect_right(self._times, time_s) - 1)

    def _up_s(self, time_s: float) -> float:
        """Seconds up from the first record to `time_s`."""
        at = self._at(time_s)
        return self._sums[at] + (max(0.0, time_s - self._times[at]) if self._up[at] else 0.0)

    def ratio(self, now_s: float) -> float:
        """Share of the latest 24 h (or of what is recorded of them) in which it was available."""
        start_s = max(now_s - DAY_S, self._times[0])
        if now_s <= start_s:
            return float(self.up(now_s))
        return (self._up_s(now_s) - self._up_s(start_s)) / (now_s - start_s)

    def spell_s(self, now_s: float) -> float:
        """Seconds since it last changed."""
        return max(0.0, now_s - self._times[self._at(now_s)])

    def mean_up_s(self, now_s: float) -> float:
        """Mean length of the up-spells (parts of them at the edges) within the latest 7 days; 0 for none."""
        start_s = max(now_s - WEEK_S, self._times[0])
        first, last = self._at(start_s), self._at(now_s)
        count = self._spells[last] - self._spells[first] + (1 if self._up[first] else 0)
        return (self._up_s(now_s) - self._up_s(start_s)) / count if count else 0.0
