"""Faults at random and in every order: no job is lost, no machine is left, the bill is right."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.deploy.scheduler.chaos import OFFERS, ChaoticWorld, any_job, machines, stream, training
from tests.deploy.scheduler.faults import Armed, Faults
from tests.deploy.scheduler.worlds import batch

SEEDS = 10
FAULTS = 1000
RATE = 0.06
LIVE_JOBS = 5
PASSES_TO_A_MOVE = 500


def happenings(world: ChaoticWorld, faults: Faults) -> dict[str, Callable[[], None]]:
    """What may happen to a world between two passes."""
    rng = faults.rng

    def end(by_provider: bool) -> None:
        running = machines(world)
        if running:
            world.cloud.kill(rng.choice(running), by_provider=by_provider)

    def notice() -> None:
        running = machines(world)
        if running:
            world.cloud.notice(rng.choice(running), world.clock.now() + rng.uniform(5.0, 120.0))

    def no_capacity() -> None:
        world.down_until[rng.choice(OFFERS)] = world.clock.now() + rng.uniform(10.0, 600.0)

    def set_back() -> None:
        world.own.behind_s = rng.uniform(0.0, 60.0)

    def cancel() -> None:
        live = world.store.jobs.live()
        if live:
            world.cancel(rng.choice(live).job_id)

    return {
        "a machine is taken": lambda: end(True),
        "a machine breaks": lambda: end(False),
        "a machine is to be taken": notice,
        "an offer has no capacity": no_capacity,
        "the clock is set back": set_back,
        "the scheduler is away": lambda: world.clock.sleep(rng.uniform(60.0, 600.0)),
        "another scheduler starts": world.second_scheduler,
        "a job is cancelled": cancel,
        "a machine that nobody asked for": world.stray_machine,
        "the cloud says nothing": lambda: world.go_blind(rng.uniform(10.0, 900.0)),
    }


@pytest.mark.nightly
@pytest.mark.mistakes
@pytest.mark.parametrize("seed", range(SEEDS))
def test_faults_at_random(tmp_path: Path, seed: int) -> None:
    faults = Faults(seed, RATE, FAULTS)
    world = ChaoticWorld(tmp_path, faults)
    numbers = itertools.count()
    may_happen = happenings(world, faults)

    def go_on() -> None:
        if len(world.store.jobs.live()) < LIVE_JOBS:
            spec = any_job(f"job{next(numbers)}", faults.rng)
            if faults.rng.random() < 0.2:
                world.cloud.fails[spec.name] = faults.rng.randint(1, 4)
            world.send(spec)
        world.step()
        for kind, happen in may_happen.items():
            if faults.strikes(kind):
                happen()

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

    @rule(which=st.integers(0, 99))
    def cancel(self, which: int) -> None:
        live = self.world.store.jobs.live()
        if live:
            self.world.cancel(live[which % len(live)].job_id)

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

    @precondition(lambda self: bool(machines(self.world)))
    @rule(which=st.integers(0, 99), by_provider=st.booleans())
    def end_machine(self, which: int, by_provider: bool) -> None:
        running = machines(self.world)
        self.world.cloud.kill(running[which % len(running)], by_provider=by_provider)

    @precondition(lambda self: bool(machines(self.world)))
    @rule(which=st.integers(0, 99), within_s=st.floats(1.0, 120.0))
    def notice(self, which: int, within_s: float) -> None:
        running = machines(self.world)
        self.world.cloud.notice(running[which % len(running)], self.world.clock.now() + within_s)

    @rule(offer=st.sampled_from(OFFERS), seconds=st.floats(10.0, 600.0))
    def no_capacity(self, offer: str, seconds: float) -> None:
        self.world.down_until[offer] = self.world.clock.now() + seconds

    @rule(seconds=st.floats(0.0, 60.0))
    def set_clock_back(self, seconds: float) -> None:
        """The scheduler's, not the cloud's."""
        self.world.own.behind_s = seconds

    @rule(seconds=st.floats(10.0, 900.0))
    def see_nothing(self, seconds: float) -> None:
        self.world.go_blind(seconds)

    @rule()
    def find_a_machine(self) -> None:
        self.world.stray_machine()

    @rule()
    def start_another_scheduler(self) -> None:
        self.world.second_scheduler()

    def _name(self) -> str:
        self.jobs += 1
        return f"job{self.jobs}"


TestChaos = pytest.mark.nightly(pytest.mark.mistakes(Chaos.TestCase))
TestChaos.settings = settings(
    max_examples=30,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
