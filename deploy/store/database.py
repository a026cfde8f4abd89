"""The database behind the store: connections, transactions, one writer and many readers.

Writers take turns, in this process and between processes: SQLite has one write lock, and on PostgreSQL every
write transaction begins by taking an advisory lock that its commit lets go. So commits are in the order of
the numbers they gave out: whoever has read event N will never see an event below N appear.
"""

from __future__ import annotations

import json
import os
import sqlite3
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from sqlalchemy import (
    JSON,
    URL,
    Column,
    Connection,
    Engine,
    Executable,
    Row,
    Select,
    Table,
    Text,
    UpdateBase,
    cast,
    create_engine,
    event,
    make_url,
    select,
    text,
)
from sqlalchemy import exc as sa

from spotweave.deploy.store.errors import NotFoundError, StoreDamagedError, StoreError, StoreUnavailableError
from spotweave.deploy.store.locks import FileLock, SessionLock
from spotweave.deploy.store.schema import portions

# Reads that a thread keeps until this process writes to the same tables.

T = TypeVar("T")


class _Remembered(threading.local):
    """Of each thread."""

    kept: dict[str, tuple[list[int], Any]] | None = None

    def __init__(self) -> None:
        self.written: set[str] = set()


class Recall:
    """Reads that are done once and answered from memory after that, where a thread asks for it.

    A pass of the scheduler needs the same thousands of rows at every stage. What other processes write is
    seen only from the next `kept` on: this is for the one process that leads a deployment.
    """

    def __init__(self) -> None:
        self._commits: Counter[str] = Counter()
        """By table: transactions of this process that have written to it."""
        self._local = _Remembered()

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Until this ends, what the thread reads through `read` is kept."""
        self._local.kept = {}
        try:
            yield
        finally:
            self._local.kept = None

    def read(self, name: str, tables: tuple[str, ...], load: Callable[[], T]) -> T:
        """What `load` gives, or gave earlier if these tables have not been written to since.

        What the thread's own open transaction has written is never kept.
        """
        kept = self._local.kept
        if kept is None or not self._local.written.isdisjoint(tables):
            return load()
        # Seen before it is read: what is committed meanwhile makes it old.
        commits = [self._commits[table] for table in tables]
        known = kept.get(name)
        if known is None or known[0] != commits:
            known = kept[name] = commits, load()
        found: T = known[1]
        return found

    def writes(self, table: str) -> None:
        """The thread's transaction writes to a table."""
        self._local.written.add(table)

    def end_transaction(self) -> None:
        """The thread's transaction is over, and others have not begun to write yet."""
        self._commits.update(self._local.written)
        self._local.written.clear()


BUSY_S = 30.0  # seconds that a writer waits for its turn
WRITES = "spotweave_writes"
"""Option of a statement: what `Recall` takes it to write to, where that is less than its table."""
_WRITE = "spotweave_write"
_WRITER_LOCK = 0x53505756_0001
_LEADER_LOCK = 0x53505756_0002
_HEADER = b"SQLite format 3\0"


class Lock(Protocol):
    """Something held until it is released, or its holder dies."""

    def held(self) -> bool:
        """Whether the lock is still held."""

    def release(self) -> None:
        """Let it go."""


class _Current(threading.local):
    """Connections of each thread."""

    writing: Connection | None = None
    reading: Connection | None = None


