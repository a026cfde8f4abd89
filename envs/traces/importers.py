"""Turns foreign files into traces: CSV, SkyPilot-style JSON, EC2 spot price history, SWF job logs.

Prices that such a file lacks come from the list that ships, or from the user.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import Annotated, Any, Literal, cast

import numpy as np
from pydantic import BaseModel, Field, PositiveInt

from spotweave.documents import Number
from spotweave.envs.simulation.series import Polarity
from spotweave.envs.traces.bundle import TraceBundle
from spotweave.envs.traces.format import (
    JobTrace,
    Market,
    MarketMeta,
    MarketTrace,
    Moment,
    flag,
    number,
    parse_polarity,
    parse_utc,
    trace_of,
)
from spotweave.envs.traces.storage import TraceError, conform, read_csv, read_json, read_text
from spotweave.plugins import plugins

GROUP = "spotweave.traces"
"""Entry points whose names are formats, and whose objects are importers (docs/extending.md)."""


@dataclass(frozen=True)
class ImportOptions:
    """What a foreign file does not say itself."""

    # what a 1 means: "available" or "unavailable"; must be given where the file has availability
    polarity: str | None = None
    provider: str = "aws"  # e.g. "aws".
    zone: str = ""  # for files of one zone that do not name it
    instance_type: str = ""  # for files that do not name it
    market: Market = "spot"  # "spot" or "on_demand"
    start_utc: str | None = None  # ISO 8601, for files without absolute time
    tick_s: int | None = None  # seconds between two probes; None if rows are changes, or if the file says it
    max_gap_s: int | None = None  # see `MarketMeta`
    source: str = ""  # where the data come from
    licence: str = ""  # under which licence


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
    start = _start(options, start_s, path, "time")
    zones: dict[str, list[tuple[int, dict[str, str], float]]] = {}
    for (line, row), moment in zip(rows, moments, strict=True):
        if not row["zone"]:
            raise TraceError(f"{where} line {line}: the zone is missing")
        zones.setdefault(row["zone"], []).append((line, row, moment))
    traces = []
    for zone, members in zones.items():
        available = prices = None
        if polarity is not None:
            available = [flag(where, line, row["available"], polarity) for line, row, _ in members]
        if "price" in columns:
            prices = [number(where, line, "price", row["price"]) for line, row, _ in members]
        times_s = [round(moment - start_s) for _, _, moment in members]
        meta = _meta(options, path, zone, start, polarity is not None)
        traces.append(trace_of(where, [line for line, _, _ in members], times_s, available, prices, meta))
    return traces


class _Metadata(BaseModel):
    gap_seconds: PositiveInt
    start_time: float | str | None = None


class _Probes(BaseModel):
    metadata: _Metadata
    data: Annotated[list[Literal[0, 1]], Field(min_length=1)]


class _SpotPrice(BaseModel):
    AvailabilityZone: str
    InstanceType: str
    SpotPrice: Number
    Timestamp: Moment
    ProductDescription: str = ""


class _PriceHistory(BaseModel):
    SpotPriceHistory: Annotated[list[_SpotPrice], Field(min_length=1)]


def import_skypilot(path: Path, options: ImportOptions) -> list[MarketTrace]:
    """SkyPilot-style JSON: {"metadata": {"gap_seconds": 600}, "data": [0, 1, ...]}, one probe per gap.

    The file does not say what a 1 means, so the polarity has to be given. In SkyPilot's own spot traces
    (skypilot-org/spot-traces) it means that capacity was there: `available`.

    Raises:
        TraceError: names what is missing or wrong.
    """
    polarity = parse_polarity(f"{path}: --polarity", options.polarity)
    probes = conform(path, _Probes, read_json(path))
    gap_s = probes.metadata.gap_seconds
    available = [bool(value) == (polarity is Polarity.AVAILABLE) for value in probes.data]
    start = _start(options, probes.metadata.start_time, path, "metadata.start_time")
    zone = options.zone or path.name.split(".")[0]
    meta = _meta(options, path, zone, start, True, tick_s=gap_s)
    times_s = [index * gap_s for index in range(len(probes.data))]
    return [trace_of(str(path), list(range(len(times_s))), times_s, available, None, meta)]


def import_ec2_price_history(path: Path, options: ImportOptions) -> list[MarketTrace]:
    """The JSON that `aws ec2 describe-spot-price-history` prints: one price trace per zone and instance type.

    The API lists the newest first, so rows are sorted here. It has no availability. One product description
    (Linux/UNIX, Windows, ...) per file.

    Raises:
        TraceError: names the entry and what to do.
    """
    series: dict[tuple[str, str], dict[datetime, float]] = {}
    products = set()
    for index, entry in enumerate(conform(path, _PriceHistory, read_json(path)).SpotPriceHistory):
        points = series.setdefault((entry.AvailabilityZone, entry.InstanceType), {})
        before = points.setdefault(entry.Timestamp, entry.SpotPrice)
        if before != entry.SpotPrice:
            raise TraceError(
                f"{path}: SpotPriceHistory[{index}]: a second price {entry.SpotPrice} at "
                f"{entry.Timestamp:%Y-%m-%dT%H:%M:%SZ}, {before} before"
            )
        products.add(entry.ProductDescription)
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
        traces.append(trace_of(str(path), lines, times_s, None, [points[m] for m in moments], meta))
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


def _start(options: ImportOptions, given: Any, path: Path, field: str) -> datetime:
    if options.start_utc is not None:
        return parse_utc("--start-utc", options.start_utc)
    if given is None:
        raise TraceError(f"{path} does not say when it starts: give --start-utc 2026-01-31T12:00:00Z")
    if not isinstance(given, int | float):
        return parse_utc(f"{path}: {field}", given)
    try:
        return datetime.fromtimestamp(given, UTC)
    except (OverflowError, OSError, ValueError):
        raise TraceError(f"{path}: {field} {given} is no Unix time: give --start-utc") from None


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


_LISTS = {"aws": "aws_on_demand", "gcp": "gcp_prices"}


@dataclass(frozen=True)
class OnDemandPrices:
    """The price list that ships, and a price for what it does not have."""

    bundle: TraceBundle  # holds the list
    # USD an hour of types that the list lacks; None: they are refused
    otherwise_usd_hour: float | None = None

    def listed(self, meta: MarketMeta) -> float | None:
        """USD an hour of the trace's instance type in its region in the list; None: it is not there."""
        try:
            return self.bundle.on_demand_usd_hour(meta.provider, meta.region, meta.instance_type)
        except TraceError:
            return None

    def usd_hour(self, meta: MarketMeta) -> float:
        """What the trace's instance type costs on demand in its region: the list's price at its time 0.

        Raises:
            TraceError: if the list does not say, and nothing was given for what it lacks.
        """
        listed = self.listed(meta)
        price = self.otherwise_usd_hour if listed is None else listed
        if price is None:
            if not meta.instance_type:
                raise TraceError(
                    f"no instance type is named in {meta.zone or meta.region}, so its on-demand price is "
                    "unknown: give --instance-type, or --on-demand none for a market without on-demand offers"
                )
            raise TraceError(
                f"the price list has no on-demand price of {meta.provider} {meta.instance_type} in "
                f"{meta.region}: give it in USD an hour, e.g. --on-demand 3.06, or --on-demand none for a "
                "market without on-demand offers"
            )
        return price

    def offer(self, beside: MarketMeta) -> MarketTrace:
        """The on-demand offer of a spot trace's instance type in its region, at one price all the time.

        Raises:
            TraceError: as `usd_hour`.
        """
        price, source, licence = self.usd_hour(beside), "given as --on-demand", ""
        if self.listed(beside) is not None:
            facts = self.bundle.meta["sources"][_LISTS[beside.provider]]
            source, licence = facts["source"], facts["licence"]
        meta = MarketMeta(
            provider=beside.provider,
            region=beside.region,
            zone="",
            instance_type=beside.instance_type,
            market="on_demand",
            start_utc=beside.start_utc,
            source=source,
            licence=licence,
        )
        return MarketTrace(meta, np.zeros(1, np.int64), None, np.array([price]))


