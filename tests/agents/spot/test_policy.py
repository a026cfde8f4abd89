"""The learned spot policy: never late whatever it learned and whatever spot does, and what it remembers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.spot.belief import LONG, MEMORY, PRICE, SEEN, SPELL_S, TICKS, UP, remember
from agents.spot.fit import SpotTicks, chain, fit
from agents.spot.model import SpotModel
from agents.spot.plan import plan
from agents.spot.policy import SpotPolicy
from envs.simulation import columns as col
from envs.simulation.spot.job import Habits
from tests.spot_cases import KEY, job_of, random_model, world_of


@pytest.mark.real
@settings(max_examples=150, deadline=None)
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
    policy.begin(0, 0)
    done = False
    while not done:
        action = int(policy.act_batch(world.observation, np.zeros(1, np.int64))[0])
        done = bool(world.step(np.array([action]))[1][0])
    assert world.metrics(0)["late"] == 0.0


def test_what_is_remembered_of_a_zone() -> None:
    memory = np.zeros((3, MEMORY))
    for up in ([1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]):
        remember(memory, np.array(up), np.array([0.3, 0.4]), 600.0)
    assert memory[:, UP].tolist() == [0, 1, 1]
    # Zone 0 lost spot in the third tick, 600 s before the fourth; some zone had it all the time.
    assert memory[:, SPELL_S].tolist() == [600, 600, 1800]
    assert memory[:, SEEN].tolist() == [2, 2, 4]
    assert memory[:, TICKS].tolist() == [4, 4, 4]
    assert memory[:2, PRICE].tolist() == [0.3, 0.4]
    # Seen for 40 minutes, a zone moved from its prior by 1 - exp(-40 / 720) of the way.
    assert memory[2, LONG] == pytest.approx(1 - 0.25 * np.exp(-40 / 720))


def test_a_decision_that_is_asked_twice_is_remembered_once() -> None:
    world = world_of(job_of(np.ones((6, 2), bool)))
    policy = SpotPolicy(random_model(np.random.default_rng(0), 100, 30), "spot_values")
    world.reset([KEY])
    lanes = np.zeros(1, np.int64)
    first = policy.act_batch(world.observation, lanes)
    assert policy.act_batch(world.observation, lanes) == first
    assert policy._memory[0][2, TICKS] == 1


def test_other_ticks_than_it_was_trained_for_are_refused() -> None:
    world = world_of(job_of(np.ones((6, 2), bool)))
    world.reset([KEY])
    policy = SpotPolicy(random_model(np.random.default_rng(0), 195, 30), "spot_values")
    with pytest.raises(ValueError, match="was trained for ticks of 195 s"):
        policy.act_batch(world.observation, np.zeros(1, np.int64))


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
    rng = np.random.default_rng(4)
    first = rng.random((30, 2)) < 0.6
    other = first.copy()
    other[12:] = ~other[12:]
    chosen = []
    for has_spot in (first, other):
        policy = SpotPolicy(random_model(np.random.default_rng(2), 100, 30), "spot_values")
        world = world_of(job_of(has_spot, work_s=2000))
        world.reset([KEY])
        actions = []
        for _ in range(12):
            action = int(policy.act_batch(world.observation, np.zeros(1, np.int64))[0])
            actions.append(action)
            world.step(np.array([action]))
        chosen.append(actions)
        assert world.observation["jobs"][0, 0, col.AGE_S] == 1200
    assert chosen[0] == chosen[1]