class Database:
    """One database. Safe to use from several threads; never await inside a transaction.

    Attributes:
        path: of a SQLite database; None on PostgreSQL.
        recall: what threads keep of what they read.
    """

    def __init__(self, url: str, *, durable: bool = True) -> None:
        """Prepare connections to `url`; none is made yet.

        Args:
            url: "sqlite:///PATH" or "postgresql://USER@HOST/NAME".
            durable: False lets SQLite lose commits when the machine crashes (not when the process does): for
                simulations, which would wait for the disk most of their time.

        Raises:
            StoreError: if it is neither.
        """
        parsed = _parse(url)
        self.where = parsed.render_as_string(hide_password=True)
        """The URL without its password, for messages."""
        self.path = Path(str(parsed.database)) if parsed.drivername == "sqlite" else None
        self.engine = _sqlite_engine(parsed, durable) if self.path else _postgresql_engine(parsed)
        self.fence: Callable[[Connection], None] | None = None
        """Called first in every transaction: raises where this process must not write any more."""
        self.recall = Recall()
        self._current = _Current()
        self._writer = threading.Lock()

        @event.listens_for(self.engine, "before_execute")
        def notice(_connection: Connection, statement: Executable, *_: object) -> None:
            if isinstance(statement, UpdateBase):
                options = statement.get_execution_options()
                self.recall.writes(options.get(WRITES) or str(statement.table))

    @property
    def missing(self) -> bool:
        """Whether its file is not there yet."""
        return self.path is not None and not self.path.exists()

    def close(self) -> None:
        """Let go of all connections."""
        self.engine.dispose()

    @contextmanager
    def transaction(self, wait_s: float = BUSY_S) -> Iterator[Connection]:
        """Everything written in it is written whole or not at all.

        Inside another one of the same thread it is a part of that: if it fails, only it is undone, and it is
        durable when the outer one is.

        `wait_s` is for the turn among the threads of this process.

        Raises:
            StoreUnavailableError: if the database cannot be reached, is locked for `BUSY_S`, or is full; as
                LeaseLostError if this process led the database and another one does now.
            StoreDamagedError: if it is corrupt.
        """
        current = self._current
        if current.writing is not None:
            with current.writing.begin_nested():
                yield current.writing
            return
        if current.reading is not None:
            raise RuntimeError("a transaction was begun inside a snapshot: write first, or read after it")
        with self._translated():
            if not self._writer.acquire(timeout=wait_s):
                raise StoreUnavailableError(
                    f"another thread has been writing to {self.where} for {wait_s:.0f} s: try again"
                )
            try:
                with self.engine.connect() as connection:
                    connection = connection.execution_options(**{_WRITE: True})
                    with connection.begin():
                        if self.path is None:
                            connection.execute(text("SELECT pg_advisory_xact_lock(:n)"), {"n": _WRITER_LOCK})
                        if self.fence is not None:
                            self.fence(connection)
                        current.writing = connection
                        try:
                            yield connection
                        finally:
                            current.writing = None
            finally:
                self.recall.end_transaction()
                self._writer.release()

    @contextmanager
    def snapshot(self) -> Iterator[Connection]:
        """Everything read in it is of one moment. Inside a transaction it sees what that has written.

        Raises StoreUnavailableError and StoreDamagedError: as in `transaction`.
        """
        current = self._current.writing or self._current.reading
        if current is not None:
            yield current
            return
        with self._translated(), self.engine.connect() as connection:
            if self.path is None:
                connection = connection.execution_options(
                    isolation_level="REPEATABLE READ", postgresql_readonly=True
                )
            with connection.begin():
                self._current.reading = connection
                try:
                    yield connection
                finally:
                    self._current.reading = None

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A connection for one statement: the current transaction's or snapshot's, if there is one."""
        current = self._current.writing or self._current.reading
        if current is not None:
            yield current
            return
        with self._translated(), self.engine.connect() as connection:
            yield connection

    def read_all(self, query: Select[Any]) -> Sequence[Any]:
        """What one statement finds."""
        with self.read() as connection:
            return connection.execute(query).all()

    def read_one(self, query: Select[Any], parameters: Mapping[str, object] | None = None) -> Row[Any] | None:
        """The one row that a statement finds; None if there is none."""
        with self.read() as connection:
            return connection.execute(query, parameters).one_or_none()

    def found(self, query: Select[Any], missing: str) -> Row[Any]:
        """The one row that a statement finds. Raises NotFoundError with this message if there is none."""
        row = self.read_one(query)
        if row is None:
            raise NotFoundError(missing)
        return row

    def read_named(self, query: Select[Any], column: Column[Any], names: Collection[str]) -> Iterator[Any]:
        """What a statement finds whose `column` is one of these names, however many they are."""
        with self.read() as connection:
            for some in portions(names):
                yield from connection.execute(query.where(column.in_(some))).all()

    def named(self, decoded: Decoded[T], names: Collection[str]) -> Mapping[str, T]:
        """The objects of a table whose key is a name, by these names; what there is not is left out."""
        table = decoded.table
        (key,) = table.primary_key
        known: dict[str, T] = self.recall.read(table.name, (table.name,), dict)
        rows = self.read_named(decoded.rows, key, [name for name in names if name not in known])
        known |= {row._mapping[key]: decoded(row) for row in rows}
        return {name: known[name] for name in sorted(names) if name in known}

    @property
    def writing(self) -> Connection:
        """The connection of the current transaction.

        Raises RuntimeError if there is none: whoever writes says what belongs together.
        """
        if self._current.writing is None:
            raise RuntimeError("the store is written to outside of `with store.transaction()`")
        return self._current.writing

    def lead(self) -> Lock | None:
        """Take the lock of this database's only scheduler; None if there is one already."""
        if self.path is not None:
            lock = FileLock(self.path.with_name(self.path.name + ".leader"))
            return lock if lock.acquire(wait=False) else None
        with self._translated():
            connection = self.engine.connect().execution_options(isolation_level="AUTOCOMMIT")
            session = SessionLock(connection, _LEADER_LOCK)
            return session if session.acquire() else None

    def prepare_file(self) -> None:
        """Make an empty SQLite file that only this user can read, or refuse what is no SQLite database.

        Raises StoreError if it cannot be made or read; StoreDamagedError if it is something else, or corrupt.
        """
        if self.path is None:
            return
        try:
            # SQLite gives its -wal and -shm files the permissions of the database.
            handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            with os.fdopen(handle, "rb") as file:
                header = file.read(len(_HEADER))
        except OSError as error:
            raise StoreError(
                f"cannot open the database {self.path}: {error.strerror}. Check its directory and permissions"
            ) from error
        if header not in (b"", _HEADER):
            raise StoreDamagedError(
                f"{self.path} is not a SQLite database: restore a backup, or give another path for a new one"
            )
        with self._translated(), self.engine.connect() as connection:
            found = connection.exec_driver_sql("PRAGMA quick_check(1)").scalar()
        if found != "ok":
            detail = str(found).splitlines()[-1]
            raise StoreDamagedError(f"the database {self.path} is damaged ({detail}): restore a backup")
        with self._translated():
            raw = self.engine.raw_connection()
            try:
                mode = raw.cursor().execute("PRAGMA journal_mode=WAL").fetchone()
            finally:
                raw.close()
        if mode is None or mode[0] != "wal":
            raise StoreError(
                f"the database {self.path} is on a file system without shared memory (a network disk?): "
                "expected a local disk; move it there, or use PostgreSQL"
            )

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (sa.OperationalError, sa.InterfaceError, sa.InternalError, sa.TimeoutError) as error:
            raise StoreUnavailableError(
                f"the database {self.where} cannot be used now: {_reason(error)}. "
                "Check that it runs and has space"
            ) from error
        except sa.DatabaseError as error:
            if (
                self.path is not None
                and isinstance(error.orig, sqlite3.DatabaseError)
                and _corrupt(error.orig)
            ):
                raise StoreDamagedError(
                    f"the database {self.path} is damaged ({_reason(error)}): restore a backup"
                ) from error
            raise


