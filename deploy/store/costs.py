"""What everything has cost: what was charged for ended instances and moves, what runs up to now."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from enum import StrEnum

from sqlalchemy import func, insert, literal, select, union_all

from spotweave.deploy.billing import Bill, bill, bill_by_day
from spotweave.deploy.model.jobs import TaskKey
from spotweave.deploy.store.database import Noun
from spotweave.deploy.store.instances import LIVE, Instance
from spotweave.deploy.store.prices import rented, zone_of
from spotweave.deploy.store.schema import charges, egress, instances, jobs, portions

_KEYS = ("instance_id", "job_id", "day", "zone", "market")
_NOTHING = literal(0)
_PAID = union_all(
    select(
        *(charges.c[name] for name in (*_KEYS, "seconds", "cost", "on_demand", "disk")),
        _NOTHING.label("egress"),
    ),
    select(
        *(egress.c[name] for name in _KEYS), _NOTHING, egress.c.cost, egress.c.cost, _NOTHING, egress.c.cost
    ),
).subquery("paid")
"""What is written down: of ended instances, and of data that were moved."""
_SUMS = tuple(func.sum(_PAID.c[name]) for name in ("seconds", "cost", "on_demand", "disk", "egress"))
"""Sums of what was paid, in the order of a bill."""
_RUNNING = instances.c.state.in_(LIVE)


class Grouping(StrEnum):
    """Grouping of costs."""

    JOB = "job"
    OFFER = "offer"
    ZONE = "zone"  # "provider/region/zone"; without a zone, "provider/region"
    MARKET = "market"
    DAY = "day"  # UTC, as "2026-03-01"


class Costs(Noun):
    """The costs of a store: all of it reading, and of one moment."""

    def total(self, now_s: float) -> Bill:
        """Everything together."""
        return sum(self.by(Grouping.MARKET, now_s).values(), Bill())

    def of_job(self, job_id: str, now_s: float) -> Bill:
        """One job: its instances, and what moving its data cost."""
        return self.of_jobs([job_id], now_s)[job_id]

    def of_jobs(self, job_ids: Collection[str], now_s: float) -> Mapping[str, Bill]:
        """The same of each of these jobs."""
        bills = dict.fromkeys(job_ids, Bill())
        with self._database.snapshot() as connection:
            for some in portions(bills):
                ended = (
                    select(_PAID.c.job_id, *_SUMS).where(_PAID.c.job_id.in_(some)).group_by(_PAID.c.job_id)
                )
                for job_id, *amounts in connection.execute(ended):
                    # PostgreSQL adds 64-bit integers up to a NUMERIC.
                    bills[job_id] += Bill(*(int(amount) for amount in amounts))
                for one in rented(connection, _RUNNING, instances.c.job_id.in_(some)):
                    bills[one.job_id] += bill(one.usage, now_s)
        return bills

    def of_tasks(self, job_id: str, now_s: float) -> Mapping[str, Bill]:
        """The same of each task of a job, by its name; nothing for tasks that never had an instance."""
        bills: defaultdict[str, Bill] = defaultdict(Bill)
        ended = (
            select(instances.c.task, *_SUMS)
            .join(_PAID, _PAID.c.instance_id == instances.c.instance_id)
            .where(instances.c.job_id == job_id, _PAID.c.job_id == job_id)
            .group_by(instances.c.task)
        )
        names = select(instances.c.instance_id, instances.c.task).where(instances.c.job_id == job_id)
        with self._database.snapshot() as connection:
            for task, *amounts in connection.execute(ended):
                bills[task] += Bill(*(int(amount) for amount in amounts))
            task_of = dict(connection.execute(names).tuples().all())
            for one in rented(connection, _RUNNING, instances.c.job_id == job_id):
                bills[task_of[one.instance_id]] += bill(one.usage, now_s)
        return bills

    def by(self, grouping: Grouping, now_s: float) -> dict[str, Bill]:
        """Everything, listed by job, offer, zone, market or day, in the order of its keys."""
        if grouping is Grouping.OFFER:
            ended = select(instances.c.offer_id, *_SUMS)
            ended = ended.join_from(_PAID, instances, _PAID.c.instance_id == instances.c.instance_id)
            ended = ended.group_by(instances.c.offer_id)
        else:
            column = _PAID.c["job_id" if grouping is Grouping.JOB else grouping.value]
            ended = select(column, *_SUMS).group_by(column)
        groups: defaultdict[str, Bill] = defaultdict(Bill)
        with self._database.snapshot() as connection:
            for name, *amounts in connection.execute(ended):
                groups[name] = Bill(*(int(amount) for amount in amounts))
            running = rented(connection, _RUNNING)
        for one in running:
            for day, part in bill_by_day(one.usage, now_s).items():
                names = {
                    Grouping.JOB: one.job_id,
                    Grouping.OFFER: one.offer.offer_id,
                    Grouping.ZONE: zone_of(one.offer),
                    Grouping.MARKET: one.offer.market,
                    Grouping.DAY: day.isoformat(),
                }
                groups[names[grouping]] += part
        return dict(sorted(groups.items()))

    def latest(self, grouping: Grouping, limit: int, now_s: float) -> Mapping[str, Bill]:
        """At most `limit` groups: the jobs that were submitted last, the last days, any of the others."""
        if grouping is not Grouping.JOB:
            groups = self.by(grouping, now_s)
            return {name: groups[name] for name in list(groups)[-limit:]}
        has_rented = select(instances.c.job_id).where(
            instances.c.job_id == jobs.c.job_id, instances.c.launched_s.is_not(None)
        )
        order = (jobs.c.submitted_s.desc(), jobs.c.job_id.desc())
        with self._database.snapshot() as connection:
            query = select(jobs.c.job_id).where(has_rented.exists()).order_by(*order).limit(limit)
            bills = self.of_jobs(connection.scalars(query).all(), now_s)
        return dict(sorted(bills.items()))


# Charges for data that were moved to where a task started.


class Egress(Noun):
    """The moves of a store. Writing needs a transaction; `Costs` reads them."""

    def add(self, key: TaskKey, attempt: int, instance: Instance, charges: int, now_s: float) -> None:
        """Charge a task for the move of its data to an attempt's start.

        The attempt has no such charge yet; charges see `deploy.billing`.
        """
        self._database.writing.execute(
            insert(egress).values(
                job_id=key.job_id,
                task=key.task,
                attempt=attempt,
                instance_id=instance.instance_id,
                day=datetime.fromtimestamp(now_s, UTC).date().isoformat(),
                zone=zone_of(instance.offer),
                market=instance.offer.market,
                cost=charges,
            )
        )
