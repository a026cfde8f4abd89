"""The policies for one job on spot: learned, ranked zones, and SkyNomad."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from spotweave.agents.policy import Policy
from spotweave.agents.rules.policy import from_python
from spotweave.agents.spot.belief import LONG, MEMORY, PRICE, SEEN, SPELL_S, TICKS, UP, remember
from spotweave.agents.spot.fit import SpotTicks, chain, fit, plan
from spotweave.agents.spot.model import SpotModel
from spotweave.agents.spot.policy import SpotPolicy
from spotweave.agents.spot.ranked import VARIANTS, RankedUniformProgress
from spotweave.agents.spot.skynomad import SkyNomadPolicy, ZoneHistory, worth_usd_hour
from spotweave.envs.simulation.spot.lanes import Habits, SpotJob
from tests.envs.checks import by_policy, decided
from tests.spot_cases import KEY, job_of, random_model, world_of


def choices(policy: Policy, job: SpotJob, ticks: int) -> list[int]:
    """The first actions in a job."""
    world = world_of(job)
    world.reset([KEY])
    policy.begin(0, 0)
    taken = []
    for _ in range(ticks):
        taken.append(decided(policy, world.observation))
        world.step(np.array(taken[-1:]))
    return taken


def learned(seed: int = 0, tick_s: int = 100) -> SpotPolicy:
    return SpotPolicy(random_model(np.random.default_rng(seed), tick_s, 30), "spot_values")


# The learned spot policy: never late whatever it learned and whatever spot does, and what it remembers.


@pytest.mark.real
@settings(max_examples=150)
@given(
    seed=st.integers(0, 2**32 - 1),
    n_zones=st.integers(1, 3),
    tick_s=st.sampled_from([100, 600]),
    restart_s=st.sampled_from([0, 30, 100, 360, 500]),
    spare_s=st.integers(0, 900),
    often=st.floats(0.1, 0.95),
    launch_s=st.sampled_from([0, 40]),
    failing=st.sampled_from([0.0, 0.3]),
)
def test_it_is_never_late_where_on_demand_could_avoid_it(
    seed: int,
    n_zones: int,
    tick_s: int,
    restart_s: int,
    spare_s: int,
    often: float,
    launch_s: int,
    failing: float,
) -> None:
    rng = np.random.default_rng(seed)
    work_s = 1500
    n = -(-(work_s + restart_s + launch_s + spare_s) // tick_s)
    policy = SpotPolicy(random_model(rng, tick_s, restart_s), "spot_values")
    has_spot = rng.random((n, n_zones)) < often
    fails = rng.random((n, n_zones)) < failing
    habits = Habits(rng.integers(0, launch_s + 1, (n, n_zones + 1)), fails, rng.random(fails.shape) < failing)
    world = world_of(job_of(has_spot, work_s, restart_s, tick_s, habits=habits))
    world.reset([KEY])
    by_policy(world, policy)
    assert world.metrics(0)["late"] == 0.0


def test_what_is_remembered_of_a_zone() -> None:
    memory = np.zeros((3, MEMORY))
    for up in ([1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]):
        from_python(remember)(memory, np.array(up), np.array([0.3, 0.4]), 600.0)
    assert memory[:, UP].tolist() == [0, 1, 1]
    # Zone 0 lost spot in the third tick, 600 s before the fourth; some zone had it all the time.
    assert memory[:, SPELL_S].tolist() == [600, 600, 1800]
    assert memory[:, SEEN].tolist() == [2, 2, 4]
    assert memory[:, TICKS].tolist() == [4, 4, 4]
    assert memory[:2, PRICE].tolist() == [0.3, 0.4]
    # Seen for 40 minutes, a zone moved from its prior by 1 - exp(-40 / 720) of the way.
    assert memory[2, LONG] == pytest.approx(1 - 0.25 * np.exp(-40 / 720))


def test_a_decision_that_is_asked_twice_is_remembered_once() -> None:
    world, policy = world_of(job_of(np.ones((6, 2), bool))), learned()
    world.reset([KEY])
    first = decided(policy, world.observation)
    assert decided(policy, world.observation) == first
    assert policy._memory[0][2, TICKS] == 1


def test_other_ticks_than_it_was_trained_for_are_refused() -> None:
    with pytest.raises(ValueError, match="was trained for ticks of 195 s"):
        choices(learned(tick_s=195), job_of(np.ones((6, 2), bool)), 1)


def test_a_model_is_the_same_after_a_checkpoint() -> None:
    model = random_model(np.random.default_rng(1), 100, 30)
    again = SpotModel.of_state(model.state_dict())
    np.testing.assert_array_equal(again.table, model.table)
    for one, other in zip(again.beliefs.arrays, model.beliefs.arrays, strict=True):
        np.testing.assert_array_equal(one, other)
    for damage in ({"going": None}, {"table": torch.zeros(3, dtype=torch.uint8)}):
        state = {**model.state_dict(), **damage}
        with pytest.raises(RuntimeError, match="not a spot model"):
            SpotModel.of_state({name: value for name, value in state.items() if value is not None})


class TestLearning:
    @pytest.mark.real
    def test_hazards_of_a_memoryless_zone(self) -> None:
        # Spells of 20 and 10 ticks on average, whatever happened before: hazards of 1/20 and 1/10.
        rng = np.random.default_rng(0)
        up = np.zeros((4000, 1))
        for t in range(1, len(up)):
            stays = rng.random() < (0.95 if up[t - 1, 0] else 0.9)
            up[t] = up[t - 1] if stays else 1 - up[t - 1]
        beliefs = fit([SpotTicks(up, np.full_like(up, 0.3))], 600, 5.0, (1, 1, 1), 1)
        price, goes_on, interrupted = chain([SpotTicks(up, np.full_like(up, 0.3))], beliefs)
        assert price.tolist() == [pytest.approx(0.3), np.inf]
        assert interrupted[0, 1] == pytest.approx(0.05, abs=0.01)
        assert goes_on[1, 0] == pytest.approx(0.1, abs=0.02)
        np.testing.assert_allclose((goes_on + interrupted).sum(axis=1), 1.0)

    @pytest.mark.real
    def test_the_value_of_slack_by_hand(self) -> None:
        # Spot at 0.4 comes after a tick of waiting for certain and never leaves; no overhead. With a tick of
        # slack beyond the guarantee's, waiting costs nothing and saves 0.6 a tick: wait; without, on demand.
        price = np.array([0.4, np.inf])
        goes_on = np.array([[1.0, 0.0], [1.0, 0.0]])
        table = plan(3, 2, 0.0, price, goes_on, np.zeros((2, 2)), 1)
        assert table[0, 3, 2].tolist() == [1, 0]
        assert table[0, 3, 0].tolist() == [2, 2]
        # On demand moves to spot when it is there, and stays while it is not.
        assert table[2, 3, 2].tolist() == [1, 2]

    def test_a_start_that_costs_more_than_it_saves(self) -> None:
        # Two ticks of work; a start on spot costs 4 ticks at 0.5 and slack that is there; on demand goes on.
        goes_on = np.eye(2)
        table = plan(2, 9, 4.0, np.array([0.5, np.inf]), goes_on, np.zeros((2, 2)), 1)
        assert table[2, 2, 9, 0] == 2
        # Idle, on spot 4 * 0.5 + 2 * 0.5 = 3 against 4 + 2 = 6.
        assert table[0, 2, 9, 0] == 1


def test_the_policy_acts_only_on_what_is_shown() -> None:
    first = np.random.default_rng(4).random((30, 2)) < 0.6
    other = first.copy()
    other[12:] = ~other[12:]
    chosen = [choices(learned(seed=2), job_of(has_spot, work_s=2000), 12) for has_spot in (first, other)]
    assert chosen[0] == chosen[1]


# Uniform Progress over ranked zones: which zone each variant takes, by hand.

LENGTH = 200


def ranked(variant: str, job: SpotJob, ticks: int) -> list[int]:
    return choices(RankedUniformProgress(variant), job, ticks)


def ranked_job(up: np.ndarray, price: list[float] | np.ndarray, habits: Habits | None = None) -> SpotJob:
    """In ticks of half an hour; a price is one for each zone, or for each tick and zone."""
    return job_of(up, 1800 * LENGTH // 2, 30, 1800, np.broadcast_to(price, up.shape), habits)


@pytest.mark.real
def test_up_s_avoids_the_region_where_spot_was_lost() -> None:
    up = np.ones((LENGTH, 3), bool)
    up[2, 0] = False
    up[4, 1] = False
    # Zone 0 is cheapest, lost at tick 2; zone 1 comes next, lost at tick 4: zone 0 again, which is back.
    assert ranked("UP(S)", ranked_job(up, [1.0, 1.1, 1.2]), 6) == [0, 4, 1, 4, 0, 4]


@pytest.mark.parametrize("variant", ["UP(A)", "UP(AP)"])
def test_without_looks_that_differ_the_first_or_cheapest_zone_is_taken(variant: str) -> None:
    up = np.ones((LENGTH, 2), bool)
    assert ranked(variant, ranked_job(up, [1.2, 1.0]), 1) == [0 if variant == "UP(A)" else 1]


def test_up_a_leaves_a_zone_for_one_with_more_successful_looks() -> None:
    up = np.ones((LENGTH, 2), bool)
    up[0, 0] = up[5, 1] = False
    # Tick 0: looks (0) and (1), and the try of zone 1 is a look: on zone 1. Interrupted there in tick 5,
    # looks (0, 1) against (1, 1, 1, 0): zone 1 is tried in vain, zone 0 taken. Tick 6: (0, 1, 1) against
    # (1, 1, 1, 0, 0), 67 % against 60 %: it stays.
    assert ranked("UP(A)", ranked_job(up, [1.0, 1.0]), 7) == [1, 3, 3, 3, 3, 0, 3]


def test_up_ap_keeps_a_zone_within_a_tenth_of_the_best_score() -> None:
    up = np.ones((LENGTH, 2), bool)
    for dearer, first in ((1.05, 3), (1.5, 0)):
        price = np.ones((LENGTH, 2))
        price[1:, 1] = dearer
        price[0, 0] = 2.0
        # Zone 1 is taken at tick 0, at half the price; then it costs 5 % or 50 % more than zone 0.
        assert ranked("UP(AP)", ranked_job(up, price), 2) == [1, first]


def test_a_job_whose_only_zone_is_known_to_end_goes_on() -> None:
    up = np.ones((LENGTH, 2), bool)
    up[1:, 1] = False
    announced = np.zeros_like(up)
    announced[1, 0] = True
    no = Habits.none(LENGTH, 2)
    told = Habits(no.launch_s, no.fails, announced)
    # Zone 1 was the better one by its looks, and has no spot now.
    price = np.tile([1.0, 0.5], (LENGTH, 1))
    price[0] = 0.5, 1.0
    assert ranked("UP(AP)", ranked_job(up, price, told), 2) == [0, 3]


@pytest.mark.parametrize("variant", VARIANTS)
def test_without_spot_it_waits_while_it_is_ahead_and_then_goes_on_demand(variant: str) -> None:
    up = np.zeros((LENGTH, 2), bool)
    # At the start it is level with the plan, one tick later behind it.
    assert ranked(variant, ranked_job(up, [1.0, 1.0]), 4) == [3, 2, 3, 3]


# SkyNomad: its estimates by hand, the published example of its artifact, and what it chooses.


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


def test_it_moves_only_for_more_than_the_margin() -> None:
    # On demand costs 3: an hour is worth 3 on plan, the margin 0.65.
    price = np.array([[1.0, 1.2], [1.0, 0.9], [1.0, 0.2], [1.0, 0.2]])
    job = job_of(np.ones((120, 2), bool), 9600, 30, 100, np.vstack([price, np.tile(price[-1], (116, 1))]))
    assert choices(SkyNomadPolicy(job.tick_s), job, 4) == [0, 3, 1, 3]


def test_a_zone_that_was_lost_at_once_is_worth_less_than_on_demand() -> None:
    up = np.ones((60, 1), bool)
    up[1] = False
    # The published example: (0.26 - 0.2) / 0.26 of an hour's worth of about 3 is less than spot's 1.
    assert choices(SkyNomadPolicy(600), job_of(up, 40 * 600, 720, 600), 4) == [0, 1, 2, 2]