def with_on_demand(traces: Sequence[MarketTrace], prices: OnDemandPrices) -> list[MarketTrace]:
    """The traces, and an on-demand offer for each instance type and region that has none among them.

    Raises:
        TraceError: if a price is not known, or one was given that the list makes needless.
    """
    there = {trace.meta.product for trace in traces if trace.meta.market == "on_demand"}
    wanted: dict[tuple[str, str, str], MarketMeta] = {}
    for trace in traces:
        meta = trace.meta
        if meta.product not in there:
            # The offer is there from the first moment on that one of its spot zones is.
            start = min(meta.start_utc, wanted.get(meta.product, meta).start_utc)
            wanted[meta.product] = meta.model_copy(update={"start_utc": start})
    if prices.otherwise_usd_hour is not None and all(
        prices.listed(meta) is not None for meta in wanted.values()
    ):
        raise TraceError(
            f"--on-demand {prices.otherwise_usd_hour:g} is for instance types that the price list does not "
            "have, and it has all of these: leave --on-demand out"
        )
    return [*traces, *(prices.offer(meta) for meta in wanted.values())]


@dataclass(frozen=True)
class SpotPrice:
    """What spot capacity costs all the time, where a file holds its availability only."""

    amount: float  # USD an hour, or a share of the on-demand price
    is_share: bool = False  # whether it is the share

    def beside(self, meta: MarketMeta, prices: OnDemandPrices) -> float:
        """USD an hour of a trace's offer. Raises TraceError where the on-demand price is not known."""
        return self.amount * prices.usd_hour(meta) if self.is_share else self.amount


def with_spot_price(
    traces: Sequence[MarketTrace], price: SpotPrice, prices: OnDemandPrices
) -> list[MarketTrace]:
    """The traces, with `price` for those that have none.

    Raises:
        TraceError: if all have prices, or an on-demand price that a share refers to is not known.
    """
    if all(trace.price_usd_hour is not None for trace in traces):
        raise TraceError("the file holds prices: leave --price out")
    return [
        trace
        if trace.price_usd_hour is not None
        else replace(trace, price_usd_hour=np.full(len(trace.times_s), price.beside(trace.meta, prices)))
        for trace in traces
    ]


def parse_usd_hour(text: str) -> float:
    """A price. Raises ValueError unless it is a positive number."""
    value = float(text)
    if not 0.0 < value < math.inf:
        raise ValueError(f"{text} is no price")
    return value
