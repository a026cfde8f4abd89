"""SkyNomad: its estimates by hand, the published example of its artifact, and what it chooses."""

from __future__ import annotations

import math

import numpy as np
import pytest

from agents.spot.skynomad import SkyNomadPolicy, ZoneHistory, worth_usd_hour
from envs.simulation.spot.job import SpotJob
from tests.spot_cases import KEY, job_of, world_of


def lifetime(spells_h: list[float], age_h: float, tick_h: float = 1.0) -> float:
    return ZoneHistory(spells_h, age_h).lifetime_h(tick_h)


class TestLifetime:
    def test_before_the_first_spell_ends(self) -> None:
        # Hazards 1/2 after an hour (one of two spells ended) and 1 after three, then 1 in every tick:
        # 1 + e^-0.5 * 2 + e^-1.5 * 1 / (1 - e^-1).
        by_hand = 1 + math.exp(-0.5) * 2 + math.exp(-1.5) / (1 - math.exp(-1))
        assert lifetime([1.0, 3.0], 0.0) == pytest.approx(by_hand)

    def test_the_present_spell_counts_among_those_that_reached_its_age(self) -> None:
        # At three hours the hazard after three is 1/2: 1 / (1 - e^-0.5).
        assert lifetime([1.0, 3.0], 3.0) == pytest.approx(1 / (1 - math.exp(-0.5)))

    def test_the_example_of_the_published_artifact(self) -> None:
        # Lost in its second tick of ten minutes: "the estimate is stuck at 0.26 h against a 0.2 h restart".
        assert lifetime([1 / 6], 0.0, 1 / 6) == pytest.approx(0.26, abs=0.005)

    def test_no_spell_ended_means_as_long_as_one_likes(self) -> None:
        assert lifetime([], 0.0) > 1e6


def test_spells_and_events_as_ticks_pass() -> None:
    history = ZoneHistory()
    for up in (False, True, True, False, True):
        history.see(up, 1.0)
    assert (history.spells_h, history.age_h) == ([2.0], 0.0)
    # Nothing had ended before: no risk to speak of; then one interruption at hazard 1.
    assert history.events == [(pytest.approx(1e-8), 0), (1.0, 1)]


def test_the_burst_is_the_densest_of_the_latest_ticks() -> None:
    # From the latest back: 1 in 0.3, 2 in 0.5, 2 in 1.0 expected: 3.3, 4 and 2 times as many.
    assert ZoneHistory(events=[(0.5, 0), (0.2, 1), (0.3, 1)]).burst() == pytest.approx(4.0)
    assert ZoneHistory(events=[(0.2, 1), (0.3, 1)]).burst() == 1.0  # less than one was expected


def test_what_an_hour_is_worth() -> None:
    hours = 3600.0
    assert worth_usd_hour(3.06, 0.9, 0.0, 48 * hours, 0.0, 52 * hours) == pytest.approx(3.06)
    # Nothing done after a quarter of the time: 3.06 * (48 / 39) / (48 / 52) = 3.06 * 4 / 3.
    assert worth_usd_hour(3.06, 0.9, 0.0, 48 * hours, 13 * hours, 52 * hours) == pytest.approx(4.08)
    # 47 of 48 hours done in 47: 3.06 * (1 / 5) / (48 / 52) = 0.66, less than spot costs.
    assert worth_usd_hour(3.06, 0.9, 47 * hours, 48 * hours, 47 * hours, 52 * hours) == 0.9


def choices(job: SpotJob, ticks: int) -> list[int]:
    """The first actions in a job."""
    world, policy = world_of(job), SkyNomadPolicy(job.tick_s)
    world.reset([KEY])
    taken = []
    for _ in range(ticks):
        taken.append(int(policy.act_batch(world.observation, np.zeros(1, np.int64))[0]))
        world.step(np.array(taken[-1:]))
    return taken


def test_it_moves_only_for_more_than_the_margin() -> None:
    # On demand costs 3: an hour is worth 3 on plan, the margin 0.65.
    price = np.array([[1.0, 1.2], [1.0, 0.9], [1.0, 0.2], [1.0, 0.2]])
    job = job_of(np.ones((120, 2), bool), 9600, 30, 100, np.vstack([price, np.tile(price[-1], (116, 1))]))
    assert choices(job, 4) == [0, 3, 1, 3]


def test_a_zone_that_was_lost_at_once_is_worth_less_than_on_demand() -> None:
    up = np.ones((60, 1), bool)
    up[1] = False
    # The published example: (0.26 - 0.2) / 0.26 of an hour's worth of about 3 is less than spot's 1.
    assert choices(job_of(up, 40 * 600, 720, 600), 4) == [0, 1, 2, 2]
