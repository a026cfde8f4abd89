"""One job cannot stop the handling of all others, pass its budget, or outlive its end."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spotweave.deploy.model.instances import InstanceReport, LaunchRequest
from spotweave.deploy.model.jobs import JobState, TaskKey
from spotweave.deploy.model.tasks import Assignment, Phase, TaskReport
from spotweave.deploy.providers.base import CapacityError, ProviderError
from spotweave.deploy.runners.base import RunnerError
from spotweave.deploy.scheduler import observer, retries, roster, settling
from spotweave.deploy.scheduler.needs import need_of
from spotweave.deploy.scheduler.observer import bounded
from spotweave.deploy.scheduler.retries import FAULTS, FIRST_S
from tests.deploy.bills import wrong_charges
from tests.deploy.scheduler.worlds import SETTINGS, World, batch, cheap_and_sure

pytestmark = pytest.mark.mistakes


BEYOND = OverflowError("beyond everything\nthat was thought of")


def _raise_for(job_id: str, real: Callable[..., Any], error: Exception = BEYOND) -> Callable[..., Any]:
    """The real thing, but for what is about one job."""

    def raises(*args: Any, **keywords: Any) -> Any:
        about = {getattr(getattr(one, "key", one), "job_id", None) for one in args}
        if job_id in about or job_id == ALL:
            raise error
        return real(*args, **keywords)

    return raises


ALL = "*"
STAGES = {
    "reading a task": (observer, "assignment_of"),
    "reading a report": (observer, "bounded"),
    "settling a task": (settling.Ending, "_settle_task"),
    "looking at a task with a place": (roster.Roster, "_look_at_placed"),
}


@pytest.mark.real
@pytest.mark.parametrize("stage", STAGES)
def test_a_job_that_raises_is_set_aside_and_all_others_go_on(
    world: World, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    poison = world.submit(batch("poison", work_s=1000.0))
    world.go(100.0)
    where, what = STAGES[stage]
    monkeypatch.setattr(where, what, _raise_for(poison, getattr(where, what)))
    honest, other = world.submit(batch("honest")), world.submit(batch("other", work_s=5000.0))
    if stage == "settling a task":
        world.cloud.kill(world.cloud.live()[0], by_provider=True)
    world.go(100.0)
    world.cancel(other)
    world.go(600.0)
    assert world.state(honest) is JobState.SUCCEEDED
    assert not world.store.instances.live()
    (event, *_) = world.events("job.quarantined")
    assert event.job_id == poison
    assert "OverflowError: beyond everything" in str(event.data["reason"])
    assert "\n" not in str(event.data["reason"])
    assert world.state(poison).live
    monkeypatch.undo()
    world.until_all_end()
    assert world.state(poison) is JobState.SUCCEEDED, "once it can be handled it goes on"
    world.check_nothing_is_left()


@pytest.mark.real
def test_a_job_is_set_aside_for_longer_each_time(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    poison = world.submit(batch("poison"))
    monkeypatch.setattr(roster, "need_of", _raise_for(poison, need_of))
    world.go(1000.0)
    waits = [event.data["again_in_s"] for event in world.events("job.quarantined")]
    assert waits[:4] == [FIRST_S, 2 * FIRST_S, 4 * FIRST_S, 8 * FIRST_S]
    assert world.cloud.machines == {}


@pytest.mark.real
def test_a_job_that_always_raises_is_given_up(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    poison = world.submit(batch("poison", work_s=36_000.0))
    monkeypatch.setattr(retries, "QUARANTINE_MOST_S", 120.0)
    monkeypatch.setattr(observer, "assignment_of", _raise_for(poison, observer.assignment_of))
    assert "set aside 10 times: reading a task: OverflowError" in world.why_failed(poison)
    assert len(world.offers_taken()) == retries.TIMES


def test_one_fault_alone_sets_nobody_aside(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    job = world.submit(batch("poison"))
    with monkeypatch.context() as patched:
        patched.setattr(roster, "need_of", _raise_for(job, need_of))
        world.go((FAULTS - 1) * world.settings.period_s)
    world.ends_well(job)
    assert world.events("job.quarantined") == []


@pytest.mark.real
def test_a_stage_that_fails_for_all_leaves_the_others(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing can be decided any more; what runs is still ended, by its owner or when its budget is spent."""
    poor = world.submit(batch("poor", work_s=36_000.0, budget_usd=0.05))
    cancelled = world.submit(batch("cancelled", work_s=36_000.0))
    world.go(100.0)
    monkeypatch.setattr(world.scheduler.chooser, "choose", _raise_for(ALL, world.scheduler.chooser.choose))
    world.cancel(cancelled)
    for _ in range(100):
        with pytest.raises(OverflowError):
            world.scheduler.step()
        world.clock.sleep(world.settings.period_s)
    assert world.state(poor) is JobState.FAILED
    assert world.spent_usd(poor) <= 0.05
    world.check_nothing_is_left()


