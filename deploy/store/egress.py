"""Charges for data that were moved to where a task started."""

from __future__ import annotations

from datetime import UTC, datetime

from sqlalchemy import insert

from deploy.model.jobs import TaskKey
from deploy.store.charging import zone_of
from deploy.store.database import Database
from deploy.store.instances import Instance
from deploy.store.schema import egress


class Egress:
    """The moves of a store. Writing needs a transaction; `Costs` reads them."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, key: TaskKey, attempt: int, instance: Instance, charges: int, now_s: float) -> None:
        """Charge a task for the move of its data to an attempt's start.

        Args:
            key: the task.
            attempt: which has no such charge yet.
            instance: where it starts; of several, any.
            charges: see `deploy.billing`.
            now_s: epoch seconds.
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
