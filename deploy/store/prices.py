"""Prices and availability of offers as they were seen, one row for each change."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row, delete, insert, select

from deploy.billing import micro_usd_hour
from deploy.model.instances import InstanceState, Offer
from deploy.store.database import Database
from deploy.store.schema import instances, price_segments, prices


@dataclass(frozen=True)
class Quote:
    """An offer's price and availability, from `seen_s` until the next quote.

    Attributes:
        offer_id: the offer.
        seen_s: epoch seconds.
        price_micro_usd_hour: of one instance.
        on_demand_micro_usd_hour: of the same type on demand.
        available: whether a launch was believed possible.
    """

    offer_id: str
    seen_s: float
    price_micro_usd_hour: int
    on_demand_micro_usd_hour: int
    available: bool


def _quote(row: Row[Any]) -> Quote:
    return Quote(**row._mapping)


class Prices:
    """The prices of a store. Writing needs a transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def record(self, offers: Iterable[Offer], now_s: float) -> int:
        """Keep what changed, and let running spot instances cost their offer's new price from now on.

        Returns:
            How many offers had changed.

        Raises:
            ValueError: if a price is negative or not a number.
        """
        changed = 0
        for offer in offers:
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
            if before is not None and before == Quote(**{**vars(quote), "seen_s": before.seen_s}):
                continue
            changed += 1
            connection = self._database.writing
            same = (prices.c.offer_id == quote.offer_id) & (prices.c.seen_s == seen_s)
            connection.execute(delete(prices).where(same))
            connection.execute(insert(prices).values(**vars(quote)))
            price_changed = before is None or before.price_micro_usd_hour != quote.price_micro_usd_hour
            if offer.market == "spot" and price_changed:
                self._reprice(quote)
        return changed

    def at(self, offer_id: str, moment_s: float | None = None) -> Quote | None:
        """The quote in force at a moment (None: the latest); None if none had been seen."""
        query = select(prices).where(prices.c.offer_id == offer_id).order_by(prices.c.seen_s.desc()).limit(1)
        if moment_s is not None:
            query = query.where(prices.c.seen_s <= moment_s)
        with self._database.read() as connection:
            row = connection.execute(query).one_or_none()
        return None if row is None else _quote(row)

    def between(self, offer_id: str, start_s: float, end_s: float) -> Sequence[Quote]:
        """Quotes seen in [start_s, end_s), after the one in force at the start (if one is kept), by time."""
        query = (
            select(prices)
            .where(prices.c.offer_id == offer_id, prices.c.seen_s > start_s, prices.c.seen_s < end_s)
            .order_by(prices.c.seen_s)
        )
        with self._database.snapshot() as connection:
            first = self.at(offer_id, start_s)
            later = [_quote(row) for row in connection.execute(query)]
        return later if first is None else [first, *later]

    def _reprice(self, quote: Quote) -> None:
        connection = self._database.writing
        running = select(instances.c.instance_id, instances.c.launched_s).where(
            instances.c.offer_id == quote.offer_id,
            instances.c.state != InstanceState.TERMINATED.value,
            instances.c.launched_s.is_not(None),
        )
        for instance_id, launched_s in connection.execute(running).all():
            start_s = max(quote.seen_s, launched_s)
            same = (price_segments.c.instance_id == instance_id) & (price_segments.c.start_s == start_s)
            connection.execute(delete(price_segments).where(same))
            connection.execute(
                insert(price_segments).values(
                    instance_id=instance_id,
                    start_s=start_s,
                    price_micro_usd_hour=quote.price_micro_usd_hour,
                )
            )