# Reports.

HOSTILE: Mapping[str, Callable[[TaskReport], Any]] = {
    "raises": lambda report: 1 / 0,
    "another job's": lambda report: replace(report, key=TaskKey("honest-1", "main"), phase=Phase.SUCCEEDED),
    "no phase": lambda report: _spoilt(report, phase="running"),
    "no numbers": lambda report: _spoilt(report, progress=None),
    "texts for numbers": lambda report: _spoilt(report, executions_done="many", saved="all"),
}
ODD: Mapping[str, Callable[[TaskReport], TaskReport]] = {
    "vast numbers": lambda report: replace(report, executions_done=10**30, misses=10**400, next_due_s=1e308),
    "not a number": lambda report: replace(report, progress=float("nan"), saved=float("inf")),
    "negative": lambda report: replace(report, progress=-1.0, executions_done=-5, execution_since_s=-1e30),
    "endless": lambda report: replace(report, last_execution_s=float("inf"), execution_since_s=float("nan")),
    "megabytes": lambda report: replace(
        report, message="x" * 10**7, saved_region="\0" * 10**6, details={"a\0" * 9: "\udc80" * 10**6}
    ),
}


def _spoilt(report: TaskReport, **values: Any) -> TaskReport:
    """With values that are not of their kinds."""
    return replace(report, **values)


def _reports(world: World, job_id: str, spoil: Callable[[TaskReport], TaskReport]) -> None:
    real = world.runner.reports

    def reports(assignments: Sequence[Assignment]) -> Sequence[TaskReport]:
        told = real(assignments)
        return [spoil(one) if one.key.job_id == job_id else one for one in told]

    world.runner.reports = reports  # type: ignore[method-assign]


@pytest.mark.real
@pytest.mark.parametrize("kind", HOSTILE)
def test_a_report_that_cannot_be_read_costs_its_own_job_only(world: World, kind: str) -> None:
    honest = world.submit(batch("honest", work_s=300.0))
    poison = world.submit(batch("poison", work_s=36_000.0, budget_usd=0.05))
    world.go(100.0)
    _reports(world, poison, HOSTILE[kind])
    world.go(600.0)
    assert world.state(honest) is JobState.SUCCEEDED
    assert [event.job_id for event in world.events("job.quarantined")][:1] == [poison]
    world.go(600.0)
    a_pass_usd = 1.0 * world.settings.period_s / 3600
    assert world.spent_usd(poison) <= 0.05 + a_pass_usd
    assert wrong_charges(world.store) == []


@pytest.mark.real
@pytest.mark.parametrize("kind", ODD)
def test_a_report_with_odd_values_is_kept_within_bounds(world: World, kind: str) -> None:
    job, honest = world.submit(batch("odd", work_s=600.0)), world.submit(batch("honest", work_s=600.0))
    world.go(100.0)
    _reports(world, job, ODD[kind])
    world.until_all_end()
    assert (world.state(job), world.state(honest)) == (JobState.SUCCEEDED, JobState.SUCCEEDED)
    task = world.store.tasks.get(TaskKey(job, "main"))
    assert 0 <= task.progress <= 1
    assert 0 <= task.executions_done <= 10**8
    assert len(task.message) < 5000


def test_bounds_of_a_report() -> None:
    spec = batch()
    asked = Assignment(TaskKey("job", "main"), 3, spec, (), "")
    told = TaskReport(
        asked.key, 3, Phase.RUNNING, 1.5, -0.5, "m", 7, 2, 60.0, True, 940.0, {"a": "b"}, 1050.0, 0.25, "r"
    )
    assert bounded(told, asked, 1000.0) == replace(told, progress=1.0, saved=0.0)
    with pytest.raises(ValueError, match=r"answers for job\.main\.3"):
        bounded(replace(told, attempt=2), asked, 1000.0)


