"""The bill of one instance, computed from its prices as all others are."""

from __future__ import annotations

from sqlalchemy import select

from deploy.billing import Bill, bill
from deploy.store import charging
from deploy.store.schema import instances
from deploy.store.store import Store


def bill_of(store: Store, instance_id: str, now_s: float) -> Bill:
    """Nothing if it was never launched."""
    query = select(instances).where(instances.c.instance_id == instance_id)
    with store.costs._database.snapshot() as connection:
        return sum((bill(one.usage, now_s) for one in charging.rented(connection, query)), Bill())
