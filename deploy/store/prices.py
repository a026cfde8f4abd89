"""Prices and availability of offers, one row for each change, and what instances are charged by them."""

from __future__ import annotations

import json
import math
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from sqlalchemy import ColumnElement, Connection, Text, bindparam, cast, delete, insert, select

from spotweave.deploy.billing import PriceSegment, Stop, Usage, bill_by_day, micro_usd_hour, micro_usd_month
from spotweave.deploy.model.instances import Offer
from spotweave.deploy.store.database import Database, Noun
from spotweave.deploy.store.schema import charges, instances, price_segments, prices

_MINIMUM_MOST_S = 3600.0  # no provider bills more for a start
_BILLED = (
    *(
        instances.c[name]
        for name in ("instance_id", "job_id", "launched_s", "ended_s", "by_provider", "stops")
    ),
    cast(instances.c.offer, Text).label("terms"),
)


@dataclass(frozen=True)
class Rented:
    """An instance that was launched, as far as money is concerned."""

    instance_id: str
    job_id: str
    offer: Offer
    usage: Usage


def zone_of(offer: Offer) -> str:
    """As "PROVIDER/REGION/ZONE"; without a zone, "PROVIDER/REGION"."""
    return "/".join(part for part in (offer.provider, offer.region, offer.zone) if part)


def open_segments(connection: Connection, instance_id: str, offer: Offer, launched_s: float) -> None:
    """Write down the prices of an instance from its launch until now, over earlier ones.

    A launch is often heard of only later: the prices seen meanwhile are those in `prices`.
    """
    segments = {launched_s: micro_usd_hour(offer.price_usd_hour)}
    if offer.market == "spot":
        segments |= _seen(connection, offer.offer_id, launched_s)
    connection.execute(delete(price_segments).where(price_segments.c.instance_id == instance_id))
    _insert(connection, instance_id, segments)


def reprice(connection: Connection, offer_id: str, from_s: float) -> None:
    """Prices of a spot offer became known, or were corrected, from a moment on: charge that time again."""
    concerned = select(instances.c.instance_id, instances.c.launched_s, instances.c.ended_s).where(
        instances.c.offer_id == offer_id,
        instances.c.launched_s.is_not(None),
        # What ended earlier may be billed beyond its end, by its minimum.
        instances.c.ended_s.is_(None) | (instances.c.ended_s > from_s - _MINIMUM_MOST_S),
    )
    for instance_id, launched_s, ended_s in connection.execute(concerned).all():
        start_s = max(from_s, launched_s)
        later = (price_segments.c.instance_id == instance_id) & (price_segments.c.start_s >= start_s)
        connection.execute(delete(price_segments).where(later))
        _insert(connection, instance_id, _seen(connection, offer_id, start_s))
        if ended_s is not None:
            write_charges(connection, instance_id)


def _seen(connection: Connection, offer_id: str, start_s: float) -> dict[float, int]:
    """Prices of an offer by their start: what is known to be in force at a moment, and all later ones."""
    seen = select(prices).where(prices.c.offer_id == offer_id)
    earlier = seen.where(prices.c.seen_s <= start_s).order_by(prices.c.seen_s.desc()).limit(1)
    later = seen.where(prices.c.seen_s > start_s).order_by(prices.c.seen_s)
    rows = [*connection.execute(earlier), *connection.execute(later)]
    return {max(row.seen_s, start_s): row.price_micro_usd_hour for row in rows}


def _insert(connection: Connection, instance_id: str, segments: Mapping[float, int]) -> None:
    rows = [
        {"instance_id": instance_id, "start_s": start_s, "price_micro_usd_hour": price}
        for start_s, price in segments.items()
    ]
    connection.execute(insert(price_segments), rows)


@lru_cache(maxsize=1_000)
def _terms(text: str) -> tuple[Offer, int, int]:
    """An offer, and what it costs on demand and for its disk; thousands of instances have a few of them."""
    offer = Offer(**json.loads(text))
    return offer, micro_usd_hour(offer.on_demand_usd_hour), micro_usd_month(offer.disk_usd_month)


def rented(connection: Connection, *which: ColumnElement[bool]) -> list[Rented]:
    """Matching `instances` with what their bills are computed from, without those never launched."""
    launched = select(*_BILLED).where(instances.c.launched_s.is_not(None), *which).subquery()
    segments: defaultdict[str, list[PriceSegment]] = defaultdict(list)
    for row in connection.execute(
        select(price_segments)
        .join(launched, launched.c.instance_id == price_segments.c.instance_id)
        .order_by(price_segments.c.start_s)
    ):
        segments[row.instance_id].append(PriceSegment(row.start_s, row.price_micro_usd_hour))
    found = []
    for row in connection.execute(select(launched)):
        offer, on_demand, disk = _terms(row.terms)
        usage = Usage(
            launched_s=row.launched_s,
            ended_s=row.ended_s,
            by_provider=row.by_provider,
            segments=tuple(segments[row.instance_id]),
            on_demand_micro_usd_hour=on_demand,
            minimum_s=offer.billing_minimum_s,
            free_first_s=offer.free_first_s,
            disk_micro_usd_month=disk,
            stops=tuple(Stop(*stop) for stop in row.stops),
        )
        found.append(Rented(row.instance_id, row.job_id, offer, usage))
    return found


