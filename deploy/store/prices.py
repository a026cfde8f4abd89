"""Prices and availability of offers as they were seen, one row for each change."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Row, bindparam, delete, insert, select

from deploy.billing import micro_usd_hour
from deploy.model.instances import Offer
from deploy.store import charging
from deploy.store.database import Database
from deploy.store.schema import prices


@dataclass(frozen=True)
class Quote:
    """An offer's price and availability, from `seen_s` until the next quote.

    Attributes:
        offer_id: the offer.
        seen_s: epoch seconds: when it was seen, or when its provider says that the price changed.
        price_micro_usd_hour: of one instance.
        on_demand_micro_usd_hour: of the same type on demand.
        available: whether a launch was believed possible.
    """

    offer_id: str
    seen_s: float
    price_micro_usd_hour: int
    on_demand_micro_usd_hour: int
    available: bool


# Made once: it is asked for each offer in each pass, and making it takes longer than answering it.
_LATEST = (
    select(prices).where(prices.c.offer_id == bindparam("offer")).order_by(prices.c.seen_s.desc()).limit(1)
)


def _quote(row: Row[Any]) -> Quote:
    return Quote(**row._mapping)


class Prices:
    """The prices of a store. Writing needs a transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._dated: dict[str, tuple[tuple[float, float], ...]] = {}
        """By offer: the dated prices that are in the store."""

    def record(self, offers: Iterable[Offer], now_s: float) -> int:
        """Keep what changed, and let running spot instances cost their offer's new prices from then on.

        A price holds from when its provider dates it, or from now where it does not.

        Returns:
            How many offers had changed.

        Raises:
            ValueError: if a price is negative or not a number.
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
                charging.reprice(self._database.writing, offer.offer_id, seen_s)
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
        charging.reprice(self._database.writing, offer.offer_id, wrong_s)
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
