"""Turns foreign files into traces: CSV, SkyPilot-style JSON, EC2 spot price history, SWF job logs."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import Any, cast

import numpy as np

from envs.simulation.series import Polarity
from envs.traces.jobs import JobTrace
from envs.traces.market import MarketMeta, MarketTrace, check_rows, flag, number, parse_polarity, parse_utc
from envs.traces.storage import TraceError, read_csv, read_json, read_text
from spotweave.plugins import plugins

GROUP = "spotweave.traces"
"""Entry points whose names are formats, and whose objects are importers (docs/extending.md)."""


@dataclass(frozen=True)
class ImportOptions:
    """What a foreign file does not say itself.

    Attributes:
        polarity: what a 1 means: "available" or "unavailable"; must be given where the file has availability.
        provider: e.g. "aws".
        zone: for files of one zone that do not name it.
        instance_type: for files that do not name it.
        market: "spot" or "on_demand".
        start_utc: ISO 8601, for files without absolute time.
        tick_s: seconds between two probes; None if rows are changes, or if the file says it.
        max_gap_s: see `MarketMeta`.
        source: where the data come from.
        licence: under which licence.
    """

    polarity: str | None = None
    provider: str = "aws"
    zone: str = ""
    instance_type: str = ""
    market: str = "spot"
    start_utc: str | None = None
    tick_s: int | None = None
    max_gap_s: int | None = None
    source: str = ""
    licence: str = ""


Importer = Callable[[Path, ImportOptions], list[MarketTrace]]
"""Reads a file, with what it does not say itself, as one trace per offer."""


def region_of(zone: str) -> str:
    """The region of an AWS (us-east-1a) or GCP (us-central1-a) zone; other names are their own region."""
    if match := re.fullmatch(r"([a-z]{2}(?:-[a-z]+)+-[0-9]+)[a-z]", zone):
        return match[1]
    if match := re.fullmatch(r"([a-z]+-[a-z]+[0-9]+)-[a-z]", zone):
        return match[1]
    return zone


def import_csv(path: Path, options: ImportOptions) -> list[MarketTrace]:
    """A CSV with columns time, zone, available, price: one trace per zone.

    `time` is ISO 8601 or a number of seconds (Unix time, or any clock if start_utc is given). Either of
    `available` and `price` may be missing. Rows of a zone must be in time order.

    Raises:
        TraceError: names file, line and what to do.
    """
    rows = read_csv(path, required=["time", "zone"], optional=["available", "price"])
    columns, where = rows[0][1].keys(), str(path)
    if len(columns) == 2:
        raise TraceError(f"{path} has times and zones only: add a column available, price, or both")
    polarity = parse_polarity(f"{path}: --polarity", options.polarity) if "available" in columns else None
    moments = [_seconds(f"{where} line {line}: time", row["time"]) for line, row in rows]
    start_s = min(moments)
    if options.start_utc is not None:
        start = parse_utc("--start-utc", options.start_utc)
    else:
        start = _from_unix(f"{path}: time", start_s)
    zones: dict[str, list[int]] = {}
    for index, (line, row) in enumerate(rows):
        if not row["zone"]:
            raise TraceError(f"{where} line {line}: the zone is missing")
        zones.setdefault(row["zone"], []).append(index)
    traces = []
    for zone, members in zones.items():
        lines = [rows[index][0] for index in members]
        cells = [rows[index][1] for index in members]
        available = prices = None
        if polarity is not None:
            available = [
                flag(where, line, row["available"], polarity) for line, row in zip(lines, cells, strict=True)
            ]
        if "price" in columns:
            prices = [
                number(where, line, "price", row["price"]) for line, row in zip(lines, cells, strict=True)
            ]
        times_s = [round(moments[index] - start_s) for index in members]
        meta = _meta(options, path, zone, start, polarity is not None)
        traces.append(_trace(where, lines, times_s, available, prices, meta))
    return traces


def import_skypilot(path: Path, options: ImportOptions) -> list[MarketTrace]:
    """SkyPilot-style JSON: {"metadata": {"gap_seconds": 600}, "data": [0, 1, ...]}, one probe per gap.

    The file does not say what a 1 means, so the polarity has to be given. In SkyPilot's own spot traces
    (skypilot-org/spot-traces) it means that capacity was there: `available`.

    Raises:
        TraceError: names what is missing or wrong.
    """
    raw = read_json(path)
    polarity = parse_polarity(f"{path}: --polarity", options.polarity)
    metadata = raw.get("metadata") if isinstance(raw, dict) else None
    gap_s = metadata.get("gap_seconds") if isinstance(metadata, dict) else None
    if isinstance(gap_s, bool) or not isinstance(gap_s, int | float) or not gap_s > 0 or gap_s != gap_s // 1:
        raise TraceError(f"{path}: metadata.gap_seconds must be a positive whole number: got {gap_s!r}")
    data = raw.get("data")
    if not isinstance(data, list) or not data:
        raise TraceError(f"{path}: data must be a list of 0 and 1 that is not empty")
    for index, value in enumerate(data):
        if value not in (0, 1):
            raise TraceError(f"{path}: data[{index}] is {value!r}: expected 0 or 1")
    available = [bool(value) == (polarity is Polarity.AVAILABLE) for value in data]
    start = _start(options, metadata.get("start_time") if isinstance(metadata, dict) else None, path)
    zone = options.zone or path.name.split(".")[0]
    meta = _meta(options, path, zone, start, True, tick_s=int(gap_s))
    times_s = [index * int(gap_s) for index in range(len(data))]
    return [_trace(str(path), list(range(len(data))), times_s, available, None, meta)]


def import_ec2_price_history(path: Path, options: ImportOptions) -> list[MarketTrace]:
    """The JSON that `aws ec2 describe-spot-price-history` prints: one price trace per zone and instance type.

    The API lists the newest first, so rows are sorted here. It has no availability. One product description
    (Linux/UNIX, Windows, ...) per file.

    Raises:
        TraceError: names the entry and what to do.
    """
    raw = read_json(path)
    entries = raw.get("SpotPriceHistory") if isinstance(raw, dict) else None
    if not isinstance(entries, list) or not entries:
        raise TraceError(f"{path}: SpotPriceHistory must be a list that is not empty")
    series: dict[tuple[str, str], dict[datetime, float]] = {}
    products = set()
    for index, entry in enumerate(entries):
        where = f"{path}: SpotPriceHistory[{index}]"
        keys = ("AvailabilityZone", "InstanceType", "SpotPrice", "Timestamp")
        missing = [key for key in keys if not isinstance(entry, dict) or key not in entry]
        if missing:
            raise TraceError(f"{where} has no {missing[0]}")
        moment = parse_utc(f"{where}: Timestamp", entry["Timestamp"])
        try:
            price = float(entry["SpotPrice"])
        except (TypeError, ValueError):
            raise TraceError(f"{where}: SpotPrice {entry['SpotPrice']!r} is not a number") from None
        if not 0 <= price < float("inf"):
            raise TraceError(f"{where}: SpotPrice {price}: expected USD per hour, a number >= 0")
        points = series.setdefault((str(entry["AvailabilityZone"]), str(entry["InstanceType"])), {})
        if points.setdefault(moment, price) != price:
            raise TraceError(
                f"{where}: a second price {price} at {entry['Timestamp']}, {points[moment]} before"
            )
        products.add(str(entry.get("ProductDescription", "")))
    if len(products) > 1:
        raise TraceError(
            f"{path} mixes {', '.join(sorted(products))}: ask for one with --product-descriptions"
        )
    start = min(moment for points in series.values() for moment in points)
    traces = []
    for (zone, instance_type), points in sorted(series.items()):
        moments = sorted(points)
        meta = _meta(options, path, zone, start, False, instance_type=instance_type)
        times_s = [round((moment - start).total_seconds()) for moment in moments]
        lines = list(range(len(moments)))
        traces.append(_trace(str(path), lines, times_s, None, [points[m] for m in moments], meta))
    return traces


def import_swf(path: Path, options: ImportOptions) -> JobTrace:
    """A job log in the Standard Workload Format of the Parallel Workloads Archive.

    Fields 2, 4, 5 and 8 are used: submit time, run time, allocated and requested processors (the request
    where the allocation is unknown). Jobs without run time or processors never ran and are left out.

    Raises:
        TraceError: names the line and what is wrong with it.
    """
    jobs: list[tuple[int, int, int]] = []
    submitted_last = 0.0
    for line, text in enumerate(read_text(path).splitlines(), start=1):
        if not text.strip() or text.lstrip().startswith(";"):
            continue
        cells = text.split()
        if len(cells) < 8:
            raise TraceError(f"{path} line {line}: {len(cells)} fields: an SWF line has 18")
        submit, run, allocated, requested = (
            number(str(path), line, f"field {position + 1}", cells[position]) for position in (1, 3, 4, 7)
        )
        if not all(np.isfinite([submit, run, allocated, requested])):
            raise TraceError(f"{path} line {line}: a field is not finite")
        if jobs and submit < submitted_last:
            raise TraceError(f"{path} line {line}: submitted before the job above: sort the log by field 2")
        processors = allocated if allocated > 0 else requested
        if run > 0 and processors > 0:
            jobs.append((round(submit), max(1, round(run)), round(processors)))
            submitted_last = submit
    if not jobs:
        raise TraceError(f"{path} holds no job that ran: every line lacks run time or processors")
    table = np.array(jobs, dtype=np.int64)
    source = options.source or path.name
    return JobTrace(source, options.licence, table[:, 0] - table[0, 0], table[:, 1], table[:, 2])


def _seconds(where: str, text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        return parse_utc(where, text).timestamp()
    if not np.isfinite(seconds):
        raise TraceError(f"{where} {text!r} is not finite")
    return seconds


def _start(options: ImportOptions, given: Any, path: Path) -> datetime:
    if options.start_utc is not None:
        return parse_utc("--start-utc", options.start_utc)
    if given is None:
        raise TraceError(f"{path} does not say when it starts: give --start-utc 2026-01-31T12:00:00Z")
    where = f"{path}: metadata.start_time"
    return _from_unix(where, given) if isinstance(given, int | float) else parse_utc(where, given)


def _from_unix(where: str, seconds: float) -> datetime:
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, OSError, ValueError):
        raise TraceError(f"{where} {seconds} is no Unix time: give --start-utc") from None


def _meta(
    options: ImportOptions,
    path: Path,
    zone: str,
    start: datetime,
    has_availability: bool,
    tick_s: int | None = None,
    instance_type: str = "",
) -> MarketMeta:
    return MarketMeta(
        provider=options.provider,
        region=region_of(zone),
        zone=zone,
        instance_type=instance_type or options.instance_type,
        market=options.market,
        start_utc=start,
        source=options.source or path.name,
        licence=options.licence,
        polarity=Polarity.AVAILABLE if has_availability else None,
        tick_s=tick_s if tick_s is not None else options.tick_s,
        max_gap_s=options.max_gap_s,
    )


def _trace(
    where: str,
    lines: list[int],
    times_s: list[int],
    available: list[bool] | None,
    prices: list[float] | None,
    meta: MarketMeta,
) -> MarketTrace:
    check_rows(where, lines, times_s, prices, meta)
    return MarketTrace(
        meta,
        np.array(times_s, np.int64),
        None if available is None else np.array(available, np.bool_),
        None if prices is None else np.array(prices, np.float64),
    )


_MARKET_IMPORTERS: dict[str, Importer] = {
    "csv": import_csv,
    "skypilot": import_skypilot,
    "ec2-price-history": import_ec2_price_history,
}


@cache
def market_importers() -> Mapping[str, Importer]:
    """Importers of recorded markets by format: ours, and those that installed packages name as entry points.

    Raises:
        PluginError: for an entry point that cannot be used.
    """
    added = cast(dict[str, Importer], plugins(GROUP, FunctionType, _MARKET_IMPORTERS))
    return {**_MARKET_IMPORTERS, **added}
