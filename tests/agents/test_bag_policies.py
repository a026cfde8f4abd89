"""The rule `bag_cost`, worked by hand."""

from __future__ import annotations

import numpy as np
import pytest

from agents.bags.cost import BagCost, BagParameters, weigh
from agents.named import named_rule, rules_of
from envs.simulation.bags.decisions import Cause
from envs.simulation.bags.scenarios import Scenario
from envs.simulation.bags.world import BagWorld
from tests.envs.bag_cases import ONE_CORE, TWO_CORES, at, environment, plan_of, spot, tasks_of
from tests.envs.test_bags_world import NONE, ONE_DEMAND, TWO_DEMAND, Given, answer, begun

LANE = np.zeros(1, np.int64)
CALM = Scenario("calm", 0, 0, 1)


def acted(world: BagWorld, **parameters: float) -> int:
    """What the rule answers."""
    return int(BagCost(BagParameters(**parameters)).act_batch(world.observation, LANE)[0])


def hibernated(rates: tuple[float, float]) -> BagWorld:
    """A task of 100 s whose VM hibernated at 50 s, with a VM of two cores that is busy until 600 s."""
    plan = plan_of(tasks_of(100, 600), {spot(ONE_CORE): (0,), spot(TWO_CORES): (1,)}, deadline_s=3000)
    return begun(Given(plan, environment(), at(one=(50,)), Scenario("drawn", *rates, over_s=1000)))


def test_the_cost_of_each_answer_by_hand() -> None:
    world = hibernated((1, 4))
    choices = weigh(world.observation, BagParameters(time_price=1.0))
    cost, end_s = choices.cost[0], choices.end_s[0]
    # A second of makespan costs ten VMs at 0.00002 USD; all others end 550 s from now, on the VM of two.
    assert choices.time_usd_s[0] == pytest.approx(0.0002)
    # On its other core at once: 110 s of half of 0.00002 USD.
    assert (cost[5], end_s[5]) == (pytest.approx(0.0011), pytest.approx(110))
    # A new on-demand VM of one core: 100 s to launch and 100 s of work at 0.0001 USD.
    assert (cost[ONE_DEMAND], end_s[ONE_DEMAND]) == (pytest.approx(0.02), pytest.approx(200))
    # It resumes after 1000 / 4 s on average, and has 50 s left at 0.00001 USD.
    assert (cost[NONE], end_s[NONE]) == (pytest.approx(0.0005), pytest.approx(300))
    assert acted(world) == NONE
    # Where it resumes after 1,000 s, 500 s after all others, time is dear enough to move.
    slow = hibernated((1, 1))
    assert weigh(slow.observation, BagParameters(1.0)).cost[0, NONE] == pytest.approx(0.0005 + 500 * 0.0002)
    assert acted(slow, time_price=1.0) == 5
    # Without a price of time it waits.
    assert acted(slow, time_price=0.0) == NONE


def test_risk_is_the_chance_to_hibernate_before_the_end() -> None:
    risk = weigh(hibernated((1, 4)).observation, BagParameters()).risk[0]
    assert (risk[5], risk[TWO_DEMAND]) == (pytest.approx(1 - np.exp(-110 / 1000)), 0)


def test_an_empty_vm_is_given_back() -> None:
    plan = plan_of(tasks_of(100, 200), {spot(ONE_CORE, 1): (0,), spot(ONE_CORE, 2): (1,)})
    world = begun(Given(plan, environment(), at(), CALM))
    assert world.question(0)[0].cause == Cause.EMPTY
    assert acted(world) == NONE
    # 900 s of it until the end of its cycle, at 0.00001 USD.
    assert weigh(world.observation, BagParameters()).cost[0, 0] == pytest.approx(0.009)


def test_the_rule_has_a_name() -> None:
    assert rules_of("bags") == ("bag_cost", "random")
    assert isinstance(named_rule("bag_cost"), BagCost)


def test_the_rule_ends_a_bag_in_time_for_less_than_a_random_policy() -> None:
    plan = plan_of(tasks_of(*[100] * 8), {}, deadline_s=2000)
    rewards = []
    for choose in (acted, lambda world: int(np.flatnonzero(world.observation["action_mask"][0])[-1])):
        world, total, done = begun(Given(plan, environment(), at(), CALM)), 0.0, False
        while not done:
            reward, done = answer(world, choose(world))
            total += reward
        assert not world.outcome(0).missed
        rewards.append(total)
    assert rewards[0] > rewards[1]
