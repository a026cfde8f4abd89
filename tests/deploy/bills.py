"""Bills computed from prices, besides what the store has written down."""

from __future__ import annotations

from collections import defaultdict

from sqlalchemy import select

from spotweave.deploy.billing import Bill, bill, bill_by_day
from spotweave.deploy.model.instances import InstanceState
from spotweave.deploy.store.prices import rented
from spotweave.deploy.store.schema import charges, instances
from spotweave.deploy.store.store import Store


def bill_of(store: Store, instance_id: str, now_s: float) -> Bill:
    """The bill of one instance; nothing if it was never launched."""
    this = instances.c.instance_id == instance_id
    with store.costs._database.snapshot() as connection:
        return sum((bill(one.usage, now_s) for one in rented(connection, this)), Bill())


def wrong_charges(store: Store) -> list[str]:
    """One line for each ended instance whose written charges differ from what its prices make."""
    written: defaultdict[str, dict[str, Bill]] = defaultdict(dict)
    with store.costs._database.snapshot() as connection:
        for row in connection.execute(select(charges)):
            written[row.instance_id][row.day] = Bill(row.seconds, row.cost, row.on_demand, row.disk)
        ended = instances.c.state == InstanceState.TERMINATED.value
        computed = {
            one.instance_id: {
                day.isoformat(): part for day, part in bill_by_day(one.usage, one.usage.launched_s).items()
            }
            for one in rented(connection, ended)
        }
    return [
        f"instance {one}: {sum(written[one].values(), Bill()).usd} USD are written down, its prices make "
        f"{sum(computed.get(one, {}).values(), Bill()).usd} USD"
        for one in sorted(written.keys() | computed.keys())
        if written[one] != computed.get(one, {})
    ]
