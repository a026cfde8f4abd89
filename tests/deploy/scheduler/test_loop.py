"""Stories of the loop against the simulated cloud; times by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from benchmarks.simulated import SimulatedProvider
from spotweave.deploy.model.instances import InstanceReport, LaunchRequest
from spotweave.deploy.model.jobs import FlowerClient, JobState, TaskKey
from spotweave.deploy.model.tasks import Assignment, Phase, TaskReport
from spotweave.deploy.providers.base import CapacityError, ProviderError
from spotweave.deploy.runners.base import RunnerError, StartingError
from spotweave.deploy.scheduler.decider import MARKET_COMPONENTS
from spotweave.deploy.scheduler.retries import end_job
from spotweave.deploy.store.intents import Mode
from tests.deploy.scheduler.training import federated
from tests.deploy.scheduler.worlds import SETTINGS, World, batch, cheap_and_sure


def kinds(world: World, job_id: str) -> list[str]:
    return [event.kind for event in world.store.events.after(0, 10_000, job_id=job_id)]


def test_a_job_runs_on_the_cheapest_offer_and_everything_is_given_back(world: World) -> None:
    job = world.submit(batch())
    world.ends_well(job)
    assert world.cloud.completions == {TaskKey(job, "main"): 1}
    assert world.offers_taken() == ["spot"]
    told = kinds(world, job)
    order = ["task.decided", "instance.launched", "instance.ready", "task.started", "job.succeeded"]
    assert [told.index(kind) for kind in order] == sorted(told.index(kind) for kind in order)
    # 30 s of launch, a pass until it is seen, 300 s of work, passes until that is seen and it is ended.
    bill = world.store.costs.of_job(job, world.clock.now())
    assert 330 <= bill.seconds <= 330 + 5 * 10
    assert float(bill.usd) == pytest.approx(bill.seconds * 0.3 / 3600, abs=1e-5)


@pytest.mark.real
def test_an_interruption_costs_what_no_checkpoint_held_and_the_job_ends_elsewhere(tmp_path: Path) -> None:
    world = World(tmp_path, cheap_and_sure(available=lambda now_s: now_s < 1_000_000 + 200))
    job = world.submit(batch())
    world.ends_well(job)
    offers = world.offers_taken()
    assert offers == ["spot", "sure"]
    assert "task.lost" in kinds(world, job)
    assert world.cloud.completions[TaskKey(job, "main")] == 1


@pytest.mark.real
def test_a_user_s_failures_are_counted_and_end_the_job(world: World) -> None:
    world.cloud.fails["bad"] = 99
    world.cloud.fails["shaky"] = 2
    bad, shaky = world.submit(batch("bad")), world.submit(batch("shaky"))
    assert world.why_failed(bad) == "exit code 1"
    assert world.store.jobs.get(bad).user_failures == 3
    assert world.state(shaky) is JobState.SUCCEEDED


@pytest.mark.real
def test_a_gang_starts_together_and_waits_for_room(world: World) -> None:
    first, second = world.submit(batch("first", instances=3)), world.submit(batch("second", instances=3))
    world.go(60)
    assert len(world.cloud.live("spot")) == 3
    assert len(world.cloud.live("sure")) == 3
    world.ends_well(first, second)


def test_what_is_cancelled_while_a_pass_goes_on_is_not_rented_for_any_more(world: World) -> None:
    job = world.submit(batch())
    launch = world.scheduler.actions.act

    def cancelled_just_before(now_s: float) -> None:
        end_job(world.store, job, JobState.CANCELLED, now_s, "enough")
        launch(now_s)

    world.scheduler.actions.act = cancelled_just_before  # type: ignore[method-assign]
    world.go(60)
    assert world.cloud.machines == {}
    world.check_nothing_is_left()


@pytest.mark.real
def test_the_net_moves_a_job_off_spot_capacity_in_time(tmp_path: Path) -> None:
    """Spot capacity ends every attempt after 150 s, of which 60 are lost: only on demand will it be met."""
    world = World(tmp_path, cheap_and_sure(available=lambda now_s: (now_s - 1_000_000) % 200 < 190))
    job = world.submit(batch(work_s=600, deadline_s=1500))
    world.ends_well(job)
    assert world.took_s(job) <= 1500


def test_a_dry_run_decides_and_does_nothing(tmp_path: Path) -> None:
    world = World(tmp_path, cheap_and_sure(), mode=Mode.DRY_RUN)
    job = world.submit(batch())
    world.go(200)
    assert world.cloud.machines == {}
    assert world.state(job) is JobState.PENDING
    latest = world.store.decisions.latest(1)[0]
    assert (latest.chosen, latest.mode) == ("spot", Mode.DRY_RUN)


def test_one_federated_client_s_success_is_that_of_the_training(world: World) -> None:
    job = world.submit(federated(2, FlowerClient(name="a"), FlowerClient(name="b"), epoch_s=60.0))
    world.go(100)
    with world.store.transaction():
        task = world.store.tasks.of_job(job)[0]
        report = TaskReport(task.key, task.attempt, Phase.SUCCEEDED, 1.0, 1.0)
        assert world.store.tasks.report_all([report], world.clock.now())
    world.go(60)
    assert world.state(job) is JobState.SUCCEEDED
    world.check_nothing_is_left()


def test_an_instance_that_nobody_knows_is_ended(world: World) -> None:
    world.provider.launch(LaunchRequest("stray", "sure", world.store.deployment_id, "x", "main", "secret"))
    world.go(100)
    assert world.cloud.live() == []
    assert world.events("instance.orphan_ended")


def test_the_trained_policy_runs_the_loop_too(tmp_path: Path) -> None:
    world = World(tmp_path, cheap_and_sure(), policy="multicloud")
    jobs = [world.submit(batch(f"job{k}", deadline_s=5000)) for k in range(4)]
    world.ends_well(*jobs)
    decision = world.store.decisions.latest(1)[0]
    values = {name for one in decision.candidates for name in one.values}
    assert set() < values <= set(MARKET_COMPONENTS)


def test_an_attempt_that_ended_with_its_machine_is_not_begun_again_in_silence(tmp_path: Path) -> None:
    """Its work is done at 330 s, its machine is taken at 335 s, and its runner is silent until 400 s."""
    world = World(tmp_path, cheap_and_sure(available=lambda now_s: now_s < 1_000_000 + 335))
    job = world.submit(batch())
    world.go(320)
    reports = world.runner.reports

    def silent(assignments: Sequence[Assignment]) -> Sequence[TaskReport]:
        world.cloud.settle()
        if world.clock.now() < 1_000_000 + 400:
            raise RunnerError("no answer")
        return reports(assignments)

    world.runner.reports = silent  # type: ignore[method-assign]
    world.ends_well(job)
    assert len(world.cloud.machines) == 1
    assert world.store.tasks.get(TaskKey(job, "main")).attempt == 1


@pytest.mark.real
def test_a_run_that_saved_something_is_no_loss_in_a_row(tmp_path: Path) -> None:
    """Three losses after five saved minutes each: with at most two in a row, the job does not fail."""
    world = World(tmp_path, cheap_and_sure(), settings=replace(SETTINGS, losses_most=2))
    job = world.submit(batch(work_s=1500.0))
    for _ in range(3):
        while world.store.tasks.get(TaskKey(job, "main")).phase is not Phase.RUNNING:
            world.go(10.0)
        world.go(300.0)
        world.cloud.kill(world.cloud.live()[0], by_provider=True)
        world.go(10.0)
        task = world.store.tasks.get(TaskKey(job, "main"))
        assert task.losses == 1
        assert task.not_before_s <= world.clock.now()
    world.ends_well(job)


def test_losses_in_which_nothing_was_saved_count_together_and_fail_the_job(tmp_path: Path) -> None:
    world = World(tmp_path, cheap_and_sure(), settings=replace(SETTINGS, losses_most=2))
    job = world.submit(batch(work_s=1500.0))
    for losses in (1, 2, 3):
        while not world.cloud.live():
            world.go(10.0)
        world.cloud.kill(world.cloud.live()[0], by_provider=True)
        world.go(10.0)
        assert world.store.tasks.get(TaskKey(job, "main")).losses == losses
    assert world.state(job) is JobState.FAILED
    assert "3 attempts in a row were lost" in world.store.jobs.get(job).reason


class Mute(SimulatedProvider):
    """Launches and times out; then does not describe, and says that it has no capacity."""

    passes = 0

    def launch(self, request: LaunchRequest) -> InstanceReport:
        self.passes += 1
        if self.passes == 1:
            super().launch(request)
            raise ProviderError("time-out")
        if self.passes == 2:
            raise CapacityError("no capacity")
        return super().launch(request)

    def describe(self, deployment: str) -> Sequence[InstanceReport]:
        if self.passes == 1:
            raise ProviderError("time-out")
        return super().describe(deployment)


def test_an_instance_whose_launch_was_not_heard_of_is_paid(world: World) -> None:
    mute = Mute(world.cloud)
    world.rents_from(mute)
    job = world.submit(batch())
    world.ends_well(job)
    assert (mute.passes, world.cloud.launches) == (2, 1)
    assert world.store.costs.of_job(job, world.clock.now()).seconds >= 330


class Late(SimulatedProvider):
    """Loses the answer to the first launch, and describes no machine in the first 30 s after its launch."""

    def launch(self, request: LaunchRequest) -> InstanceReport:
        report = super().launch(request)
        if self.cloud.launches == 1:
            raise ProviderError("time-out")
        return report

    def describe(self, deployment: str) -> Sequence[InstanceReport]:
        seen_s = self.cloud.clock.now() - 30
        return [one for one in super().describe(deployment) if one.launched_s <= seen_s]


@pytest.mark.parametrize(("taken", "seconds"), [(False, 30), (True, 20)])
def test_an_instance_shown_after_it_was_given_up_is_paid(world: World, taken: bool, seconds: int) -> None:
    """Launched at 0 s, given up at 10 s, shown at 30 s: ended then, unless the provider took it at 20 s."""
    world.rents_from(Late(world.cloud))
    job = world.submit(batch())
    world.go(10)
    world.cancel(job)
    world.go(10)
    (instance,) = world.store.instances.of_job(job)
    assert (instance.provider_id, instance.ended_s) == (None, 1_000_010.0)
    if taken:
        world.cloud.kill(world.cloud.live()[0], by_provider=True)
    world.go(100)
    world.check_nothing_is_left()
    assert world.cloud.launches == 1
    (instance,) = world.store.instances.of_job(job)
    assert (instance.provider_id, instance.ended_s) == ("sim-1", 1_000_000.0 + seconds)
    assert instance.by_provider is taken
    bill = world.store.costs.of_job(job, world.clock.now())
    assert bill.seconds == seconds
    assert float(bill.usd) == pytest.approx(60 * 0.3 / 3600)  # a provider bills a minute at least
    found = "instance.ended" if taken else "instance.found"
    assert kinds(world, job).count(found) == 1
    assert world.events("instance.orphan_ended") == []


def test_a_runner_that_comes_up_slowly_costs_no_attempt(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, real = world.submit(batch()), world.runner.ensure
    asked_s: list[float] = []

    def ensure(assignment: Assignment) -> None:
        asked_s.append(world.clock.now())
        if asked_s[-1] < asked_s[0] + 200.0:
            raise StartingError("its master is starting")
        real(assignment)

    monkeypatch.setattr(world.runner, "ensure", ensure)
    world.ends_well(job)
    assert world.store.tasks.of_job(job)[0].attempt == 1
    assert {later - earlier for earlier, later in pairwise(asked_s)} == {world.settings.period_s}


@pytest.mark.real
@pytest.mark.parametrize("heals_s", [450.0, math.inf])
def test_a_retry_is_not_put_off_past_the_last_safe_moment(tmp_path: Path, heals_s: float) -> None:
    """Starts fail at first; on demand takes 30 s of launch, 20 of set-up and 300 of work.

    With the margins of the net and two passes that is 465 s: the last safe moment is 535 s. The first attempt
    is given up at about 350 s and would be followed by a back-off of 300 s.
    """
    settings = replace(SETTINGS, back_off_s=300.0, back_off_most_s=600.0)
    world = World(tmp_path, cheap_and_sure(), settings=settings)
    job = world.submit(batch(deadline_s=1000.0))
    began_s, real = world.clock.now(), world.runner.ensure

    def ensure(assignment: Assignment) -> None:
        if world.clock.now() < began_s + heals_s:
            raise RunnerError("the file share does not answer")
        real(assignment)

    world.runner.ensure = ensure  # type: ignore[method-assign]
    world.go(1400.0)
    starts = [event.time_s - began_s for event in world.events("instance.launched")]
    assert starts[0] == 0.0
    assert 535 <= starts[1] <= 545
    if heals_s < math.inf:
        assert world.took_s(job) <= 1000.0
    else:
        assert len(starts) == 2, "then it backs off again"
        assert world.state(job) is not JobState.FAILED
