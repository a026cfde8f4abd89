"""What rules do with tasks of federated applications, figures by hand."""

from __future__ import annotations

import numpy as np
import pytest

from agents.rules import RULES, make_rule
from agents.rules.federated_cost import later_s, task_usd
from envs.simulation import columns as col
from envs.simulation.market.world import MarketWorld
from envs.simulation.snapshot import ObservationArrays, arrays_of
from tests.envs.market_cases import HOUR, federated_story
from tests.envs.test_market_federated import NONE, POOL, start
from tests.envs.test_market_stories import decide, now, shown


def waiting_client(slow_s: int, cold_s: int = 100, restart_s: int = 0) -> MarketWorld:
    """A client that has delivered after 600 s and more, while the other trains for `slow_s`."""
    world = federated_story([600, slow_s], [POOL], cold_s=cold_s, restart_s=restart_s)
    start(world, 0, 0, 0)
    assert shown(world) == [1]
    assert world.observation["jobs"][0, 0, col.IDLE] == 1
    return world


def first_row(world: MarketWorld) -> ObservationArrays:
    """The observation of lane 0."""
    return ObservationArrays(*(array[0] for array in arrays_of(world.observation)))


def cost(world: MarketWorld, wait_s: float, rate: float = 0.0) -> float:
    """Expected USD of the shown task on the only offer."""
    return float(task_usd(first_row(world), 0, 0, wait_s, 1.0, 0.0, rate, 25.0, 0.5, 0.0))


def test_keeping_costs_the_wait_and_releasing_the_start() -> None:
    """Idle at 700 s, the round ends at 1900 s: 1200 s and a warm epoch, or a cold one as late as is safe."""
    world = waiting_client(1800)
    assert cost(world, 0.0) == pytest.approx((1200 + 600) / HOUR)
    later = later_s(first_row(world), 0, 0, 300.0, 50.0)
    assert later == 1200 + 1810 - 50 - 700
    assert cost(world, later) == pytest.approx(700 / HOUR)


def test_being_late_costs_what_the_application_holds() -> None:
    """Needed 3010 s from now at the latest; 4000 s later it is 1690 s late, at 2 + 0.5 USD per hour."""
    world = waiting_client(1800)
    late = 4000 + 700 - 3010
    assert cost(world, 4000.0) == pytest.approx((700 + late * 2.5) / HOUR)


def test_interruptions_cost_a_start_and_half_an_epoch() -> None:
    """0.1 expected in 1000 s; each takes 350 s, which cost its own rent and what the others hold."""
    world = waiting_client(1000)
    plain, risky = cost(world, 0.0), cost(world, 0.0, rate=1e-4)
    held = 400 + 600
    assert plain == pytest.approx(held / HOUR)
    assert risky - plain == pytest.approx(1e-4 * held * 350 * (1 + 2.5) / HOUR)


@pytest.mark.parametrize(("slow_s", "released"), [(750, False), (5000, True)])
def test_expected_cost_releases_where_the_wait_is_long(slow_s: int, released: bool) -> None:
    """With 300 s of set-up a start costs 400 s of rent: waiting 150 s is cheaper, waiting 4400 s is not."""
    world = waiting_client(slow_s, restart_s=300)
    action = make_rule("expected_cost").act_batch(world.observation, np.zeros(1, np.int64))[0]
    assert action == (1 if released else 0)


def test_expected_cost_is_back_before_it_is_needed() -> None:
    """Nobody waits for a client that the rule released."""
    rule, world = make_rule("expected_cost"), waiting_client(5000, restart_s=300)
    while shown(world):
        world.step(rule.act_batch(world.observation, np.zeros(1, np.int64)))
    metrics = world.metrics(0)
    assert metrics["application_hours"] == pytest.approx((300 + 100 + 5000 + 10 + 5000 + 10) / HOUR)
    assert metrics["idle_usd"] < 600 / HOUR


@pytest.mark.parametrize("name", [name for name in RULES if name not in ("random", "expected_cost")])
def test_rules_that_know_no_rounds_keep_an_idle_instance_for_a_while(name: str) -> None:
    """A peer that never comes: half an hour longer than a round, then the instance is released."""
    world = federated_story([600, 600], [POOL])
    start(world, 0, 0)
    decide(world, 2, NONE)
    rule, kept = make_rule(name), []
    while now(world) < 4000:
        if shown(world)[0] == 2:
            decide(world, 2, NONE)
            continue
        idle = world.observation["jobs"][0, 0, col.IDLE] == 1
        action = int(rule.act_batch(world.observation, np.zeros(1, np.int64))[0])
        if not idle:
            break
        kept.append(action == 0)
        world.step(np.array([action]))
    assert kept[0]
    assert not kept[-1]
    assert len(kept) == 6  # at 600 s, then every 600 s until it has waited more than 610 + 1800 s
