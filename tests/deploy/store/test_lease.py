"""The row that names the leader: who is not named there writes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import text

from deploy.store.errors import LeaseLostError, StoreError, StoreUnavailableError
from deploy.store.lease import Lease
from deploy.store.store import Store
from tests.deploy.store.cases import add_job
from tests.deploy.store.conftest import NOW, Place


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
    add_job(first, "j1")
    lease.release()
    assert row(second) is None
    add_job(first, "j2")
    assert not lease.held()


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


def test_what_is_lost_is_never_held_again(stores: tuple[Store, Store]) -> None:
    first, second = stores
    before, after = take(first), take(second)
    assert not before.held()
    after.release()
    assert not before.held()
    with pytest.raises(LeaseLostError):
        add_job(first)


def test_a_row_that_is_gone_is_lost_too(stores: tuple[Store, Store]) -> None:
    """As after a backup was put in the place of the database."""
    first, second = stores
    lease = take(first)
    with second.transaction():
        second._database.writing.execute(text("DELETE FROM lease"))
    with pytest.raises(LeaseLostError):
        add_job(first)
    assert not lease.held()


def test_stores_that_do_not_lead_write_as_ever(stores: tuple[Store, Store]) -> None:
    """The HTTP service and commands in other processes."""
    first, second = stores
    lease = first.lead()
    add_job(second)
    assert lease.held()
    lease.release()


def test_a_database_that_cannot_tell_is_no_loss(
    stores: tuple[Store, Store], monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_two_leaders_after_the_lock_file_was_removed(tmp_path: Path) -> None:
    place = Place(f"sqlite:///{tmp_path}/store.db", tmp_path / "key", False)
    with place.open(NOW) as first, place.open(NOW) as second:
        before = first.lead()
        with pytest.raises(StoreError, match="another scheduler works with the database"):
            second.lead()
        (tmp_path / "store.db.leader").unlink()
        after = second.lead()
        with pytest.raises(LeaseLostError):
            add_job(first)
        assert not before.held()
        assert after.held()


def test_whose_lock_file_is_removed_leads_no_more_also_while_it_is_alone(tmp_path: Path) -> None:
    with Place(f"sqlite:///{tmp_path}/store.db", tmp_path / "key", False).open(NOW) as store:
        lease = store.lead()
        (tmp_path / "store.db.leader").unlink()
        assert not lease.held()
        with pytest.raises(LeaseLostError):
            add_job(store)