def _corrupt(error: sqlite3.DatabaseError) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def _reason(error: sa.SQLAlchemyError) -> str:
    original = getattr(error, "orig", None) or error
    lines = str(original).strip().splitlines()
    return lines[0] if lines else type(original).__name__


def _parse(url: str) -> URL:
    expected = "expected sqlite:///PATH or postgresql://USER@HOST/NAME"
    try:
        parsed = make_url(url)
    except sa.ArgumentError as error:
        # The text may hold a password: it is not repeated.
        raise StoreError(f"the database URL cannot be read: {expected}") from error
    if parsed.drivername == "sqlite":
        if parsed.database in (None, "", ":memory:") or str(parsed.database).startswith("file:"):
            raise StoreError(f"the database {url!r} would be lost with the process: {expected}")
        return parsed
    if parsed.drivername in ("postgresql", "postgres", "postgresql+psycopg"):
        return parsed.set(drivername="postgresql+psycopg")
    raise StoreError(f"the database URL begins with {parsed.drivername!r}: {expected}")


def _dumps(value: Any) -> str:
    # NaN and infinity are not JSON: PostgreSQL would refuse what SQLite takes.
    return json.dumps(value, allow_nan=False, separators=(",", ":"))


_engine = partial(create_engine, json_serializer=_dumps, pool_size=8, max_overflow=56)


