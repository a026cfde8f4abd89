"""The durable store of one deployment: a face for each noun, and transactions over all of them."""

from __future__ import annotations

import os
import secrets
import socket
import time
from contextlib import AbstractContextManager, suppress
from pathlib import Path

from sqlalchemy import Connection, delete, insert, select, update

from spotweave.deploy.security.keys import DeploymentKey
from spotweave.deploy.store import migrate
from spotweave.deploy.store.costs import Costs, Egress
from spotweave.deploy.store.database import Database, Lock
from spotweave.deploy.store.errors import LeaseLostError, StoreDamagedError, StoreError
from spotweave.deploy.store.events import Events
from spotweave.deploy.store.gantt import Gantt
from spotweave.deploy.store.instances import Instances
from spotweave.deploy.store.intents import Decisions, Intents
from spotweave.deploy.store.jobs import Folders, Jobs, prune
from spotweave.deploy.store.locks import FileLock
from spotweave.deploy.store.prices import Prices
from spotweave.deploy.store.schema import deployment, lease
from spotweave.deploy.store.tasks import Tasks
from spotweave.deploy.store.tokens import Tokens


class Store:
    """What must survive. Safe to use from several threads and processes; made by `Store.open`.

    Reading methods see what was committed, each of one moment; `snapshot` joins several to one moment.
    Writing methods need `transaction`, which says what belongs together. Neither may hold an `await`.

        with store.transaction():
            instance = store.instances.request(...)
            store.intents.add(IntentKind.LAUNCH, instance.instance_id, {}, now_s)
            store.events.add("instance.requested", now_s, instance_id=instance.instance_id)
        ...launch...
        with store.transaction():
            store.intents.done(intent.intent_id, now_s)

    Attributes:
        jobs, tasks, instances, intents, decisions, events, prices, egress, costs, gantt, folders, tokens: the
            nouns.
        key: seals secrets.
        deployment_id: made with the database; tags everything that this deployment rents.
    """

    def __init__(self, database: Database, key: DeploymentKey, deployment_id: str) -> None:
        self._database, self.key, self.deployment_id = database, key, deployment_id
        self.jobs = Jobs(database)
        self.tasks = Tasks(database)
        self.instances = Instances(database, key)
        self.intents = Intents(database)
        self.decisions = Decisions(database)
        self.events = Events(database)
        self.prices = Prices(database)
        self.egress = Egress(database)
        self.costs = Costs(database)
        self.gantt = Gantt(database)
        self.folders = Folders(database)
        self.tokens = Tokens(database)

    @classmethod
    def open(cls, url: str, now_s: float, *, key_file: Path | None = None, durable: bool = True) -> Store:
        """Open a database; make one where there is none, upgrade one of an earlier version.

        Args:
            url: "sqlite:///PATH" (WAL, synced at each commit) or "postgresql://USER@HOST/NAME".
            now_s: epoch seconds.
            key_file: of the deployment; made with a new database. Default for SQLite: PATH.key.
            durable: see `Database`.

        Raises:
            StoreError: if it cannot be opened. StoreDamagedError for a database that is corrupt, another
                program's, or newer than this program; nothing was changed then.
            SecurityError: if the key file is missing or others may read it.
        """
        database = Database(url, durable=durable)
        try:
            if database.path is None:
                return cls._prepared(database, key_file, now_s)
            # Not the database's own lock: making the file and turning WAL on cannot be in a transaction.
            opening = FileLock(database.path.with_name(database.path.name + ".lock"))
            opening.acquire(wait=True)
            try:
                database.prepare_file()
                return cls._prepared(
                    database, key_file or database.path.with_name(f"{database.path.name}.key"), now_s
                )
            finally:
                opening.release()
        except BaseException:
            database.close()
            raise

    @classmethod
    def _prepared(cls, database: Database, key_file: Path | None, now_s: float) -> Store:
        if key_file is None:
            raise StoreError(
                f"the database {database.where} was given without a key file: name one on this machine "
                "(it is made with a new database)"
            )
        with database.transaction() as connection:
            migrate.upgrade(connection, database.where)
            row = connection.execute(select(deployment)).one_or_none()
            key = DeploymentKey.load(key_file, create=row is None)
            if row is None:
                deployment_id = f"sw-{secrets.token_hex(6)}"
                connection.execute(
                    insert(deployment).values(
                        row=1,
                        deployment_id=deployment_id,
                        schema_version=migrate.newest_version(),
                        key_mark=key.mark,
                        created_s=now_s,
                    )
                )
                return cls(database, key, deployment_id)
            if row.key_mark != key.mark:
                raise StoreDamagedError(
                    f"the key file {key_file} does not belong to the database {database.where}: "
                    "restore the one that was backed up with it"
                )
            if row.schema_version != migrate.newest_version():
                connection.execute(update(deployment).values(schema_version=migrate.newest_version()))
            return cls(database, key, row.deployment_id)

    def transaction(self) -> AbstractContextManager[object]:
        """What is written in it is on the disk when it ends, or not at all. See `Database.transaction`."""
        return self._database.transaction()

    def snapshot(self) -> AbstractContextManager[object]:
        """All that is read in it is of one moment. See `Database.snapshot`."""
        return self._database.snapshot()

    def remembering(self) -> AbstractContextManager[object]:
        """Tables that this thread reads again and again in it are read once. See `Recall`."""
        return self._database.recall.kept()

    def lead(self) -> Lease:
        """Become the one scheduler that acts for this deployment, until released or until this process ends.

        Raises StoreError if another scheduler is.
        """
        lock = self._database.lead()
        if lock is None:
            raise StoreError(
                f"another scheduler works with the database {self._database.where}: stop it first, or give "
                "this one a database of its own"
            )
        try:
            return Lease(self._database, lock)
        except BaseException:
            lock.release()
            raise

    def check(self) -> None:
        """Whether the database answers. Raises StoreError (for /readyz)."""
        with self._database.read() as connection:
            connection.execute(select(deployment.c.row)).one()

    def prune(self, now_s: float) -> dict[str, int]:
        """Remove rows that are older than what is kept. Returns how many of each table; see `prune`."""
        return prune(self._database, now_s)

    def close(self) -> None:
        """Let go of the connections."""
        self._database.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Lease:
    """The lead of a database, from now on. Writing through this `Database` needs it until it is released.

    Its lock tells a second process at once that there is a leader. But a lock can be lost without its
    holder's doing: somebody removes its file, or a database server restarts. Then two processes could act for
    a moment. A row is the guard against that: whoever gets the lock writes its name there, and from then on
    every transaction of the one before fails, before anything is written.

    Raises StoreError if the row cannot be written.
    """

    def __init__(self, database: Database, lock: Lock) -> None:
        self._database, self._lock = database, lock
        self._lost = False
        self.holder = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(8)}"
        now_s = time.time()
        with database.transaction() as connection:
            connection.execute(delete(lease))
            connection.execute(
                insert(lease).values(row=1, holder=self.holder, taken_s=now_s, renewed_s=now_s)
            )
        database.fence = self._require

    def held(self) -> bool:
        """Whether it still is, renewed. Once lost it never is again.

        Raises StoreError if the database cannot tell now; nothing may be done before it can.
        """
        if self._lost or not self._lock.held():
            self._lost = True
            return False
        try:
            with self._database.transaction() as connection:
                connection.execute(update(lease).values(renewed_s=time.time()))
        except LeaseLostError:
            return False
        return True

    def release(self) -> None:
        """Let it go; the next one need not wait."""
        # One that is lost is another's by now.
        with suppress(StoreError), self._database.transaction() as connection:
            connection.execute(delete(lease))
        self._database.fence = None
        self._lock.release()

    def _require(self, connection: Connection) -> None:
        holder = connection.exec_driver_sql("SELECT holder FROM lease").scalar()
        if self._lost or holder != self.holder:
            raise LeaseLostError(
                f"another process leads {self._database.where} now: this one must end, and nothing was "
                "written; ask the other one"
            )
