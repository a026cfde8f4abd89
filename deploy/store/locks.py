"""Locks between processes that end with their holder, however it ends."""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path

from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from spotweave.deploy.store.errors import StoreError

_SESSION = text("SELECT pg_backend_pid()")


class FileLock:
    """An exclusive lock on a file of its own; the kernel lets it go when the process dies.

    It is a lock on the file that has the name: whoever removes or replaces the file ends it, as the next one
    would lock another file. `filelock` cannot tell that its file was replaced.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._handle: int | None = None

    def acquire(self, *, wait: bool) -> bool:
        """Take it; without `wait`, False if another process (or another FileLock of this one) holds it.

        Raises StoreError if the file cannot be made.
        """
        while True:
            try:
                handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            except OSError as error:
                raise StoreError(
                    f"cannot lock {self._path}: {error.strerror}. The store needs a directory it may write to"
                ) from error
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            except BlockingIOError:
                os.close(handle)
                return False
            except BaseException:
                os.close(handle)
                raise
            if self._has_the_name(handle):
                self._handle = handle
                return True
            # Removed or replaced since it was opened: others lock the file that is there now.
            os.close(handle)

    def held(self) -> bool:
        """Whether it is held: this process locked the file, and the file still has its name."""
        return self._handle is not None and self._has_the_name(self._handle)

    def _has_the_name(self, handle: int) -> bool:
        try:
            there, ours = os.stat(self._path), os.fstat(handle)
        except OSError:
            return False
        return os.path.samestat(there, ours)

    def release(self) -> None:
        """Let it go. The file stays: removing it would let two processes lock two files of one name."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


class SessionLock:
    """An advisory lock of a PostgreSQL session; the server lets it go when the connection ends."""

    def __init__(self, connection: Connection, number: int) -> None:
        self._connection, self._number = connection, number
        self._session: int | None = None
        """Process id of the server's session, while it holds the lock."""

    def acquire(self) -> bool:
        """Take it; False if another session holds it. Then the connection is closed."""
        taken = self._connection.scalar(text("SELECT pg_try_advisory_lock(:n)"), {"n": self._number})
        if not taken:
            self._connection.close()
            return False
        self._session = self._connection.scalar(_SESSION)
        return True

    def held(self) -> bool:
        """Whether the session still lives; if not, someone else may hold the lock by now."""
        try:
            # After an error the connection is made again by itself: another session, without the lock.
            if self._session is None or self._connection.scalar(_SESSION) != self._session:
                self._session = None
        except DBAPIError:
            self._session = None
        return self._session is not None

    def release(self) -> None:
        """Let it go."""
        self._session = None
        # The server notices a closed connection only later; whoever is next need not wait for that.
        with suppress(SQLAlchemyError):
            self._connection.scalar(text("SELECT pg_advisory_unlock(:n)"), {"n": self._number})
        # If that failed, the connection must not go back into the pool with the lock.
        self._connection.invalidate()
        self._connection.close()
