"""From the rows of instances and prices to usage and charges."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Select, delete, insert, select

from deploy.billing import PriceSegment, Usage, bill_by_day, micro_usd_hour
from deploy.model.instances import Offer
from deploy.store.schema import charges, instances, price_segments, prices


@dataclass(frozen=True)
class Rented:
    """An instance that was launched, as far as money is concerned."""

    instance_id: str
    job_id: str
    offer: Offer
    usage: Usage

    @property
    def zone(self) -> str:
        """As "PROVIDER/REGION/ZONE"; without a zone, "PROVIDER/REGION"."""
        return "/".join(part for part in (self.offer.provider, self.offer.region, self.offer.zone) if part)


def open_segments(connection: Connection, instance_id: str, offer: Offer, launched_s: float) -> None:
    """Write down the prices of an instance from its launch until now, over earlier ones.

    A launch is often heard of only later: the prices seen meanwhile are those in `prices`.
    """
    segments = {launched_s: micro_usd_hour(offer.price_usd_hour)}
    if offer.market == "spot":
        seen = select(prices).where(prices.c.offer_id == offer.offer_id)
        earlier = seen.where(prices.c.seen_s <= launched_s).order_by(prices.c.seen_s.desc()).limit(1)
        later = seen.where(prices.c.seen_s > launched_s).order_by(prices.c.seen_s)
        for row in [*connection.execute(earlier), *connection.execute(later)]:
            segments[max(row.seen_s, launched_s)] = row.price_micro_usd_hour
    connection.execute(delete(price_segments).where(price_segments.c.instance_id == instance_id))
    connection.execute(
        insert(price_segments),
        [
            {"instance_id": instance_id, "start_s": start_s, "price_micro_usd_hour": price}
            for start_s, price in segments.items()
        ],
    )


def rented(connection: Connection, query: Select[Any]) -> list[Rented]:
    """Those `instances` with what their bills are computed from; those never launched are left out."""
    launched = query.where(instances.c.launched_s.is_not(None)).subquery()
    segments: defaultdict[str, list[PriceSegment]] = defaultdict(list)
    for row in connection.execute(
        select(price_segments)
        .join(launched, launched.c.instance_id == price_segments.c.instance_id)
        .order_by(price_segments.c.start_s)
    ):
        segments[row.instance_id].append(PriceSegment(row.start_s, row.price_micro_usd_hour))
    found = []
    for row in connection.execute(select(launched)):
        offer = Offer(**row.offer)
        usage = Usage(
            launched_s=row.launched_s,
            ended_s=row.ended_s,
            by_provider=row.by_provider,
            segments=tuple(segments[row.instance_id]),
            on_demand_micro_usd_hour=micro_usd_hour(offer.on_demand_usd_hour),
            minimum_s=offer.billing_minimum_s,
            free_first_s=offer.free_first_s,
        )
        found.append(Rented(row.instance_id, row.job_id, offer, usage))
    return found


def write_charges(connection: Connection, instance_id: str) -> None:
    """Write down what an ended instance has cost on each day, over what was written before."""
    connection.execute(delete(charges).where(charges.c.instance_id == instance_id))
    rows = [
        {
            "instance_id": one.instance_id,
            "day": day.isoformat(),
            "job_id": one.job_id,
            "zone": one.zone,
            "market": one.offer.market,
            "seconds": part.seconds,
            "cost": part.cost,
            "on_demand": part.on_demand,
        }
        for one in rented(connection, select(instances).where(instances.c.instance_id == instance_id))
        for day, part in bill_by_day(one.usage, one.usage.launched_s).items()
    ]
    if rows:
        connection.execute(insert(charges), rows)
