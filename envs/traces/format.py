"""Reads and writes the trace formats of markets and of jobs (docs/traces.md)."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, PositiveInt

from spotweave.documents import StrictModel
from spotweave.envs.simulation.series import Bools, Floats, Ints, OfferTrace, Polarity, StepSeries
from spotweave.envs.traces.storage import TraceError, conform, read_csv, read_json

FORMAT = "spotweave-market-trace"
JOB_FORMAT = "spotweave-job-trace"
FORMAT_VERSION = 1
Market = Literal["spot", "on_demand"]


def _utc(moment: datetime) -> datetime:
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


Moment = Annotated[datetime, AfterValidator(_utc)]


class MarketMeta(StrictModel):
    """trace.json of a market trace, without its format."""

    provider: str
    """Such as "aws"."""
    region: str
    """Such as "us-east-1"."""
    zone: str
    """Such as "us-east-1a"; "" for a whole region."""
    instance_type: str
    """Such as "p3.2xlarge"."""
    market: Market
    start_utc: Moment
    """Moment of time_s = 0; without a zone it is UTC."""
    source: str
    """Where the data come from."""
    licence: str
    polarity: Polarity | None = None
    """What a 1 in the column `available` means; None if the file has no such column."""
    tick_s: PositiveInt | None = None
    """Seconds between two probes; None if the rows are changes, each valid until the next."""
    max_gap_s: PositiveInt | None = None
    """Rows further apart are an error. None: twice tick_s, or no limit where tick_s is None."""
    synthetic: bool = False
    """True for generated availability."""

    @property
    def gap_limit_s(self) -> float:
        """Largest allowed distance of two rows, seconds."""
        if self.max_gap_s is not None:
            return float(self.max_gap_s)
        return math.inf if self.tick_s is None else 2.0 * self.tick_s

    @property
    def product(self) -> tuple[str, str, str]:
        """What has one on-demand price: an instance type in a region of a provider."""
        return self.provider, self.region, self.instance_type

    @property
    def offer(self) -> tuple[str, str, str, str, str]:
        """What makes two traces the same offer."""
        return self.provider, self.region, self.zone, self.instance_type, self.market


@dataclass(frozen=True)
class MarketTrace:
    """A validated market trace. Availability is True = available here, whatever the file's polarity."""

    meta: MarketMeta  # trace.json
    times_s: Ints  # (n,) strictly increasing seconds from meta.start_utc
    available: Bools | None  # (n,) or None if the file has no availability
    price_usd_hour: Floats | None  # (n,) or None if the file has no prices

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
    meta = conform(folder / "trace.json", MarketMeta, _header(folder, FORMAT))
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
    raw = trace.meta.model_dump(mode="json")
    raw["polarity"] = None if trace.available is None else Polarity.AVAILABLE.value
    columns: dict[str, list[Any]] = {"time_s": trace.times_s.tolist()}
    if trace.available is not None:
        columns["available"] = trace.available.astype(int).tolist()
    if trace.price_usd_hour is not None:
        columns["price_usd_hour"] = trace.price_usd_hour.tolist()
    return _files(FORMAT, raw, "series.csv", columns)


def _files(name: str, header: dict[str, Any], table: str, columns: Mapping[str, list[Any]]) -> dict[str, str]:
    raw = {"format": name, "format_version": FORMAT_VERSION, **header}
    lines = [",".join(columns), *(",".join(map(str, row)) for row in zip(*columns.values(), strict=True))]
    return {"trace.json": json.dumps(raw, indent=2) + "\n", table: "\n".join(lines) + "\n"}


def number(where: str, line: int, column: str, cell: str) -> float:
    """A cell as a number; NaN and infinity pass, `trace_of` names them. Raises TraceError if it is none."""
    try:
        return float(cell)
    except ValueError:
        raise TraceError(f"{where} line {line}: {column} {cell!r} is not a number") from None


def flag(where: str, line: int, cell: str, polarity: Polarity) -> bool:
    """A cell of an availability column as True = available. Raises TraceError if it is neither 0 nor 1."""
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
    return _utc(moment)


def parse_polarity(where: str, text: Any) -> Polarity:
    """The typed polarity. Raises TraceError if it is missing or neither of the two words."""
    try:
        return Polarity(text)
    except ValueError:
        given = "is missing" if text is None else f"{text!r} is unknown"
        raise TraceError(
            f"{where}: polarity {given}: say 'available' if 1 means that capacity was there, "
            "else 'unavailable'"
        ) from None


