"""Locks: one holder, also where their files are removed or the database server ends their sessions."""

from __future__ import annotations

import fcntl
import os
import threading
import time
from pathlib import Path
from typing import cast

import pytest
from sqlalchemy import Connection, create_engine, make_url, text
from sqlalchemy.exc import OperationalError

from deploy.store.database import Database
from deploy.store.errors import StoreError
from deploy.store.locks import FileLock, SessionLock
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


def test_whose_file_is_removed_holds_nothing(path: Path) -> None:
    lock = held(path)
    path.unlink()
    assert not lock.held()
    other = held(path)
    assert (lock.held(), other.held()) == (False, True)
    lock.release()
    assert other.held()


def test_whose_file_is_replaced_or_moved_away_holds_nothing(path: Path) -> None:
    lock = held(path)
    path.rename(path.with_name("aside"))
    assert not lock.held()
    held(path)
    path.with_name("aside").replace(path)
    assert lock.held(), "it is the file with the name again"
    path.with_name("other").touch()
    path.with_name("other").replace(path)
    assert not lock.held()


def test_a_file_that_was_removed_before_it_could_be_locked_is_not_taken(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the opening and the locking another process removed it, and a third one locked a new one."""
    others: list[FileLock] = []
    lock_it = fcntl.flock

    def late(handle: int, how: int) -> None:
        if not others:
            path.unlink()
            others.append(FileLock(path))
            monkeypatch.setattr(fcntl, "flock", lock_it)
            assert others[0].acquire(wait=False)
        lock_it(handle, how)

    monkeypatch.setattr(fcntl, "flock", late)
    lock = FileLock(path)
    assert not lock.acquire(wait=False)
    assert others[0].held()
    others[0].release()
    assert lock.acquire(wait=False)


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
    with pytest.raises(StoreError, match=r"cannot lock .*No such file or directory") as refused:
        FileLock(path / "below").acquire(wait=False)
    assert "\n" not in str(refused.value)


class Session:
    """A connection to a PostgreSQL server, as far as locks know it."""

    def __init__(self, *answers: object) -> None:
        self.answers = list(answers)
        self.closed = False

    def scalar(self, statement: object, _values: object = None) -> object:
        if "unlock" in str(statement):
            return True
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def invalidate(self) -> None:
        """Its lock must not go back into the pool."""

    def close(self) -> None:
        self.closed = True


def session_lock(session: Session) -> SessionLock:
    return SessionLock(cast(Connection, session), 7)


def test_a_session_holds_its_lock_as_long_as_it_is_the_same() -> None:
    gone = OperationalError("SELECT", {}, Exception("the server closed the connection"))
    for answers, held in (
        ((True, 41, 41), [True]),
        ((True, 41, 41, gone), [True, False]),
        ((True, 41, gone, 41), [False, False]),
        ((True, 41, 42, 41), [False, False]),
    ):
        lock = session_lock(Session(*answers))
        assert lock.acquire()
        assert [lock.held() for _ in held] == held
        lock.release()
        assert not lock.held()


def test_a_session_does_not_keep_what_another_one_has() -> None:
    session = Session(False)
    lock = session_lock(session)
    assert not lock.acquire()
    assert not lock.held()
    assert session.closed


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
        connection.execute(
            text(
                "SELECT pg_terminate_backend(pid) FROM pg_locks "
                "WHERE locktype = 'advisory' AND granted AND pid <> pg_backend_pid()"
            )
        )
        end = time.monotonic() + 30.0
        other = second.lead()
        while other is None and time.monotonic() < end:
            time.sleep(0.01)
            other = second.lead()
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
