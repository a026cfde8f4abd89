"""The trace format of one offer's market: trace.json and series.csv in a folder (docs/traces.md)."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from envs.simulation.series import Bools, Floats, Ints, OfferTrace, Polarity, StepSeries
from envs.traces.storage import TraceError, read_csv, read_json

FORMAT = "spotweave-market-trace"
JOB_FORMAT = "spotweave-job-trace"
FORMAT_VERSION = 1
MARKETS = ("spot", "on_demand")


@dataclass(frozen=True)
class MarketMeta:
    """trace.json of a market trace.

    Attributes:
        provider: e.g. "aws".
        region: e.g. "us-east-1".
        zone: e.g. "us-east-1a"; "" for a whole region.
        instance_type: e.g. "p3.2xlarge".
        market: "spot" or "on_demand".
        start_utc: time_s = 0 in UTC.
        source: where the data come from.
        licence: under which licence.
        polarity: what a 1 in the file's column `available` means; None if it has no such column.
        tick_s: seconds between two probes; None if the rows are changes, each valid until the next.
        max_gap_s: rows further apart are an error. None: twice tick_s, or no limit where tick_s is None.
        synthetic: True for generated availability.
    """

    provider: str
    region: str
    zone: str
    instance_type: str
    market: str
    start_utc: datetime
    source: str
    licence: str
    polarity: Polarity | None = None
    tick_s: int | None = None
    max_gap_s: int | None = None
    synthetic: bool = False

    @property
    def gap_limit_s(self) -> float:
        """Largest allowed distance of two rows, seconds."""
        if self.max_gap_s is not None:
            return float(self.max_gap_s)
        return math.inf if self.tick_s is None else 2.0 * self.tick_s

    @property
    def offer(self) -> tuple[str, str, str, str, str]:
        """What makes two traces the same offer."""
        return self.provider, self.region, self.zone, self.instance_type, self.market


@dataclass(frozen=True)
class MarketTrace:
    """A validated market trace. Availability is True = available here, whatever the file's polarity.

    Attributes:
        meta: trace.json.
        times_s: (n,) strictly increasing seconds from meta.start_utc.
        available: (n,) or None if the file has no availability.
        price_usd_hour: (n,) or None if the file has no prices.
    """

    meta: MarketMeta
    times_s: Ints
    available: Bools | None
    price_usd_hour: Floats | None

    def offer_trace(
        self, price_usd_hour: StepSeries | None = None, availability: StepSeries | None = None
    ) -> OfferTrace:
        """What a world steps through; the arguments stand in for a column that the file lacks.

        Raises:
            TraceError: if price or availability is missing in both.
        """
        name = " ".join(part for part in self.meta.offer if part)
        if self.price_usd_hour is not None:
            price_usd_hour = _compressed(self.times_s, self.price_usd_hour)
        if price_usd_hour is None:
            raise TraceError(f"the trace of {name} has no prices: add a column price_usd_hour")
        if self.available is not None:
            recorded = _compressed(self.times_s, self.available.astype(np.float64))
            return OfferTrace(price_usd_hour, recorded, self.meta.synthetic)
        if availability is None:
            raise TraceError(
                f"the trace of {name} has no availability: add a column available and a polarity"
            )
        return OfferTrace(price_usd_hour, availability, synthetic_availability=True)


def load_trace(path: str | Path) -> MarketTrace:
    """Read and check one market trace.

    Args:
        path: folder that holds trace.json and series.csv.

    Raises:
        TraceError: in one line, with file and line, for whatever docs/traces.md forbids.
    """
    folder = Path(path)
    if not (folder / "trace.json").is_file():
        raise TraceError(f"{folder} is no trace: it has no trace.json (see docs/traces.md)")
    meta = _meta(folder / "trace.json")
    return _series(folder / "series.csv", meta)


def load_traces(path: str | Path) -> tuple[MarketTrace, ...]:
    """Read one trace, or every trace in the folders below `path`, all moved onto the earliest clock start.

    Raises:
        TraceError: if there is none, two are of one offer, or one is invalid.
    """
    root = Path(path)
    folders = (
        [root] if (root / "trace.json").is_file() else sorted(p.parent for p in root.glob("*/trace.json"))
    )
    if not folders:
        raise TraceError(
            f"{root} holds no trace: expected trace.json, or folders with one (see docs/traces.md)"
        )
    traces = [load_trace(folder) for folder in folders]
    seen: dict[tuple[str, ...], Path] = {}
    for trace, folder in zip(traces, folders, strict=True):
        if trace.meta.offer in seen:
            name = " ".join(trace.meta.offer)
            raise TraceError(f"{folder} and {seen[trace.meta.offer]} are both of {name}: keep one")
        seen[trace.meta.offer] = folder
    start = min(trace.meta.start_utc for trace in traces)
    return tuple(_moved(trace, start) for trace in traces)


def trace_files(trace: MarketTrace) -> dict[str, str]:
    """trace.json and series.csv of a trace as texts, for `storage.write_directory`."""
    raw: dict[str, Any] = {"format": FORMAT, "format_version": FORMAT_VERSION}
    raw |= {field.name: getattr(trace.meta, field.name) for field in fields(MarketMeta)}
    raw["start_utc"] = trace.meta.start_utc.isoformat().replace("+00:00", "Z")
    raw["polarity"] = None if trace.available is None else Polarity.AVAILABLE.value
    columns: dict[str, list[Any]] = {"time_s": trace.times_s.tolist()}
    if trace.available is not None:
        columns["available"] = trace.available.astype(int).tolist()
    if trace.price_usd_hour is not None:
        columns["price_usd_hour"] = trace.price_usd_hour.tolist()
    lines = [",".join(columns), *(",".join(map(str, row)) for row in zip(*columns.values(), strict=True))]
    return {"trace.json": json.dumps(raw, indent=2) + "\n", "series.csv": "\n".join(lines) + "\n"}


def check_rows(
    where: str, lines: list[int], times_s: list[int], prices: list[float] | None, meta: MarketMeta
) -> None:
    """What every market trace must hold, wherever it came from: rising times, no gap, possible prices.

    Args:
        where: the file, for the message.
        lines: (n,) line numbers in it.
        times_s: (n,) seconds.
        prices: (n,) USD per hour, or None.
        meta: gives the largest gap.

    Raises:
        TraceError: names the first bad row.
    """
    for before, line, earlier, time_s in zip(lines, lines[1:], times_s, times_s[1:], strict=False):
        if time_s == earlier:
            raise TraceError(
                f"{where} line {line}: time {time_s} s stands twice (also line {before}): keep one"
            )
        if time_s < earlier:
            raise TraceError(f"{where} line {line}: time {time_s} s after {earlier} s: sort the rows by time")
        if time_s - earlier > meta.gap_limit_s:
            raise TraceError(
                f"{where} line {line}: a gap of {time_s - earlier} s since line {before}, more than "
                f"{meta.gap_limit_s:.0f} s: fill it, or allow it with max_gap_s"
            )
    for line, price in zip(lines, prices or [], strict=False):
        if not math.isfinite(price) or price < 0:
            raise TraceError(f"{where} line {line}: price {price}: expected USD per hour, a number >= 0")


def number(where: str, line: int, column: str, cell: str) -> float:
    """A cell as a number; NaN and infinity pass, `check_rows` names them.

    Raises:
        TraceError: if it is none.
    """
    try:
        return float(cell)
    except ValueError:
        raise TraceError(f"{where} line {line}: {column} {cell!r} is not a number") from None


def flag(where: str, line: int, cell: str, polarity: Polarity) -> bool:
    """A cell of an availability column as True = available.

    Raises:
        TraceError: if it is neither 0 nor 1.
    """
    if cell not in ("0", "1", "0.0", "1.0"):
        raise TraceError(f"{where} line {line}: available {cell!r}: expected 0 or 1")
    return (cell[0] == "1") == (polarity is Polarity.AVAILABLE)


def parse_utc(where: str, text: Any) -> datetime:
    """ISO 8601 as an aware UTC datetime; a time without zone is taken as UTC.

    Raises:
        TraceError: if it is no time.
    """
    try:
        moment = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        raise TraceError(f"{where} {text!r} is not a time: expected ISO 8601, 2026-01-31T12:00:00Z") from None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def parse_polarity(where: str, text: Any) -> Polarity:
    """The typed polarity.

    Raises:
        TraceError: if it is missing or neither of the two words.
    """
    try:
        return Polarity(text)
    except ValueError:
        given = "is missing" if text is None else f"{text!r} is unknown"
        raise TraceError(
            f"{where}: polarity {given}: say 'available' if 1 means that capacity was there, "
            "else 'unavailable'"
        ) from None


def _meta(path: Path) -> MarketMeta:
    raw = read_json(path)
    if not isinstance(raw, dict) or raw.get("format") != FORMAT:
        of_jobs = isinstance(raw, dict) and raw.get("format") == JOB_FORMAT
        hint = ": it holds jobs, which env.workload.trace reads" if of_jobs else ""
        raise TraceError(
            f'{path} is no market trace{hint}: expected "format": "{FORMAT}" (see docs/traces.md)'
        )
    if raw.pop("format_version", None) != FORMAT_VERSION:
        raise TraceError(f"{path}: this release reads format_version {FORMAT_VERSION}")
    del raw["format"]
    names = [field.name for field in fields(MarketMeta)]
    if unknown := [name for name in raw if name not in names]:
        raise TraceError(f"{path}: unknown key {unknown[0]!r}: expected {', '.join(names)}")
    for name in ("provider", "region", "zone", "instance_type", "market", "source", "licence"):
        if not isinstance(raw.get(name), str):
            raise TraceError(f"{path}: {name} must be a text: got {raw.get(name)!r}")
    if raw["market"] not in MARKETS:
        raise TraceError(f"{path}: market {raw['market']!r}: expected {' or '.join(MARKETS)}")
    for name in ("tick_s", "max_gap_s"):
        value = raw.get(name)
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value <= 0):
            raise TraceError(
                f"{path}: {name} must be a positive whole number of seconds or null: got {value!r}"
            )
    if not isinstance(raw.get("synthetic", False), bool):
        raise TraceError(f"{path}: synthetic must be true or false: got {raw['synthetic']!r}")
    if raw.get("polarity") is not None:
        raw["polarity"] = parse_polarity(str(path), raw["polarity"])
    raw["start_utc"] = parse_utc(f"{path}: start_utc", raw.get("start_utc"))
    return MarketMeta(**raw)


def _series(path: Path, meta: MarketMeta) -> MarketTrace:
    rows = read_csv(path, required=["time_s"], optional=["available", "price_usd_hour"])
    columns = rows[0][1].keys()
    if len(columns) == 1:
        raise TraceError(f"{path} has times only: add a column available, price_usd_hour, or both")
    where, lines = str(path), [line for line, _ in rows]
    times_s = []
    for line, row in rows:
        time_s = number(where, line, "time_s", row["time_s"])
        if time_s != time_s // 1:
            raise TraceError(f"{where} line {line}: time_s {row['time_s']}: expected whole seconds")
        times_s.append(int(time_s))
    prices = available = None
    if "price_usd_hour" in columns:
        prices = [number(where, line, "price_usd_hour", row["price_usd_hour"]) for line, row in rows]
    if "available" in columns:
        polarity = parse_polarity(str(path.with_name("trace.json")), meta.polarity)
        available = [flag(where, line, row["available"], polarity) for line, row in rows]
    check_rows(where, lines, times_s, prices, meta)
    return MarketTrace(
        replace(meta, polarity=Polarity.AVAILABLE if available else None),
        np.array(times_s, np.int64),
        None if available is None else np.array(available, np.bool_),
        None if prices is None else np.array(prices, np.float64),
    )


def merged(first: MarketTrace, one: Path, second: MarketTrace, other: Path) -> MarketTrace:
    """Two recordings of one offer as one, such as the pages or the months of a price history.

    Args:
        first: one of them.
        one: its file, for messages.
        second: the other one.
        other: its file.

    Raises:
        TraceError: if they say different things of one moment, or one has a column that the other lacks.
    """
    start = min(first.meta.start_utc, second.meta.start_utc)
    a, b = _moved(first, start), _moved(second, start)
    columns: list[NDArray[Any] | None] = []
    times_s = np.concatenate([a.times_s, b.times_s])
    order = np.argsort(times_s, kind="stable")
    again = np.diff(times_s[order]) == 0
    for one_column, other_column in ((a.available, b.available), (a.price_usd_hour, b.price_usd_hour)):
        if one_column is None or other_column is None:
            if one_column is not other_column:
                raise TraceError(f"{one} and {other}: one has a column that the other lacks")
            columns.append(None)
            continue
        values: NDArray[Any] = np.concatenate([one_column, other_column])[order]
        differs = again & (values[1:] != values[:-1])
        if differs.any():
            moment = start + timedelta(seconds=int(times_s[order][1:][differs][0]))
            raise TraceError(
                f"{one} and {other} differ at {moment:%Y-%m-%dT%H:%M:%SZ}: keep one of the two rows"
            )
        columns.append(values[np.append(True, ~again)])
    kept = times_s[order][np.append(True, ~again)]
    available, prices = columns
    shown = None if prices is None else prices.tolist()
    meta = replace(first.meta, start_utc=start)
    check_rows(f"{one} and {other}", list(range(1, len(kept) + 1)), kept.tolist(), shown, meta)
    return MarketTrace(meta, kept, available, prices)


def _moved(trace: MarketTrace, start: datetime) -> MarketTrace:
    offset_s = round((trace.meta.start_utc - start).total_seconds())
    return replace(trace, meta=replace(trace.meta, start_utc=start), times_s=trace.times_s + offset_s)


def _compressed(times_s: Ints, values: Floats) -> StepSeries:
    kept = np.concatenate([[True], values[1:] != values[:-1]])
    return StepSeries(times_s[kept], values[kept])