# What fails to start is not rented for without end.


REFUSED = RunnerError("the argument list is too long")
UNEXPECTED = KeyError("unexpected\nin two lines")
FAILS_TO_START = [
    pytest.param("ensure", REFUSED, 6, str(REFUSED), id="its start is refused"),
    pytest.param("ensure", BEYOND, 6, "OverflowError: beyond everything", id="its start raises"),
    pytest.param("launch", UNEXPECTED, 0, f"KeyError: {UNEXPECTED}", id="its launches raise"),
]


@pytest.mark.parametrize(("call", "error", "rented", "words"), FAILS_TO_START)
def test_a_start_that_always_fails_is_given_up(
    world: World, monkeypatch: pytest.MonkeyPatch, call: str, error: Exception, rented: int, words: str
) -> None:
    job, honest = world.submit(batch("poison")), world.submit(batch("honest"))
    caller = world.runner if call == "ensure" else world.provider
    monkeypatch.setattr(caller, call, _raise_for(job, getattr(caller, call), error))
    reason = world.why_failed(job)
    assert len(world.offers_taken()) == rented + 1
    assert world.state(honest) is JobState.SUCCEEDED
    assert f"{world.settings.failures_most} attempts in a row came to nothing" in reason
    assert words in reason
    assert world.took_s(job) < 20 * 60


@pytest.mark.real
def test_nodes_that_never_get_ready_are_given_up_and_their_offer_is_left_alone(world: World) -> None:
    job = world.submit(batch())
    for number in range(1, 100):
        world.cloud.hung_s[f"sim-{number}"] = 0.0
    assert "not ready" in world.why_failed(job)
    assert len(world.offers_taken()) == world.settings.failures_most
    assert world.offers_taken()[:2] == ["spot", "sure"], "after the first failure it tried elsewhere"


def test_an_attempt_that_is_lost_on_healthy_machines_counts(world: World) -> None:
    job = world.submit(batch(work_s=36_000.0))
    _reports(world, job, lambda report: replace(report, phase=Phase.LOST, message="the driver was killed"))
    assert "the driver was killed" in world.why_failed(job)
    assert len(world.offers_taken()) == world.settings.failures_most


def test_failed_starts_of_one_job_do_not_close_offers_for_others(world: World) -> None:
    world.runner.ensure = _raise_for("poison-1", world.runner.ensure)  # type: ignore[method-assign]
    world.submit(batch("poison"))
    world.go(60.0)
    honest = world.submit(batch("honest"))
    world.go(20.0)
    assert [one.offer.offer_id for one in world.store.instances.of_job(honest)] == ["spot"]


@pytest.mark.real
def test_part_of_a_gang_is_not_rented_again_and_again(tmp_path: Path) -> None:
    """The offer shows four instances and has two: what was launched is paid for each time."""
    world = World(tmp_path, cheap_and_sure()[:1], settings=replace(SETTINGS, period_s=30.0))

    def has_two(request: LaunchRequest) -> None:
        if len(world.cloud.live()) >= 2:
            raise CapacityError("no capacity")

    world.before_launches(has_two)
    world.submit(batch("gang", instances=3))
    world.go(2 * 3600.0)
    assert len(world.cloud.machines) <= 2 * (6 + 2 * 2), "it is tried each half hour in the end"


# Ends.


def test_a_cancelled_job_s_driver_and_secrets_are_gone_with_it(world: World) -> None:
    job = world.submit(batch(work_s=5000.0))
    world.go(100.0)
    assert world.cloud.drivers
    assert world.cloud.remembered == {job}
    world.cancel(job)
    world.go(20.0)
    assert world.cloud.drivers == set()
    assert world.cloud.remembered == set()
    world.go(20.0)
    assert world.cloud.completions == {}
    world.check_nothing_is_left()


@pytest.mark.real
def test_what_ends_slowly_is_asked_again_within_seconds(tmp_path: Path) -> None:
    """A driver that does not end at once costs until it has: its backoff does not grow to minutes."""
    world = World(tmp_path, cheap_and_sure(), settings=replace(SETTINGS, period_s=1.0))
    job = world.submit(batch(work_s=5000.0))
    world.go(100.0)
    asked_s: list[float] = []

    def stop(assignment: Assignment) -> None:
        asked_s.append(world.clock.now())
        raise RunnerError("it still ends")

    world.runner.stop = stop  # type: ignore[method-assign]
    world.cancel(job)
    world.go(120.0)
    gaps = [after - before for before, after in itertools.pairwise(asked_s)]
    assert len(gaps) >= 15
    assert max(gaps) <= world.settings.end_back_off_most_s + world.settings.period_s


