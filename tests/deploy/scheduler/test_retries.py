"""Tries that fail, ends, and what is written down and forgotten of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from benchmarks.simulated import SimulatedProvider
from spotweave.deploy.model.instances import InstanceReport, InstanceState, LaunchRequest
from spotweave.deploy.model.jobs import JobState
from spotweave.deploy.model.tasks import Phase
from spotweave.deploy.providers.base import CapacityError, PartialError, ProviderError, ThrottledError
from spotweave.deploy.scheduler.loop import PRUNE_S
from spotweave.deploy.scheduler.retries import attempt_id, end_job
from spotweave.deploy.scheduler.settings import SchedulerSettings
from spotweave.deploy.store.intents import IntentKind
from tests.deploy.scheduler.training import A, B, TrainingWorld, federated, key_of
from tests.deploy.scheduler.worlds import SETTINGS, World, batch, cheap_and_sure, rentable


def test_waits_double_up_to_the_longest_whatever_the_number_of_tries() -> None:
    settings = SchedulerSettings(back_off_s=5.0, back_off_most_s=300.0)
    assert [settings.back_off(tries) for tries in range(1, 9)] == [5, 10, 20, 40, 80, 160, 300, 300]
    assert settings.back_off(0) == 5.0, "the first try has failed at most"
    assert [settings.back_off(10**k) for k in range(0, 400, 40)] == [5.0, *[300.0] * 9]


def test_an_offer_that_refused_is_not_asked_again_before_its_time(tmp_path: Path) -> None:
    """It is left alone for 60 s each time, and is all that there is."""
    world = World(tmp_path, cheap_and_sure()[:1])
    asked_s: list[float] = []

    def refuse(request: LaunchRequest) -> None:
        asked_s.append(world.clock.now())
        if len(asked_s) < 4:
            raise CapacityError("no capacity")

    world.before_launches(refuse)
    job = world.submit(batch())
    world.ends_well(job)
    assert len(asked_s) == 4
    assert all(later - earlier >= 60.0 for earlier, later in pairwise(asked_s))


def test_an_end_that_was_refused_does_not_wait_behind_looks(world: World) -> None:
    """One call is allowed for each pass, and the look of the pass takes it."""
    job = world.submit(batch(work_s=36_000.0))
    world.go(100.0)
    (machine,) = world.cloud.live()
    describe, terminate = world.provider.describe, world.provider.terminate
    left = 0

    def take() -> None:
        nonlocal left
        if left == 0:
            raise ThrottledError("too many requests")
        left -= 1

    def look(deployment: str) -> Sequence[InstanceReport]:
        take()
        return describe(deployment)

    def end(instance_ids: Sequence[str]) -> None:
        take()
        terminate(instance_ids)

    world.provider.describe = look  # type: ignore[method-assign]
    world.provider.terminate = end  # type: ignore[method-assign]
    world.cancel(job)
    left = 1
    world.go(10.0)
    assert world.cloud.live() == [machine]
    left = 1
    world.go(10.0)
    assert world.cloud.live() == []


class Limited(SimulatedProvider):
    """Answers no launch, of which only the first has an effect; lists instances once per pass."""

    lists = 0

    def launch(self, request: LaunchRequest) -> InstanceReport:
        if self.cloud.launches == 0:
            super().launch(request)
        raise ProviderError("time-out")

    def describe(self, deployment: str) -> Sequence[InstanceReport]:
        self.lists += 1
        if self.lists > 1:
            raise ThrottledError("too many requests")
        return super().describe(deployment)


def test_launches_with_an_unknown_outcome_are_looked_up_in_one_call(world: World) -> None:
    limited = Limited(world.cloud)
    world.rents_from(limited)
    jobs = [world.submit(batch(f"job{number}", instances=4)) for number in range(3)]
    world.go(10.0)
    for job in jobs:
        world.cancel(job)
    for _ in range(4):
        limited.lists = 0
        world.go(10.0)
    assert world.store.intents.pending() == []
    assert world.cloud.live() == []
    assert world.cloud.launches == 1


@pytest.mark.parametrize("state", [JobState.FAILED, JobState.CANCELLED, JobState.SUCCEEDED])
def test_the_end_of_a_job_is_that_of_every_attempt_and_instance(tmp_path: Path, state: JobState) -> None:
    world = TrainingWorld(tmp_path, cheap_and_sure(), a=60.0, b=90.0)
    job = world.submit(federated(20, A, B, epoch_s=60.0))
    while {task.phase for task in world.store.tasks.of_job(job)} != {Phase.RUNNING}:
        world.go(10.0)
    tasks = world.store.tasks.of_job(job)
    end_job(world.store, job, state, world.clock.now(), "enough")
    stopped = world.store.intents.pending_targets(IntentKind.STOP)
    assert {attempt_id(task) for task in tasks} <= stopped
    ending = world.store.intents.pending_targets(IntentKind.TERMINATE)
    assert ending == {name for task in tasks for name in task.instances}
    before = len(world.store.intents.pending())
    end_job(world.store, job, JobState.FAILED, world.clock.now(), "again")
    assert world.store.jobs.get(job).state is state
    assert len(world.store.intents.pending()) == before


@pytest.mark.real
def test_an_idle_client_that_stays_where_it_is_says_so_once(tmp_path: Path) -> None:
    """The other one needs 30 s longer, for which no release pays; it is asked about every 10 s."""
    world = TrainingWorld(tmp_path, cheap_and_sure(), a=60.0, b=90.0)
    job = world.submit(federated(20, A, B, epoch_s=60.0))
    quick, idle = key_of(job, "a"), 0
    for _ in range(60):
        world.go(10.0)
        idle += world.store.tasks.get(quick).phase is Phase.WAITING
    assert idle >= 10
    told = [event.data["offer"] for event in world.events("task.decided") if event.task == quick.task]
    assert told == ["spot", "spot"]
    assert len([one for one in world.store.decisions.latest(100) if one.key == quick]) == 2


def test_a_task_that_waits_says_so_once_and_again_after_a_loss(tmp_path: Path) -> None:
    down = [False]
    world = World(tmp_path, cheap_and_sure(available=lambda _: not down[0])[:1])
    job = world.submit(batch(work_s=400.0))
    world.go(100.0)
    down[0] = True
    world.go(200.0)
    down[0] = False
    world.until_all_end()
    told = [event.data["offer"] for event in world.events("task.decided") if event.job_id == job]
    assert told == ["spot", None, "spot"]
    assert len(world.store.decisions.latest(100, job_id=job)) == len(told)


DAY_S = 86_400.0


def test_nothing_is_remembered_of_jobs_that_are_over(tmp_path: Path) -> None:
    world = World(tmp_path, cheap_and_sure(available=lambda now_s: (now_s // 200) % 2 == 0))
    for k in range(6):
        world.submit(batch(f"job{k}", work_s=120.0, deadline_s=5000.0 if k % 2 else None))
    world.until_all_end()
    scheduler, roster = world.scheduler, world.scheduler.chooser._roster
    asking = roster.questions
    kept: list[object] = [scheduler.quarantine._cases, scheduler.ending._drained, roster.lateness._known]
    kept += [asking._next_s, asking._running_s, asking._warned]
    kept += [roster._urgency._ends, roster._urgency._patient]
    assert not any(kept)
    assert not any(scheduler.observer._orphans.values())
    assert not any(scheduler.observer._missing_s.values())


@pytest.mark.real
def test_what_is_older_than_the_store_keeps_is_removed_by_the_loop(world: World) -> None:
    job = world.submit(batch())
    world.until_all_end()
    assert world.store.events.after(0, 100, job_id=job)
    assert world.store.decisions.latest(10, job_id=job)
    world.clock.sleep(100 * DAY_S)
    world.go(PRUNE_S)
    assert not world.store.events.after(0, 100, job_id=job)
    assert not world.store.decisions.latest(10, job_id=job)
    assert world.store.jobs.get(job).ended_s is not None, "the books stay"
    assert world.store.costs.of_job(job, world.clock.now()).cost > 0


# A provider that does not say what runs, for an hour: nothing stays unbooked, and nothing is left.


HOUR_S = 3600.0
SLOW = replace(SETTINGS, period_s=30.0)
NEAR, FAR = "near", "far"


def _rented(world: World) -> list[tuple[float, float]]:
    """(seconds, USD) of all machines that ever were, as the cloud has it; each costs a minute at least."""
    found = []
    for machine in world.cloud.machines.values():
        report = machine.report
        assert report.ended_s is not None
        seconds = max(60.0, report.ended_s - report.launched_s)
        found.append((seconds, seconds * world.cloud.offer(report.offer_id).offer.price_usd_hour / HOUR_S))
    return found


def _check_bill(world: World, job: str) -> None:
    rented = _rented(world)
    assert world.spent_usd(job) == pytest.approx(sum(usd for _, usd in rented), abs=1e-6)
    now_s = world.clock.now()
    booked = [
        max(60.0, (one.ended_s or now_s) - one.launched_s)
        for one in world.store.instances.of_job(job)
        if one.launched_s is not None
    ]
    assert sorted(booked) == sorted(seconds for seconds, _ in rented)
    world.check_nothing_is_left()


class Blind(SimulatedProvider):
    """While it is dark it describes nothing, ends nothing although it says so, and no node can be reached."""

    blind = False

    def go_dark(self) -> None:
        self.blind = True
        self.cloud.hung_s = {f"sim-{number}": self.cloud.clock.now() for number in range(1, 100)}

    def recover(self) -> None:
        self.blind = False
        self.cloud.hung_s = {}

    def describe(self, deployment: str) -> Sequence[InstanceReport]:
        return [] if self.blind else super().describe(deployment)

    def terminate(self, instance_ids: Sequence[str]) -> None:
        if not self.blind:
            super().terminate(instance_ids)


@pytest.mark.real
@pytest.mark.parametrize("taken_meanwhile", [False, True])
def test_what_was_believed_to_have_vanished_is_found_and_paid_for_all_of_its_time(
    tmp_path: Path, taken_meanwhile: bool
) -> None:
    world = World(tmp_path, cheap_and_sure(), settings=SLOW)
    blind = Blind(world.cloud)
    world.rents_from(blind)
    job = world.submit(batch(work_s=20_000.0))
    world.go(100)
    blind.go_dark()
    world.go(HOUR_S)
    vanished = world.events("instance.vanished")
    assert vanished
    running = world.cloud.live()
    if taken_meanwhile:
        # Ended while nobody could see it: then it is not found, but it is paid until then.
        world.cloud.kill(running[0], by_provider=False)
    blind.recover()
    world.cancel(job)
    world.go(200)
    assert len(world.events("instance.found")) == len(vanished) - taken_meanwhile
    assert world.events("instance.orphan_ended") == []
    _check_bill(world, job)


def test_what_is_found_within_its_first_hour_is_not_free(tmp_path: Path) -> None:
    settings = replace(SETTINGS, vanished_after_s=100.0)
    world = World(tmp_path, [rentable("spot", free_first_s=HOUR_S)], settings=settings)
    blind = Blind(world.cloud)
    world.rents_from(blind)
    job = world.submit(batch(work_s=600.0))
    world.go(100)
    blind.go_dark()
    world.go(200)
    assert world.events("instance.vanished")
    # It may run: as long as it is not known to have been interrupted it is paid.
    assert world.store.costs.of_job(job, world.clock.now()).usd > 0
    blind.recover()
    world.ends_well(job)
    _check_bill(world, job)


def test_one_old_answer_takes_up_nothing(world: World) -> None:
    job = world.submit(batch())
    world.go(100)
    (running,) = world.provider.describe(world.store.deployment_id)
    assert running.state is InstanceState.RUNNING

    class Stale(SimulatedProvider):
        answers = 1

        def describe(self, deployment: str) -> Sequence[InstanceReport]:
            if self.cloud.live() or not self.answers:
                return super().describe(deployment)
            self.answers -= 1
            return [running]

    world.rents_from(Stale(world.cloud))
    world.ends_well(job)
    assert world.events("instance.found", "instance.orphan_ended") == []


class Regional(SimulatedProvider):
    """One of two regions may be silent."""

    silent = ""  # its name; "" for none

    def describe(self, deployment: str) -> Sequence[InstanceReport]:
        reports = super().describe(deployment)
        if not self.silent:
            return reports
        heard = [one for one in reports if self.cloud.offer(one.offer_id).offer.region != self.silent]
        raise PartialError(heard, {self.silent: ProviderError("down")})


@pytest.mark.real
def test_a_silent_region_spoils_nothing_and_hides_no_other(tmp_path: Path) -> None:
    offers = [rentable("n", region=NEAR, quota=1), rentable("f", region=FAR, quota=1)]
    world = World(tmp_path, offers, settings=SLOW)
    regional = Regional(world.cloud)
    world.rents_from(regional)
    jobs = [world.submit(batch(f"job{n}", work_s=1.5 * HOUR_S)) for n in range(2)]
    world.go(100)
    regional.silent = FAR
    near = next(name for name in world.cloud.live() if world.cloud.machines[name].report.offer_id == "n")
    world.cloud.kill(near, by_provider=True)
    world.go(HOUR_S)
    # What the one that answers says is heard.
    assert len(world.events("instance.ended")) == 1
    assert world.events("instance.vanished") == []
    regional.silent = ""
    world.ends_well(*jobs)
    assert world.cloud.launches == 3
    assert world.events("instance.found", "instance.orphan_ended") == []
