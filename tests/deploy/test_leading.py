"""The loop of a service: a failed pass is not its end, and a lost lead is."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from deploy.config import DeploymentConfig
from deploy.service import Service
from deploy.serving import Serving
from deploy.store.errors import LeaseLostError, StoreUnavailableError
from tests.deploy.cli.commands import deployment
from tests.deploy.node.agents import wait_until
from tests.deploy.store.cases import add_job


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    """One that only decides: it has passes, and nothing to act on; no master of Spark starts."""
    config = DeploymentConfig.load(deployment(tmp_path, scheduler={"period_s": 0.01}))
    with closing(Service(config.dry_run())) as made:
        made.runners = []
        yield made


def stepping(service: Service, step: Callable[[int], None]) -> list[int]:
    """Passes do this instead; returns the numbers of those that began, which are ten at most."""
    passes: list[int] = []

    def one() -> None:
        passes.append(len(passes))
        if len(passes) == 10:
            service.stopping.set()
        step(passes[-1])

    service.scheduler.step = one  # type: ignore[method-assign]
    return passes


@pytest.mark.parametrize(
    "error", [ZeroDivisionError("in a pass"), StoreUnavailableError("the disk is full"), MemoryError()]
)
def test_a_pass_that_fails_is_followed_by_the_next_one(service: Service, error: Exception) -> None:
    def step(number: int) -> None:
        assert service.last_pass_s() is None, "one that failed does not count"
        if number < 2:
            raise error
        service.stopping.set()

    passes = stepping(service, step)
    service.run()
    assert passes == [0, 1, 2]
    assert service.last_pass_s() is not None


def test_a_leader_without_its_lock_file_makes_no_further_pass(service: Service, tmp_path: Path) -> None:
    lock = tmp_path / "state" / "store.db.leader"
    passes = stepping(service, lambda number: lock.unlink(missing_ok=True))
    service.run()
    assert passes == [0]
    assert not service.stopping.is_set()


def test_a_leader_that_was_followed_by_another_writes_nothing(service: Service, tmp_path: Path) -> None:
    config = service.config
    written: list[bool] = []

    def step(number: int) -> None:
        """In the middle of a pass, somebody removes the lock's file and starts another service."""
        if number:
            return
        (tmp_path / "state" / "store.db.leader").unlink()
        with closing(Service(config)) as other:
            with pytest.raises(LeaseLostError):
                add_job(service.store, "mine")
            add_job(other.store, "its")
            written.append(other._lead.held())
        raise LeaseLostError("as the pass does then")

    passes = stepping(service, step)
    service.run()
    assert (passes, written) == ([0], [True])
    assert [job.job_id for job in service.store.jobs.live()] == ["its"]


def test_no_pass_is_made_while_nobody_knows_who_leads(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes = stepping(service, lambda number: service.stopping.set())
    held, asked = service._lead.held, itertools.count(1)

    def unknown() -> bool:
        if next(asked) > 3:
            return held()
        assert passes == []
        raise StoreUnavailableError("the database does not answer")

    monkeypatch.setattr(service._lead, "held", unknown)
    service.run()
    assert (passes, next(asked)) == ([0], 5)


@pytest.mark.real
def test_a_service_whose_lead_is_lost_cannot_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = DeploymentConfig.load(deployment(tmp_path, scheduler={"period_s": 0.01}))
    with Serving(config.dry_run()) as serving:
        assert serving.alive()
        (tmp_path / "state" / "store.db.leader").unlink()
        wait_until(lambda: not serving.alive())
        # What jobs share is another leader's now.
        monkeypatch.setattr(serving.service, "shutdown", lambda: pytest.fail("it ended what jobs share"))
        kept = serving.service.store.events.latest(100)
    assert [event.kind for event in kept] == ["service.started"]
    monkeypatch.undo()
    serving.service.shutdown()
