"""Faults at random and in every order: no job is lost, no machine is left, the bill is right."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from benchmarks.simulated import SimulatedCloud, SimulatedRunner
from spotweave.deploy.billing import micro_usd_hour
from spotweave.deploy.model.fields import MOST_GB, MOST_SECONDS
from spotweave.deploy.model.instances import Market
from spotweave.deploy.model.jobs import JobSpec, JobState, Profile
from spotweave.deploy.model.tasks import Assignment, Phase, TaskReport
from spotweave.deploy.runners.base import RunnerError
from spotweave.deploy.scheduler import roster
from spotweave.deploy.scheduler.needs import need_of
from spotweave.deploy.scheduler.settings import SchedulerSettings
from tests.deploy.bills import wrong_charges
from tests.deploy.scheduler.chaos import (
    INCIDENTS,
    Armed,
    ChaoticWorld,
    Faults,
    any_job,
    stream,
    training,
)
from tests.deploy.scheduler.test_isolation import HOSTILE, ODD
from tests.deploy.scheduler.worlds import World, batch, rentable

SEEDS = 10
FAULTS = 1000
RATE = 0.06
LIVE_JOBS = 5
PASSES_TO_A_MOVE = 500


@pytest.mark.nightly
@pytest.mark.mistakes
@pytest.mark.parametrize("seed", range(SEEDS))
def test_faults_at_random(tmp_path: Path, seed: int) -> None:
    faults = Faults(seed, RATE, FAULTS)
    world = ChaoticWorld(tmp_path, faults)
    numbers = itertools.count()

    def go_on() -> None:
        if len(world.store.jobs.live()) < LIVE_JOBS:
            spec = any_job(f"job{next(numbers)}", faults.rng)
            if faults.rng.random() < 0.2:
                world.cloud.fails[spec.name] = faults.rng.randint(1, 4)
            world.send(spec)
        world.step()
        for kind, happen in INCIDENTS.items():
            if faults.strikes(kind):
                happen(world, faults.rng.randrange(100), faults.rng.random())

    while faults.left:
        go_on()
    struck = sum(faults.counts.values())
    assert struck == FAULTS
    assert len(faults.counts) > 25, faults.counts
    # Among the faults a move is luck; what ends well must have had one.
    for _ in range(PASSES_TO_A_MOVE):
        if world.events("task.moved"):
            break
        go_on()
    assert world.events("task.moved")
    world.let_end()
    world.check_in_the_end()
    world.close()


POINTS = 120
"""A pass with a few jobs has this many points at which something can go wrong."""


class Chaos(RuleBasedStateMachine):
    """Submits, lets time pass and breaks things; in the end all must have come right."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.faults = Armed()
        self.world = ChaoticWorld(Path(self.folder.name), self.faults)
        self.jobs = 0

    def teardown(self) -> None:
        try:
            self.faults.disarm()
            self.world.let_end()
            self.world.check_in_the_end()
        finally:
            self.world.close()
            self.folder.cleanup()

    @invariant()
    def nothing_is_wrong(self) -> None:
        self.world.check_always()

    # What users do.

    @rule(
        work_s=st.floats(30.0, 600.0),
        instances=st.integers(1, 3),
        deadline_s=st.none() | st.floats(300.0, 3000.0),
        budget_usd=st.none() | st.floats(0.005, 5.0),
        failures=st.integers(0, 4),
    )
    def submit_batch(self, failures: int, **facts: Any) -> None:
        name = self._name()
        self.world.cloud.fails[name] = failures
        self.world.send(batch(name, **facts))

    @rule(batches=st.integers(1, 6))
    def submit_stream(self, batches: int) -> None:
        self.world.send(stream(self._name(), batches))

    @rule(clients=st.integers(2, 4))
    def submit_training(self, clients: int) -> None:
        self.world.send(training(self._name(), clients))

    # What passes.

    @rule(passes=st.integers(1, 8))
    def time_passes(self, passes: int) -> None:
        for _ in range(passes):
            self.world.step()

    @rule(seconds=st.floats(1.0, 600.0))
    def nobody_schedules(self, seconds: float) -> None:
        self.world.clock.sleep(seconds)
        self.world.restart()

    # What goes wrong.

    @rule(points=st.integers(1, POINTS), error=st.integers(0, 4))
    def strike(self, points: int, error: int) -> None:
        """A kill or an error somewhere in the next passes."""
        self.faults.arm(points, error)
        self.world.step()

    @rule(
        kinds=st.lists(st.sampled_from(sorted(INCIDENTS)), min_size=1, max_size=3),
        which=st.integers(0, 99),
        share=st.floats(0.0, 1.0),
    )
    def incidents(self, kinds: list[str], which: int, share: float) -> None:
        for kind in kinds:
            INCIDENTS[kind](self.world, which, share)

    def _name(self) -> str:
        self.jobs += 1
        return f"job{self.jobs}"