def _sqlite_engine(url: URL, durable: bool) -> Engine:
    engine = _engine(url, connect_args={"timeout": BUSY_S})

    @event.listens_for(engine, "connect")
    def configure(connection: sqlite3.Connection, _record: object) -> None:
        # Python's own control begins no transaction before a SELECT; this is SQLAlchemy's documented way.
        connection.isolation_level = None
        connection.execute("PRAGMA foreign_keys=ON")
        connection.execute(f"PRAGMA synchronous={'FULL' if durable else 'OFF'}")

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        # A transaction that reads first and writes later cannot wait for its turn: it takes the lock at once.
        write = connection.get_execution_options().get(_WRITE, False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")

    return engine


def _postgresql_engine(url: URL) -> Engine:
    # A server that has lost its client lets the client's locks go within a minute.
    settings = {
        "lock_timeout": f"{BUSY_S:.0f}s",
        "idle_in_transaction_session_timeout": "60s",
        "tcp_keepalives_idle": "30",
        "tcp_keepalives_interval": "10",
        "tcp_keepalives_count": "3",
    }
    return _engine(
        url,
        connect_args={
            "connect_timeout": 10,
            "application_name": "spotweave",
            "options": " ".join(f"-c {name}={value}" for name, value in settings.items()),
        },
        pool_pre_ping=True,
    )


class Noun:
    """Base class of the parts of a store, one for each kind of thing."""

    def __init__(self, database: Database) -> None:
        self._database = database


# Whole rows as objects. The loop reads the same thousands in each pass, and few of them change.

MOST = 5_000  # rows that are kept of one table


class Decoded(Generic[T]):
    """Makes objects of the rows of a table, and keeps them as long as the rows are the same.

    What `make` returns must not be changed by anyone.
    """

    def __init__(self, table: Table, make: Callable[[dict[str, Any]], T]) -> None:
        self.table, self._make = table, make
        self._names = tuple(table.c.keys())
        self._json = tuple(column.name for column in table.c if isinstance(column.type, JSON))
        self._n_key = len(table.primary_key)
        if self._names[: self._n_key] != tuple(column.name for column in table.primary_key):
            raise ValueError(f"the key of {table.name} must be its first columns")
        # As text it can be compared before it is parsed, which takes longer than all the rest.
        columns = [
            cast(column, Text).label(column.name) if column.name in self._json else column
            for column in table.c
        ]
        self.rows: Select[Any] = select(*columns)
        """All columns of the table, for queries whose rows come here."""
        self._known: dict[tuple[Any, ...], tuple[tuple[Any, ...], T]] = {}

    def __call__(self, row: Row[Any]) -> T:
        """The object of a row of `rows`."""
        # A tuple is compared several times as fast as a row.
        given = tuple(row)
        key = given[: self._n_key]
        known = self._known.get(key)
        if known is not None and known[0] == given:
            return known[1]
        values = dict(zip(self._names, given, strict=True))
        for name in self._json:
            values[name] = json.loads(values[name])
        if len(self._known) >= MOST:
            self._known.clear()
        made = self._make(values)
        self._known[key] = given, made
        return made
