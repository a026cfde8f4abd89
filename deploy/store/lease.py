"""The lead of a deployment: a lock between processes, and a database row that every commit checks.

The lock tells a second process at once that there is a leader. But a lock can be lost without its holder's
doing: somebody removes its file, or a database server restarts. Then two processes could act for a moment.
The row is the guard against that: whoever gets the lock writes its name there, and from then on every
transaction of the one before fails, before anything is written.
"""

from __future__ import annotations

import os
import secrets
import socket
import time
from contextlib import suppress

from sqlalchemy import Connection, delete, insert, update

from deploy.store.database import Database, Lock
from deploy.store.errors import LeaseLostError, StoreError
from deploy.store.schema import lease


class Lease:
    """The lead of a database, from now on. Writing through this `Database` needs it until it is released.

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