TestChaos = pytest.mark.nightly(pytest.mark.mistakes(Chaos.TestCase))
TestChaos.settings = settings(
    max_examples=30,
    stateful_step_count=40,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)


# Sixty-six hostile jobs next to twenty honest ones, who are on time; each hostile one is dealt with.


PERIOD_S = 5.0
DEALT_WITH_S = 300.0
BUDGET_USD = 0.05
HONEST = 20
EACH = 6
STUBBORN_S = 12.0


class HostileRunner(SimulatedRunner):
    """Runs jobs whose names say what they do to it."""

    def __init__(self, cloud: SimulatedCloud) -> None:
        super().__init__(cloud)
        self.asked_to_end_s: dict[str, float] = {}

    def ensure(self, assignment: Assignment) -> None:
        name = assignment.spec.name
        if name.startswith("refused"):
            raise RunnerError("the argument list is too long")
        if name.startswith("raising"):
            raise OverflowError("int too large to convert to float")
        super().ensure(assignment)

    def reports(self, assignments: Sequence[Assignment]) -> Sequence[TaskReport]:
        return [
            self._spoilt(report, one)
            for report, one in zip(super().reports(assignments), assignments, strict=True)
        ]

    def _spoilt(self, report: TaskReport, assignment: Assignment) -> TaskReport:
        kind, _, number = assignment.spec.name.partition("-")
        spoils = {"poison": HOSTILE, "odd": ODD}.get(kind)
        if spoils is not None:
            spoil: Callable[[TaskReport], TaskReport] = list(spoils.values())[int(number) % len(spoils)]
            return spoil(report)
        if kind == "lost" and report.phase is Phase.RUNNING:
            return TaskReport(
                report.key, report.attempt, Phase.LOST, message="all its masters are unresponsive"
            )
        return report

    def stop(self, assignment: Assignment) -> None:
        """What ignores SIGTERM ends after its grace; nobody waits for it."""
        if assignment.spec.name.startswith("stubborn"):
            now_s = self.cloud.clock.now()
            asked_s = self.asked_to_end_s.setdefault(assignment.attempt_id, now_s)
            if now_s - asked_s < STUBBORN_S:
                raise RunnerError("its driver still ends")
        super().stop(assignment)

    def forget(self, job_id: str) -> None:
        """After its driver."""
        asked_s = self.asked_to_end_s.get(f"{job_id}.main.1", 0.0)
        if job_id.startswith("stubborn") and self.cloud.clock.now() - asked_s < STUBBORN_S:
            raise RunnerError("its driver still ends")
        super().forget(job_id)


class HostileWorld(World):
    def runs(self) -> SimulatedRunner:
        return HostileRunner(self.cloud)