def write_charges(connection: Connection, instance_id: str) -> None:
    """Write down what an ended instance has cost on each day, over what was written before."""
    forget_charges(connection, instance_id)
    rows = [
        {
            "instance_id": one.instance_id,
            "day": day.isoformat(),
            "job_id": one.job_id,
            "zone": zone_of(one.offer),
            "market": one.offer.market,
            "seconds": part.seconds,
            "cost": part.cost,
            "on_demand": part.on_demand,
            "disk": part.disk,
        }
        for one in rented(connection, instances.c.instance_id == instance_id)
        for day, part in bill_by_day(one.usage, one.usage.launched_s).items()
    ]
    if rows:
        connection.execute(insert(charges), rows)


def forget_charges(connection: Connection, instance_id: str) -> None:
    """Undo the end of an instance: its cost is computed from its prices again."""
    connection.execute(delete(charges).where(charges.c.instance_id == instance_id))


@dataclass(frozen=True)
class Quote:
    """An offer's price and availability, from `seen_s` until the next quote."""

    offer_id: str
    seen_s: float  # epoch seconds: when it was seen, or when its provider says that the price changed
    price_micro_usd_hour: int
    on_demand_micro_usd_hour: int  # of the same type on demand
    available: bool  # whether a launch was believed possible


# Made once: it is asked for each offer in each pass, and making it takes longer than answering it.
_LATEST = (
    select(prices).where(prices.c.offer_id == bindparam("offer")).order_by(prices.c.seen_s.desc()).limit(1)
)


class Prices(Noun):
    """The prices of a store. Writing needs a transaction."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._dated: dict[str, tuple[tuple[float, float], ...]] = {}
        """By offer: the dated prices that are in the store."""

    def record(self, offers: Iterable[Offer], now_s: float) -> int:
        """Keep what changed, and let running spot instances cost their offer's new prices from then on.

        A price holds from when its provider dates it, or from now where it does not. Returns how many offers
        had changed. Raises ValueError if a price is negative or not a number.
        """
        changed = 0
        for offer in offers:
            corrected = self._correct(offer)
            before = self.at(offer.offer_id)
            # A clock that was set back must not put a new price before an older one.
            seen_s = now_s if before is None else max(now_s, before.seen_s)
            quote = Quote(
                offer.offer_id,
                seen_s,
                micro_usd_hour(offer.price_usd_hour),
                micro_usd_hour(offer.on_demand_usd_hour),
                offer.available,
            )
            if before is not None and before == replace(quote, seen_s=before.seen_s):
                changed += corrected
                continue
            changed += 1
            self._put(quote)
            price_changed = before is None or before.price_micro_usd_hour != quote.price_micro_usd_hour
            if offer.market == "spot" and price_changed:
                reprice(self._database.writing, offer.offer_id, seen_s)
        return changed

    def _correct(self, offer: Offer) -> bool:
        """Bring the prices kept of an offer to what its provider says that they were. True if any differed.

        Only from the first quote on: before it nothing was rented.
        """
        steps = offer.price_steps
        if not steps or self._dated.get(offer.offer_id) == steps:
            return False
        self._dated[offer.offer_id] = steps
        kept = list(self.between(offer.offer_id, steps[0][0], math.inf))
        wrong_s = math.inf
        for k, (step_s, usd_hour) in enumerate(steps):
            end_s = steps[k + 1][0] if k + 1 < len(steps) else math.inf
            price = micro_usd_hour(usd_hour)
            n_before = bisect_right(kept, step_s, key=lambda quote: quote.seen_s)
            if n_before and kept[n_before - 1].price_micro_usd_hour != price:
                # How it was with capacity at that moment, nobody says.
                kept.insert(n_before, replace(kept[n_before - 1], seen_s=step_s))
            first = bisect_left(kept, step_s, key=lambda quote: quote.seen_s)
            last = bisect_left(kept, end_s, key=lambda quote: quote.seen_s)
            for n, quote in enumerate(kept[first:last], first):
                if quote.price_micro_usd_hour != price:
                    kept[n] = replace(quote, price_micro_usd_hour=price)
                    self._put(kept[n])
                    wrong_s = min(wrong_s, quote.seen_s)
        if math.isinf(wrong_s):
            return False
        reprice(self._database.writing, offer.offer_id, wrong_s)
        return True

    def _put(self, quote: Quote) -> None:
        connection = self._database.writing
        same = (prices.c.offer_id == quote.offer_id) & (prices.c.seen_s == quote.seen_s)
        connection.execute(delete(prices).where(same))
        connection.execute(insert(prices).values(**vars(quote)))

    def at(self, offer_id: str, moment_s: float | None = None) -> Quote | None:
        """The quote in force at a moment (None: the latest); None if none had been seen."""
        query = _LATEST if moment_s is None else _LATEST.where(prices.c.seen_s <= moment_s)
        row = self._database.read_one(query, {"offer": offer_id})
        return None if row is None else Quote(**row._mapping)

    def between(self, offer_id: str, start_s: float, end_s: float) -> Sequence[Quote]:
        """Quotes seen in [start_s, end_s), after the one in force at the start (if one is kept), by time."""
        query = (
            select(prices)
            .where(prices.c.offer_id == offer_id, prices.c.seen_s > start_s, prices.c.seen_s < end_s)
            .order_by(prices.c.seen_s)
        )
        with self._database.snapshot() as connection:
            first = self.at(offer_id, start_s)
            later = [Quote(**row._mapping) for row in connection.execute(query)]
        return later if first is None else [first, *later]
