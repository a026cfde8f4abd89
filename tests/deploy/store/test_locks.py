"""Locks and the lease: one holder, and who is not named there writes nothing."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest
from sqlalchemy import create_engine, make_url, text
from sqlalchemy.exc import OperationalError

from spotweave.deploy.store.database import Database
from spotweave.deploy.store.errors import LeaseLostError, StoreError, StoreUnavailableError
from spotweave.deploy.store.locks import FileLock, SessionLock
from spotweave.deploy.store.store import Lease, Store
from tests.deploy.store.cases import add_job
from tests.deploy.store.conftest import Place


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "lock"


def held(path: Path) -> FileLock:
    lock = FileLock(path)
    assert lock.acquire(wait=False)
    return lock


def test_one_at_a_time_and_nothing_is_left_locked(path: Path) -> None:
    first, second = held(path), FileLock(path)
    assert not second.acquire(wait=False)
    assert (first.held(), second.held()) == (True, False)
    first.release()
    assert not first.held()
    assert second.acquire(wait=False)
    assert path.stat().st_mode & 0o777 == 0o600


def test_whose_file_is_removed_replaced_or_moved_away_holds_nothing(path: Path) -> None:
    lock, aside = held(path), path.with_name("aside")
    path.rename(aside)
    assert not lock.held()
    other = held(path)
    lock.release()
    assert other.held()
    aside.touch()
    path.rename(aside.with_name("back"))
    aside.replace(path)
    assert not other.held()
    aside.with_name("back").replace(path)
    assert other.held(), "it is the file with the name again"
    path.unlink()
    assert not other.held()


def test_who_waits_for_a_file_that_is_removed_takes_the_new_one(path: Path) -> None:
    first, second = held(path), FileLock(path)
    waiting = threading.Thread(target=second.acquire, kwargs={"wait": True})
    waiting.start()
    time.sleep(0.05)
    path.unlink()
    first.release()
    waiting.join(30.0)
    assert not waiting.is_alive()
    assert second.held()
    assert not FileLock(path).acquire(wait=False)


def test_no_handle_is_left_open(path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    lock = held(path)
    for _ in range(5):
        assert not FileLock(path).acquire(wait=False)
    lock.release()
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_folder_that_is_not_there_is_one_line(path: Path) -> None:
    with pytest.raises(StoreError, match=r"\A.*cannot lock .*No such file or directory.*\Z"):
        FileLock(path / "below").acquire(wait=False)


def session_lock(*answers: object) -> tuple[SessionLock, Mock]:
    """Of a session of a PostgreSQL server that answers so."""
    connection = Mock(scalar=Mock(side_effect=answers))
    return SessionLock(connection, 7), connection


def test_a_session_holds_its_lock_as_long_as_it_is_the_same() -> None:
    gone = OperationalError("SELECT", {}, Exception("the server closed the connection"))
    for answers, held in (
        ((True, 41, 41), [True]),
        ((True, 41, 41, gone), [True, False]),
        ((True, 41, gone), [False, False]),
        ((True, 41, 42), [False, False]),
    ):
        lock, _ = session_lock(*answers, True)
        assert lock.acquire()
        assert [lock.held() for _ in held] == held
        lock.release()
        assert not lock.held()


def test_a_session_does_not_keep_what_another_one_has() -> None:
    lock, connection = session_lock(False)
    assert not lock.acquire()
    assert not lock.held()
    connection.close.assert_called_once_with()


@pytest.mark.real
@pytest.mark.parametrize("place", ["postgresql"], indirect=True)
def test_a_session_that_the_server_has_ended_holds_nothing_and_never_does_again(place: Place) -> None:
    first, second = Database(place.url), Database(place.url)
    lock = first.lead()
    assert isinstance(lock, SessionLock)
    assert lock.held()
    assert second.lead() is None
    engine = create_engine(make_url(place.url).set(drivername="postgresql+psycopg"))
    with engine.connect() as connection:
        ours = "locktype = 'advisory' AND granted AND pid <> pg_backend_pid()"
        connection.execute(text(f"SELECT pg_terminate_backend(pid) FROM pg_locks WHERE {ours}"))
        end = time.monotonic() + 30.0
        while (other := second.lead()) is None and time.monotonic() < end:
            time.sleep(0.01)
    assert other is not None
    assert not lock.held()
    assert not lock.held(), "its connection was made again, but not its lock"
    assert other.held()
    other.release()
    assert not other.held()
    lock.release()
    first.close()
    second.close()
    engine.dispose()


@pytest.fixture
def stores(place: Place) -> Iterator[tuple[Store, Store]]:
    """Two processes' stores of one database."""
    with place.open() as first, place.open() as second:
        yield first, second