def _hostile() -> list[JobSpec]:
    often: dict[str, float] = {"checkpoint_s": MOST_SECONDS, "checkpoint_interval_s": 1.0}
    slow: dict[str, float] = {"reference_speed": 1000.0, "sensitivity": 0.01}
    vast = Profile.model_validate({"data_gb": MOST_GB, "checkpoint_gb": MOST_GB, **often, **slow})
    found = []
    for number in range(EACH):
        found += [
            batch(f"refused-{number}"),
            batch(f"raising-{number}"),
            batch(f"poison-{number}", work_s=36_000.0, budget_usd=BUDGET_USD),
            batch(f"odd-{number}", work_s=200.0),
            batch(f"lost-{number}", work_s=36_000.0),
            batch(f"failing-{number}", work_s=20.0),
            batch(f"stubborn-{number}", work_s=36_000.0),
            batch(f"dear-{number}", work_s=36_000.0, budget_usd=BUDGET_USD),
            batch(f"estimate-{number}"),
            batch(f"vast-{number}", work_s=MOST_SECONDS, profile=vast, budget_usd=BUDGET_USD),
            batch(f"hopeless-{number}", work_s=MOST_SECONDS, deadline_s=1.0, budget_usd=BUDGET_USD),
        ]
    return found


@pytest.mark.mistakes
@pytest.mark.real
def test_honest_jobs_are_on_time_and_hostile_ones_are_dealt_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def need(job: object, *args: object) -> object:
        if getattr(job, "job_id", "").startswith("estimate"):
            raise ZeroDivisionError("float division by zero")
        return need_of(job, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(roster, "need_of", need)
    kinds: list[tuple[str, Market]] = [("spot-0", "spot"), ("spot-1", "spot"), ("sure", "on_demand")]
    offers = [rentable(name, market, launch_s=10.0, quota=40) for name, market in kinds]
    settings = SchedulerSettings(period_s=PERIOD_S, ask_again_s=15.0, cool_down_s=60.0)
    world = HostileWorld(tmp_path, offers, settings=settings)
    hostile = _hostile()
    assert len(hostile) >= 60
    for spec in hostile:
        if spec.name.startswith("failing"):
            world.cloud.fails[spec.name] = 99
    began_s = world.clock.now()
    ids = [world.submit(spec) for spec in hostile]
    honest = [world.submit(batch(f"honest-{k}", work_s=300.0, deadline_s=900.0)) for k in range(HONEST)]
    world.go(120.0)
    stubborn = [job_id for job_id in ids if job_id.startswith("stubborn")]
    for job_id in stubborn:
        world.cancel(job_id)
    cancelled_s = world.clock.now()
    world.go(30.0)
    assert not any(driver.startswith("stubborn") for driver in world.cloud.drivers)
    assert world.clock.now() - cancelled_s <= 30.0 + PERIOD_S
    world.go(DEALT_WITH_S - 150.0)
    quarantined = {event.job_id for event in world.events("job.quarantined")}
    open_ones = [
        job_id for job_id in ids if job_id not in quarantined and world.store.jobs.get(job_id).state.live
    ]
    # What neither raises nor fails is an ordinary job: odd numbers are bounded, vast work is limited by its
    # budget, and a deadline that nothing can meet any more is none.
    ordinary = ("odd", "dear", "vast", "hopeless")
    assert [job_id for job_id in open_ones if not job_id.startswith(ordinary)] == []
    assert world.clock.now() - began_s <= DEALT_WITH_S + PERIOD_S
    for job_id in ids:
        record = world.store.jobs.get(job_id)
        if record.state in (JobState.FAILED, JobState.CANCELLED):
            assert record.reason, job_id
    world.go(1800.0)
    for job_id in honest:
        assert world.state(job_id) is JobState.SUCCEEDED
        assert world.took_s(job_id) <= 900.0
    a_pass_usd = micro_usd_hour(1.0) / 1e6 * PERIOD_S / 3600
    for spec, job_id in zip(hostile, ids, strict=True):
        if spec.budget_usd is not None:
            assert world.spent_usd(job_id) <= spec.budget_usd + a_pass_usd, job_id
    assert wrong_charges(world.store) == []
