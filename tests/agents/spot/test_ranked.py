"""Uniform Progress over ranked zones: which zone each variant takes, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from agents.spot.ranked import VARIANTS, RankedUniformProgress
from envs.simulation.spot.job import Habits, SpotJob
from tests.spot_cases import KEY, job_of, world_of

TICKS = 200


def choices(variant: str, job: SpotJob, ticks: int) -> list[int]:
    """The first actions in a job."""
    world, policy = world_of(job), RankedUniformProgress(variant)
    world.reset([KEY])
    policy.begin(0, 0)
    taken = []
    for _ in range(ticks):
        taken.append(int(policy.act_batch(world.observation, np.zeros(1, np.int64))[0]))
        world.step(np.array(taken[-1:]))
    return taken


def job(up: np.ndarray, price: list[float], tick_s: int = 1800) -> SpotJob:
    return job_of(up, tick_s * TICKS // 2, 30, tick_s, np.tile(price, (len(up), 1)))


@pytest.mark.real
def test_up_s_avoids_the_region_where_spot_was_lost() -> None:
    up = np.ones((TICKS, 3), bool)
    up[2, 0] = False
    up[4, 1] = False
    # Zone 0 is cheapest, lost at tick 2; zone 1 comes next, lost at tick 4: zone 0 again, which is back.
    assert choices("UP(S)", job(up, [1.0, 1.1, 1.2]), 6) == [0, 4, 1, 4, 0, 4]


@pytest.mark.parametrize("variant", ["UP(A)", "UP(AP)"])
def test_without_looks_that_differ_the_first_or_cheapest_zone_is_taken(variant: str) -> None:
    up = np.ones((TICKS, 2), bool)
    assert choices(variant, job(up, [1.2, 1.0]), 1) == [0 if variant == "UP(A)" else 1]


def test_up_a_leaves_a_zone_for_one_with_more_successful_looks() -> None:
    up = np.ones((TICKS, 2), bool)
    up[0, 0] = up[5, 1] = False
    # Tick 0: looks (0) and (1), and the try of zone 1 is a look: on zone 1. Interrupted there in tick 5,
    # looks (0, 1) against (1, 1, 1, 0): zone 1 is tried in vain, zone 0 taken. Tick 6: (0, 1, 1) against
    # (1, 1, 1, 0, 0), 67 % against 60 %: it stays.
    assert choices("UP(A)", job(up, [1.0, 1.0]), 7) == [1, 3, 3, 3, 3, 0, 3]


def test_up_ap_keeps_a_zone_within_a_tenth_of_the_best_score() -> None:
    up = np.ones((TICKS, 2), bool)
    for dearer, first in ((1.05, 3), (1.5, 0)):
        price = np.tile([1.0, 1.0], (TICKS, 1))
        price[1:, 1] = dearer
        price[0, 0] = 2.0
        # Zone 1 is taken at tick 0, at half the price; then it costs 5 % or 50 % more than zone 0.
        made = job_of(up, 1800 * TICKS // 2, 30, 1800, price)
        assert choices("UP(AP)", made, 2) == [1, first]


def test_a_job_whose_only_zone_is_known_to_end_goes_on() -> None:
    up = np.ones((TICKS, 2), bool)
    up[1:, 1] = False
    announced = np.zeros_like(up)
    announced[1, 0] = True
    no = Habits.none(TICKS, 2)
    told = Habits(no.launch_s, no.fails, announced)
    # Zone 1 was the better one by its looks, and has no spot now.
    price = np.tile([1.0, 0.5], (TICKS, 1))
    price[0] = 0.5, 1.0
    assert choices("UP(AP)", job_of(up, 1800 * TICKS // 2, 30, 1800, price, told), 2) == [0, 3]


@pytest.mark.parametrize("variant", VARIANTS)
def test_without_spot_it_waits_while_it_is_ahead_and_then_goes_on_demand(variant: str) -> None:
    up = np.zeros((TICKS, 2), bool)
    taken = choices(variant, job(up, [1.0, 1.0]), 4)
    # At the start it is level with the plan, one tick later behind it.
    assert taken == [3, 2, 3, 3]
