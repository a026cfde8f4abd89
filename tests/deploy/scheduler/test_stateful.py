"""Faults in every order that hypothesis can think of, each at a point of its choice."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.deploy.scheduler.chaos import OFFERS, ChaoticWorld, machines, stream, training
from tests.deploy.scheduler.faults import Armed
from tests.deploy.scheduler.worlds import batch

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
        """Nothing goes wrong any more, and everything must end as it should."""
        try:
            self.faults.disarm()
            self.world.let_end()
            self.world.check_in_the_end()
        finally:
            self.world.close()
            self.folder.cleanup()

    @invariant()
    def nothing_is_wrong(self) -> None:
        """What holds at every moment."""
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
        """With errors of its own."""
        name = self._name()
        self.world.cloud.fails[name] = failures
        self.world.send(batch(name, **facts))

    @rule(batches=st.integers(1, 6))
    def submit_stream(self, batches: int) -> None:
        """A batch a minute."""
        self.world.send(stream(self._name(), batches))

    @rule(clients=st.integers(2, 4))
    def submit_training(self, clients: int) -> None:
        """Several clients."""
        self.world.send(training(self._name(), clients))

    @rule(which=st.integers(0, 99))
    def cancel(self, which: int) -> None:
        """One of those that are live."""
        live = self.world.store.jobs.live()
        if live:
            self.world.cancel(live[which % len(live)].job_id)

    # What passes.

    @rule(passes=st.integers(1, 8))
    def time_passes(self, passes: int) -> None:
        """And nothing happens."""
        for _ in range(passes):
            self.world.step()

    @rule(seconds=st.floats(1.0, 600.0))
    def nobody_schedules(self, seconds: float) -> None:
        """For a while."""
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
        """Without a word."""
        running = machines(self.world)
        self.world.cloud.kill(running[which % len(running)], by_provider=by_provider)

    @precondition(lambda self: bool(machines(self.world)))
    @rule(which=st.integers(0, 99), within_s=st.floats(1.0, 120.0))
    def notice(self, which: int, within_s: float) -> None:
        """An interruption that is announced."""
        running = machines(self.world)
        self.world.cloud.notice(running[which % len(running)], self.world.clock.now() + within_s)

    @rule(offer=st.sampled_from(OFFERS), seconds=st.floats(10.0, 600.0))
    def no_capacity(self, offer: str, seconds: float) -> None:
        """What runs there is interrupted."""
        self.world.down_until[offer] = self.world.clock.now() + seconds

    @rule(seconds=st.floats(0.0, 60.0))
    def set_clock_back(self, seconds: float) -> None:
        """The scheduler's, not the cloud's."""
        self.world.own.behind_s = seconds

    @rule(seconds=st.floats(10.0, 900.0))
    def see_nothing(self, seconds: float) -> None:
        """The cloud's answers are empty."""
        self.world.go_blind(seconds)

    @rule()
    def find_a_machine(self) -> None:
        """With our tag, that nobody asked for."""
        self.world.stray_machine()

    @rule()
    def start_another_scheduler(self) -> None:
        """It must not lead."""
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