# Instances that are not reported.


@pytest.mark.real
def test_an_hour_of_empty_answers_ends_nothing_that_answers(tmp_path: Path) -> None:
    world = World(tmp_path, cheap_and_sure(), settings=replace(SETTINGS, period_s=30.0))
    jobs = [world.submit(batch(f"job{k}", work_s=5000.0)) for k in range(4)]
    world.go(100.0)
    real = world.provider.describe
    world.provider.describe = lambda deployment: []  # type: ignore[method-assign]
    world.go(3600.0)
    assert len(world.cloud.live()) == 4
    world.provider.describe = real  # type: ignore[method-assign]
    world.ends_well(*jobs)
    assert len(world.cloud.machines) == 4


@pytest.mark.real
def test_what_is_neither_reported_nor_answers_is_ended_after_a_while(tmp_path: Path) -> None:
    world = World(tmp_path, cheap_and_sure(), settings=replace(SETTINGS, silent_within_s=10_000.0))
    job = world.submit(batch(work_s=1200.0))
    world.go(100.0)
    (lost,) = world.cloud.live()
    real = world.provider.describe

    def describe(deployment: str) -> Sequence[InstanceReport]:
        return [one for one in real(deployment) if one.instance_id != lost]

    world.provider.describe = describe  # type: ignore[method-assign]
    world.cloud.hung_s[lost] = world.clock.now()
    world.go(world.settings.vanished_after_s - 50.0)
    assert world.cloud.live() == [lost]
    world.go(100.0)
    assert lost not in world.cloud.live(), "it did run: it is ended before it is booked as gone"
    assert len(world.events("instance.vanished")) == 1
    world.ends_well(job)


@pytest.mark.real
def test_a_machine_that_hangs_is_left_and_given_back(world: World) -> None:
    """It is reported as running, and billed; the agent and all that ran there do not answer."""
    job = world.submit(batch(work_s=600.0))
    world.go(100.0)
    (hung,) = world.cloud.live()
    world.cloud.hung_s[hung] = world.clock.now()
    world.go(world.settings.silent_within_s)
    assert world.cloud.live() == [hung]
    world.go(30.0)
    assert hung not in world.cloud.live()
    requeued = [event.data["reason"] for event in world.events("task.requeued")]
    assert requeued == ["1 of 1 instances were not answering any more"]
    world.ends_well(job)


def test_launches_that_keep_failing_are_no_failure_of_the_task_and_say_why(tmp_path: Path) -> None:
    settings = replace(SETTINGS, ready_within_s=40.0, failures_most=2)
    world = World(tmp_path, cheap_and_sure(), settings=settings)
    job = world.submit(batch())

    def only_on_demand(request: LaunchRequest) -> None:
        if request.offer_id == "spot":
            raise ProviderError("spot: NewCodeOfAws: nobody knows it yet")

    world.before_launches(only_on_demand)
    world.ends_well(job)
    (refused,) = world.events("instance.refused")
    assert "NewCodeOfAws: nobody knows it yet" in str(refused.data["error"])
    assert [event.data["lost"] for event in world.events("task.requeued")] == [False]
    assert set(world.offers_taken()) == {"sure"}


@pytest.mark.parametrize("ahead_s", [7200.0, -7200.0])
def test_a_wrong_clock_of_the_scheduler_fails_no_job_and_is_told_once(world: World, ahead_s: float) -> None:
    jobs, launch = [world.submit(batch(name)) for name in ("one", "other")], world.provider.launch

    def launch_by_its_own_clock(request: LaunchRequest) -> InstanceReport:
        report = launch(request)
        return replace(report, launched_s=report.launched_s - ahead_s)

    world.provider.launch = launch_by_its_own_clock  # type: ignore[method-assign]
    world.ends_well(*jobs)
    assert world.events("task.requeued") == []
    (told,) = world.events("clock.differs")
    assert f"clock is {ahead_s:+.0f} s off that of simulated: synchronise it" in str(told.data["reason"])
