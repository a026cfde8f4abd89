"""Recorded markets (docs/traces.md), as the local provider plays them.

A recording is played in a circle: after its end it begins again, so that a service can run for ever on it.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from pathlib import Path

from spotweave.deploy.providers.offers import History
from spotweave.envs.traces.format import load_trace
from spotweave.envs.traces.storage import TraceError

_DAY_S = 86400.0


@dataclass(frozen=True)
class RecordedMarket:
    """One offer's market. Positions are seconds from the start and may lie beyond the end: it is a circle."""

    times_s: tuple[float, ...]  # strictly increasing, the first is 0
    up: tuple[bool, ...]  # whether capacity was there, from each time until the next
    prices: tuple[float, ...]  # USD per hour, from each time until the next
    length_s: float  # of one round

    def available(self, position_s: float) -> bool:
        """Whether there is capacity."""
        return self.up[self.row(position_s) % len(self.times_s)]

    def price_usd_hour(self, position_s: float) -> float:
        """The price of one instance."""
        return self.prices[self.row(position_s) % len(self.times_s)]

    def row(self, position_s: float) -> int:
        """Number of the row in force; it goes on rising from round to round."""
        before = int(position_s // self.length_s) * len(self.times_s)
        return before + bisect_right(self.times_s, position_s % self.length_s) - 1

    def begins_s(self, row: int) -> float:
        """The position at which a row begins."""
        turn, row = divmod(row, len(self.times_s))
        return turn * self.length_s + self.times_s[row]

    def ends_s(self, position_s: float, max_price_usd_hour: float = math.inf) -> float | None:
        """The first position after this one at which an instance is taken away; None: never."""
        following, n_rows = self.row(position_s) + 1, len(self.times_s)
        for row in range(following, following + n_rows):
            if not self.up[row % n_rows] or self.prices[row % n_rows] > max_price_usd_hour:
                return self.begins_s(row)
        return None

    def history(self, position_s: float) -> History:
        """The latest day and 7 days in recorded seconds, no further back than the start."""
        day = max(0.0, position_s - _DAY_S)
        week = list(self._up_spells(max(0.0, position_s - 7 * _DAY_S), position_s))
        up_day = sum(end - max(begin, day) for begin, end in week if end > day)
        now_up = self.available(position_s)
        return History(
            up_ratio=up_day / (position_s - day) if position_s > day else float(now_up),
            spell_s=position_s - self._since(position_s),
            mean_up_s=sum(end - begin for begin, end in week) / len(week) if week else 0.0,
        )

    def _rows(self, begin_s: float, end_s: float) -> Iterator[tuple[float, float, bool]]:
        """(begin, end, up) of all rows between two positions, cut to them."""
        at, row = begin_s, self.row(begin_s)
        while at < end_s:
            following = min(end_s, self.begins_s(row + 1))
            if following > at:
                yield at, following, self.up[row % len(self.times_s)]
            at, row = following, row + 1

    def _up_spells(self, begin_s: float, end_s: float) -> Iterator[tuple[float, float]]:
        for up, rows in groupby(self._rows(begin_s, end_s), key=itemgetter(2)):
            begins, ends, _ = zip(*rows, strict=True)
            if up:
                yield begins[0], ends[-1]

    def _since(self, position_s: float) -> float:
        state, row = self.available(position_s), self.row(position_s)
        while self.up[row % len(self.times_s)] == state:
            since = self.begins_s(row)
            if since <= 0 or position_s - since > 2 * self.length_s:
                return 0.0
            row -= 1
        return since


def constant(price_usd_hour: float) -> RecordedMarket:
    """A market that never changes."""
    return RecordedMarket((0.0,), (True,), (price_usd_hour,), _DAY_S)


def load_recording(folder: Path, price_usd_hour: float | None) -> RecordedMarket:
    """A trace (docs/traces.md) of one offer, and its price if that is not recorded. Raises TraceError."""
    trace = load_trace(folder)
    if trace.price_usd_hour is None and price_usd_hour is None:
        raise TraceError(f"{folder} has no prices: give the offer a price_usd_hour")
    times = [float(time_s - trace.times_s[0]) for time_s in trace.times_s]
    up = [True] * len(times) if trace.available is None else trace.available.tolist()
    recorded = trace.price_usd_hour
    prices = [price_usd_hour or 0.0] * len(times) if recorded is None else recorded.tolist()
    # Without ticks each row is a change, and the last one only says where the recording ends.
    tick_s = trace.meta.tick_s
    length_s = times[-1] + (tick_s or 0)
    if length_s <= 0:
        return RecordedMarket((0.0,), (up[0],), (prices[0],), _DAY_S)
    rows = slice(None if tick_s else -1)
    return RecordedMarket(tuple(times[rows]), tuple(up[rows]), tuple(prices[rows]), length_s)