def _header(folder: Path, expected: str) -> dict[str, Any]:
    """trace.json of a folder without its format, which must be the one expected."""
    path = folder / "trace.json"
    if not path.is_file():
        raise TraceError(f"{folder} is no trace: it has no trace.json (see docs/traces.md)")
    raw = read_json(path)
    found = raw.pop("format", None) if isinstance(raw, dict) else None
    if found != expected:
        hint = ": it holds jobs, which env.workload.trace reads" if found == JOB_FORMAT else ""
        kind = "market" if expected == FORMAT else "job"
        raise TraceError(
            f'{path} is no {kind} trace{hint}: expected "format": "{expected}" (see docs/traces.md)'
        )
    if raw.pop("format_version", None) != FORMAT_VERSION:
        raise TraceError(f"{path}: this release reads format_version {FORMAT_VERSION}")
    plain: dict[str, Any] = raw
    return plain


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
    meta = meta.model_copy(update={"polarity": Polarity.AVAILABLE if available else None})
    return trace_of(where, lines, times_s, available, prices, meta)


def trace_of(
    where: str,
    lines: list[int],
    times_s: list[int],
    available: list[bool] | None,
    prices: list[float] | None,
    meta: MarketMeta,
) -> MarketTrace:
    """A market trace, wherever it came from, if its times rise without a gap and its prices are possible.

    Args:
        where: the file, for the message.
        lines: (n,) line numbers in it.
        times_s: (n,) seconds.
        available: (n,) whether there is capacity, or None.
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
    return MarketTrace(
        meta,
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
    available, prices = (None if column is None else column.tolist() for column in columns)
    lines = list(range(1, len(kept) + 1))
    meta = first.meta.model_copy(update={"start_utc": start})
    return trace_of(f"{one} and {other}", lines, kept.tolist(), available, prices, meta)


def _moved(trace: MarketTrace, start: datetime) -> MarketTrace:
    offset_s = round((trace.meta.start_utc - start).total_seconds())
    meta = trace.meta.model_copy(update={"start_utc": start})
    return replace(trace, meta=meta, times_s=trace.times_s + offset_s)


def _compressed(times_s: Ints, values: Floats) -> StepSeries:
    kept = np.concatenate([[True], values[1:] != values[:-1]])
    return StepSeries(times_s[kept], values[kept])


_COLUMNS = ("arrival_s", "duration_s", "executors")


@dataclass(frozen=True)
class JobTrace:
    """Recorded jobs in the order of their arrival."""

    source: str  # where the data come from
    licence: str  # under which licence
    arrival_s: Ints  # (n,) seconds from the first arrival, never decreasing; several may be equal
    duration_s: Ints  # (n,) positive seconds
    executors: Ints  # (n,) positive counts


def load_jobs(path: str | Path) -> JobTrace:
    """Read and check a job trace.

    Args:
        path: folder that holds trace.json and jobs.csv.

    Raises:
        TraceError: in one line, with file and line, for whatever docs/traces.md forbids.
    """
    folder = Path(path)
    raw = _header(folder, JOB_FORMAT)
    where = str(folder / "jobs.csv")
    rows = read_csv(Path(where), required=_COLUMNS, optional=())
    table = np.empty((len(rows), len(_COLUMNS)), dtype=np.int64)
    for index, (line, row) in enumerate(rows):
        for position, (column, least) in enumerate(zip(_COLUMNS, (0, 1, 1), strict=True)):
            value = number(where, line, column, row[column])
            if not (value >= least and value == value // 1):
                raise TraceError(
                    f"{where} line {line}: {column} {row[column]}: expected a whole number >= {least}"
                )
            table[index, position] = int(value)
        if index and table[index, 0] < table[index - 1, 0]:
            raise TraceError(f"{where} line {line}: arrival after a later one: sort the rows by arrival_s")
    return JobTrace(
        str(raw.get("source", "")), str(raw.get("licence", "")), table[:, 0], table[:, 1], table[:, 2]
    )


def job_files(trace: JobTrace) -> dict[str, str]:
    """trace.json and jobs.csv of a job trace as texts, for `storage.write_directory`."""
    columns = {name: getattr(trace, name).tolist() for name in _COLUMNS}
    return _files(JOB_FORMAT, {"source": trace.source, "licence": trace.licence}, "jobs.csv", columns)
