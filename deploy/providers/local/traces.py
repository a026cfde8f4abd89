"""Recorded markets in the format of docs/traces.md, as far as the local provider needs it.

A recording is played in a circle: after its end it begins again, so that a service can run for ever on it.
"""

from __future__ import annotations

import csv
import json
import math
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_FORMAT = "spotweave-market-trace"
_DAY_S = 86400.0


class TraceError(ValueError):
    """A recording cannot be used; one line that names the file."""


@dataclass(frozen=True)
class History:
    """What was seen of an offer until a moment, in recorded seconds; as `Offer` defines it."""

    up_ratio: float
    spell_s: float
    mean_up_s: float


@dataclass(frozen=True)
class Recording:
    """One offer's market. Positions are seconds from the start and may lie beyond the end: it is a circle.

    Attributes:
        times_s: strictly increasing, the first is 0.
        up: whether capacity was there, from each time until the next.
        prices: USD per hour, from each time until the next.
        length_s: of one round.
    """

    times_s: tuple[float, ...]
    up: tuple[bool, ...]
    prices: tuple[float, ...]
    length_s: float

    def available(self, position_s: float) -> bool:
        """Whether capacity is there."""
        return self.up[self._row(position_s)]

    def price_usd_hour(self, position_s: float) -> float:
        """The price of one instance."""
        return self.prices[self._row(position_s)]

    def ends_s(self, position_s: float, max_price_usd_hour: float | None) -> float | None:
        """The first position after this one at which an instance is taken away; None: never."""
        limit = math.inf if max_price_usd_hour is None else max_price_usd_hour
        turn, row = int(position_s // self.length_s), self._row(position_s)
        for _ in self.times_s:
            row += 1
            if row == len(self.times_s):
                turn, row = turn + 1, 0
            if not self.up[row] or self.prices[row] > limit:
                return turn * self.length_s + self.times_s[row]
        return None

    def history(self, position_s: float) -> History:
        """What was seen in the latest day and the latest 7 days, no further back than the start."""
        day = max(0.0, position_s - _DAY_S)
        week = list(self._up_spells(max(0.0, position_s - 7 * _DAY_S), position_s))
        up_day = sum(end - max(begin, day) for begin, end in week if end > day)
        now_up = self.available(position_s)
        return History(
            up_ratio=up_day / (position_s - day) if position_s > day else float(now_up),
            spell_s=position_s - self._since(position_s),
            mean_up_s=sum(end - begin for begin, end in week) / len(week) if week else 0.0,
        )

    def _row(self, position_s: float) -> int:
        return bisect_right(self.times_s, position_s % self.length_s) - 1

    def _rows(self, begin_s: float, end_s: float) -> Iterator[tuple[float, float, bool]]:
        """(begin, end, up) of all rows between two positions, cut to them."""
        turn, row = int(begin_s // self.length_s), self._row(begin_s)
        at = begin_s
        while at < end_s:
            state = self.up[row]
            row += 1
            if row == len(self.times_s):
                turn, row = turn + 1, 0
            following = min(end_s, turn * self.length_s + self.times_s[row])
            if following > at:
                yield at, following, state
            at = following

    def _up_spells(self, begin_s: float, end_s: float) -> Iterator[tuple[float, float]]:
        spell: tuple[float, float] | None = None
        for begin, end, up in self._rows(begin_s, end_s):
            if up:
                spell = (spell[0] if spell else begin, end)
            elif spell:
                yield spell
                spell = None
        if spell:
            yield spell

    def _since(self, position_s: float) -> float:
        """When availability last changed, 0 if never."""
        state = self.available(position_s)
        turn, row = int(position_s // self.length_s), self._row(position_s)
        while self.up[row] == state:
            since = turn * self.length_s + self.times_s[row]
            if since <= 0:
                return 0.0
            row -= 1
            if row < 0:
                turn, row = turn - 1, len(self.times_s) - 1
            if position_s - since > 2 * self.length_s:
                return 0.0
        return since


def constant(price_usd_hour: float) -> Recording:
    """A market that never changes."""
    return Recording((0.0,), (True,), (price_usd_hour,), _DAY_S)


def load_recording(folder: Path, price_usd_hour: float | None) -> Recording:
    """Read trace.json and series.csv of one offer.

    Args:
        folder: that holds them.
        price_usd_hour: for a recording without prices.

    Raises:
        TraceError: one line: file, line, what was expected.
    """
    about_path, series_path = folder / "trace.json", folder / "series.csv"
    try:
        about = json.loads(about_path.read_text(encoding="utf-8"))
        text = series_path.read_text(encoding="utf-8")
    except OSError as error:
        raise TraceError(f"cannot read {error.filename}: {error.strerror}") from error
    except ValueError as error:
        raise TraceError(f"{about_path}: not JSON: {error}") from error
    if not isinstance(about, dict) or (about.get("format"), about.get("format_version")) != (_FORMAT, 1):
        raise TraceError(f"{about_path}: expected format {_FORMAT!r}, version 1 (docs/traces.md)")
    tick = about.get("tick_s")
    if tick is not None and (not isinstance(tick, int | float) or isinstance(tick, bool) or tick <= 0):
        raise TraceError(f"{about_path}: tick_s: expected seconds or null, got {tick!r}")
    reader = csv.DictReader(text.splitlines())
    columns = set(reader.fieldnames or ())
    if "time_s" not in columns or not columns & {"available", "price_usd_hour"}:
        raise TraceError(f"{series_path}: expected the columns time_s and available or price_usd_hour")
    if "available" in columns and about.get("polarity") not in ("available", "unavailable"):
        raise TraceError(f"{about_path}: polarity: say 'available' if 1 means that capacity was there")
    if "price_usd_hour" not in columns and price_usd_hour is None:
        raise TraceError(f"{series_path} has no prices: give the offer a price_usd_hour")
    available = 1 if about.get("polarity") != "unavailable" else 0
    times: list[float] = []
    up: list[bool] = []
    prices: list[float] = []
    for line, row in enumerate(reader, start=2):
        where = f"{series_path} line {line}"
        time_s = _number(where, "time_s", row["time_s"])
        if times and time_s <= times[-1]:
            raise TraceError(f"{where}: time {time_s:g} s after {times[-1]:g} s: sort the rows by time")
        flag = _number(where, "available", row["available"]) if "available" in columns else available
        if flag not in (0, 1):
            raise TraceError(f"{where}: available {flag:g}: expected 0 or 1")
        price = price_usd_hour if price_usd_hour is not None else 0.0
        if "price_usd_hour" in columns:
            price = _number(where, "price_usd_hour", row["price_usd_hour"])
        times.append(time_s)
        up.append(flag == available)
        prices.append(price)
    if not times:
        raise TraceError(f"{series_path} is empty")
    start = times[0]
    # Without ticks each row is a change, and the last one only says where the recording ends.
    length = times[-1] - start + (tick or 0)
    shifted = tuple(time_s - start for time_s in times)
    if length <= 0:
        return Recording((0.0,), (up[0],), (prices[0],), _DAY_S)
    if not tick:
        shifted, up, prices = shifted[:-1], up[:-1], prices[:-1]
    return Recording(shifted, tuple(up), tuple(prices), length)


def _number(where: str, column: str, cell: str | None) -> float:
    try:
        value = float(cell or "")
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value < 0:
        raise TraceError(f"{where}: {column} {cell!r}: expected a number >= 0")
    return value
