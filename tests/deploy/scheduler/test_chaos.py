"""Ten thousand faults: no job is lost, none runs twice to its end, no machine is left, the bill is right."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.deploy.scheduler.chaos import OFFERS, ChaoticWorld, any_job, machines
from tests.deploy.scheduler.faults import Faults

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
