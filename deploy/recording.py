"""What a deployment saw of its offers, as market traces that policies can be trained on (docs/traces.md).

Nobody publishes availability. What is known of it live: what the provider said in each pass (quotes), which
launches were refused for want of capacity, which ones were not, and what the provider took away.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import IntEnum
from pathlib import Path
from typing import cast

import numpy as np

from spotweave.deploy.model.instances import InstanceState
from spotweave.deploy.providers.config import Place
from spotweave.deploy.store.events import Event
from spotweave.deploy.store.prices import Quote
from spotweave.deploy.store.store import Store
from spotweave.envs.traces.format import Market, MarketMeta, MarketTrace, trace_files
from spotweave.envs.traces.storage import write_directory

MOMENT_S = 60.0
"""After an interruption an offer counts as down for so long, unless something says otherwise earlier."""
_MICRO = 1e6
_PAGE = 5_000


class RecordingError(ValueError):
    """Nothing to record."""


@dataclass
class Happenings:
    """What became of launches on one offer, in epoch seconds."""

    refused: list[float] = field(default_factory=list)  # for want of capacity
    launched: list[float] = field(default_factory=list)  # without
    interrupted: list[float] = field(default_factory=list)  # by the provider


@dataclass(frozen=True)
class Row:
    """A line of series.csv; it holds until the next."""

    time_s: int  # from the trace's start
    available: bool | None  # None in a trace of prices only
    price_micro_usd_hour: int


@dataclass(frozen=True)
class Recording:
    """One offer's trace."""

    place: Place  # of the offer
    start_s: int  # epoch seconds of `time_s` 0
    rows: Sequence[Row]  # by time, at least one


def record(store: Store, places: Mapping[str, Place], since_s: float = 0.0) -> list[Recording]:
    """Everything that the store knows of these offers, until the last moment that it knows of.

    A spot type that is not rented on demand in its region gets that price as a trace of its own: environments
    measure savings by it. What was before `since_s` is left out, and so are offers that were never seen.
    """
    with store.snapshot():
        quotes = {one: store.prices.between(one, since_s, math.inf) for one in places}
        happened = _happened(store)
        latest = store.events.latest(1)
    seen = {one: found for one, found in quotes.items() if found}
    end_s = max(
        [event.time_s for event in latest] + [found[-1].seen_s for found in seen.values()], default=0.0
    )
    made = []
    for one, found in seen.items():
        start_s = int(max(since_s, found[0].seen_s))
        if end_s >= start_s:
            rows = series(found, happened[one], start_s, end_s)
            made.append(Recording(places[one], start_s, rows))
    return made + _on_demand(seen, places, since_s, end_s)


def _happened(store: Store) -> defaultdict[str, Happenings]:
    """By offer id."""
    found: defaultdict[str, Happenings] = defaultdict(Happenings)
    for event in _events(store):
        if event.kind == "instance.refused" and event.data.get("why") == "capacity":
            found[event.data["offer"]].refused.append(event.time_s)
    for instance in store.instances.in_states(list(InstanceState)):
        of_offer = found[instance.offer.offer_id]
        if instance.launched_s is not None:
            of_offer.launched.append(instance.launched_s)
            if instance.by_provider and instance.ended_s is not None:
                of_offer.interrupted.append(instance.ended_s)
    return found


def _events(store: Store) -> Iterator[Event]:
    last = 0
    while found := store.events.after(last, _PAGE):
        yield from found
        last = found[-1].sequence


def _on_demand(
    quotes: Mapping[str, Sequence[Quote]], places: Mapping[str, Place], since_s: float, end_s: float
) -> list[Recording]:
    """On-demand prices of the spot types that have no on-demand offer in their region."""
    listed = {_type(places[one]) for one in quotes if places[one].market == "on_demand"}
    made = []
    for one, found in quotes.items():
        place = places[one]
        start_s = int(max(since_s, found[0].seen_s))
        if _type(place) in listed or end_s < start_s:
            continue
        listed.add(_type(place))
        rows = [
            Row(max(0, int(quote.seen_s) - start_s), None, quote.on_demand_micro_usd_hour) for quote in found
        ]
        reference = Place(place.provider, place.region, "", place.instance_type, "on_demand")
        made.append(Recording(reference, start_s, _changes(rows, int(end_s) - start_s)))
    return made