class Always:
    """A lock that anybody gets: of a file that was removed, or of a server that forgot it."""

    def held(self) -> bool:
        return True

    def release(self) -> None:
        pass


def take(store: Store) -> Lease:
    return Lease(store._database, Always())


def row(store: Store) -> tuple[str, float, float] | None:
    with store._database.read() as connection:
        found = connection.execute(text("SELECT holder, taken_s, renewed_s FROM lease")).one_or_none()
    return None if found is None else (found[0], found[1], found[2])


def test_who_leads_is_named_and_renewed_until_it_lets_go(stores: tuple[Store, Store]) -> None:
    first, second = stores
    lease = first.lead()
    found = row(second)
    assert found is not None
    assert found[0] == lease.holder
    assert lease.held()
    renewed = row(second)
    assert renewed is not None
    assert renewed[:2] == found[:2]
    assert renewed[2] > found[2]
    with pytest.raises(StoreError, match="another scheduler works with the database"):
        second.lead()
    add_job(first, "j1")
    add_job(second, "j2")  # as the HTTP service and commands in other processes do
    assert lease.held()
    lease.release()
    assert row(second) is None
    add_job(first, "j3")
    assert not lease.held()
    again = second.lead()
    assert again.held()
    again.release()


def test_of_two_with_the_lock_only_the_last_one_writes(stores: tuple[Store, Store]) -> None:
    first, second = stores
    before = take(first)
    add_job(first, "j1")
    after = take(second)
    with pytest.raises(LeaseLostError, match="another process leads") as refused:
        add_job(first, "j2")
    assert "\n" not in str(refused.value)
    assert isinstance(refused.value, StoreUnavailableError), "HTTP clients are told to try again: 503"
    assert [job.job_id for job in first.jobs.live()] == ["j1"], "it still reads"
    assert not before.held()
    assert after.held()
    add_job(second, "j3")
    before.release()
    assert after.held(), "what is lost is another's, and is not let go"


def test_what_is_lost_is_never_held_again_not_even_when_nobody_is_named(stores: tuple[Store, Store]) -> None:
    first, second = stores
    before, after = take(first), take(second)
    assert not before.held()
    after.release()
    assert not before.held()
    with pytest.raises(LeaseLostError):
        add_job(first)


def test_a_silent_database_is_no_loss(stores: tuple[Store, Store], monkeypatch: pytest.MonkeyPatch) -> None:
    first, _ = stores
    lease = first.lead()

    def busy() -> None:
        raise StoreUnavailableError("busy")

    with monkeypatch.context() as now:
        now.setattr(first._database, "transaction", busy)
        with pytest.raises(StoreUnavailableError):
            lease.held()
    assert lease.held()
    lease.release()


@pytest.mark.parametrize("alone", [True, False])
def test_whose_lock_file_is_removed_leads_no_more(sqlite: Place, tmp_path: Path, alone: bool) -> None:
    with sqlite.open() as first, sqlite.open() as second:
        before = first.lead()
        (tmp_path / "store.db.leader").unlink()
        after = None if alone else second.lead()
        assert not before.held()
        with pytest.raises(LeaseLostError):
            add_job(first)
        assert after is None or after.held()