def _folder(place: Place) -> str:
    return place.offer_id.replace("/", "_")


def _type(place: Place) -> tuple[str, str, str]:
    return place.provider, place.region, place.instance_type


class _Mark(IntEnum):
    """What may change an offer's availability; of one moment, in this order.

    A pass asks for offers before it launches, and what was refused after a launch was refused last.
    """

    QUOTE = 0
    LAUNCHED = 1
    INTERRUPTED = 2
    REFUSED = 3
    OVER = 4  # the moment after an interruption


def series(quotes: Sequence[Quote], happened: Happenings, start_s: int, end_s: float) -> list[Row]:
    """One offer's availability and price.

    It is available where its latest quote says so, and not
    - from a refused launch until the next one that succeeds, or the next quote that says available;
    - from an interruption until the same, but for `MOMENT_S` at most.
    A launch that succeeds makes it available whatever the quote before it says.

    `quotes` are at least one, by time; rows run from `start_s` to `end_s`, epoch seconds.

    Returns:
        A row for each change, and one at the end. What changed within one second is one row, the last.
    """
    marks: list[tuple[float, _Mark, Quote | None]] = [(quote.seen_s, _Mark.QUOTE, quote) for quote in quotes]
    marks += [(time_s, _Mark.LAUNCHED, None) for time_s in happened.launched]
    marks += [(time_s, _Mark.REFUSED, None) for time_s in happened.refused]
    for time_s in happened.interrupted:
        marks += [(time_s, _Mark.INTERRUPTED, None), (time_s + MOMENT_S, _Mark.OVER, None)]
    said, down_until_s = quotes[0].available, -math.inf
    price = quotes[0].price_micro_usd_hour
    rows = []
    for time_s, mark, quote in sorted(marks, key=lambda one: one[:2]):
        if time_s > end_s:
            break
        if quote is not None:
            said, price = quote.available, quote.price_micro_usd_hour
        if mark is _Mark.LAUNCHED:
            said = True
        if mark is _Mark.LAUNCHED or (quote is not None and said):
            down_until_s = -math.inf
        elif mark is _Mark.REFUSED:
            down_until_s = math.inf
        elif mark is _Mark.INTERRUPTED:
            down_until_s = max(down_until_s, time_s + MOMENT_S)
        rows.append(Row(max(0, int(time_s) - start_s), said and time_s >= down_until_s, price))
    return _changes(rows, int(end_s) - start_s)


def _changes(rows: Sequence[Row], end_s: int) -> list[Row]:
    """Keep the last row of each second, drop repetitions, and add the state at the end."""
    kept: list[Row] = []
    for row in {row.time_s: row for row in rows}.values():
        if not kept or (row.available, row.price_micro_usd_hour) != (
            kept[-1].available,
            kept[-1].price_micro_usd_hour,
        ):
            kept.append(row)
    if kept[-1].time_s < end_s:
        kept.append(Row(end_s, kept[-1].available, kept[-1].price_micro_usd_hour))
    return kept


def write(recordings: Sequence[Recording], out: Path, source: str) -> None:
    """Write a folder of traces, whole or not at all.

    `source` says in trace.json where the recordings, at least one, are from. Raises TraceError if it exists
    and is not an empty folder, or cannot be written.
    """
    files: dict[str, str] = {}
    for one in recordings:
        made = trace_files(_trace(one, source))
        files |= {f"{_folder(one.place)}/{name}": text for name, text in made.items()}
    write_directory(out, files)


def _trace(one: Recording, source: str) -> MarketTrace:
    place, rows = one.place, one.rows
    available = [bool(row.available) for row in rows] if rows[0].available is not None else None
    meta = MarketMeta(
        provider=place.provider,
        region=place.region,
        zone=place.zone,
        instance_type=place.instance_type,
        market=cast(Market, place.market),
        start_utc=datetime.fromtimestamp(one.start_s, UTC),
        source=source,
        licence="",
    )
    return MarketTrace(
        meta,
        np.array([row.time_s for row in rows], np.int64),
        None if available is None else np.array(available, np.bool_),
        np.array([row.price_micro_usd_hour for row in rows], np.float64) / _MICRO,
    )
