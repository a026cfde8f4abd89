"""What rules do with tasks of federated applications, figures by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import numpy as np
import pytest

from agents.federated.cost import RoundParameters, weigh
from agents.rules import RULES, make_rule
from agents.rules.appraisal import appraise
from envs.simulation import columns as col
from envs.simulation.market import columns as at
from envs.simulation.market.world import MarketWorld
from envs.simulation.snapshot import Observation
from tests.envs.market_cases import HOUR, OWNED, federated_story
from tests.envs.test_market_federated import NONE, POOL, start
from tests.envs.test_market_stories import decide, now, shown


def waiting_client(slow_s: int, cold_s: int = 100, restart_s: int = 0) -> MarketWorld:
    """A client that has delivered after 600 s and more, while the other trains for `slow_s`."""
    world = federated_story([600, slow_s], [POOL], cold_s=cold_s, restart_s=restart_s)
    start(world, 0, 0, 0)
    assert shown(world) == [1]
    assert world.observation["jobs"][0, 0, col.IDLE] == 1
    return world


def costs(world: MarketWorld, **changes: float) -> list[float]:
    """Expected USD of the shown task on the only offer, and of "none for now", as `expected_cost` sees it."""
    rows = {name: np.array(array) for name, array in world.observation.items()}
    for name, value in changes.items():
        rows["jobs"][0, 0, getattr(col, name)] = value
    usd = appraise(cast(Observation, rows), 1).usd[0, 0]
    return [float(value) for value in usd]


def test_a_market_and_the_world_of_rounds_weigh_with_one_cost() -> None:
    """What `expected_cost` appraises is what `round_cost` decides by."""
    world = waiting_client(1800)
    choices = weigh(world.observation, RoundParameters())
    assert costs(world) == pytest.approx(choices.cost[0].tolist())


def test_keeping_costs_the_wait_and_releasing_the_start() -> None:
    """Idle at 700 s, the round ends at 1900 s: 1200 s and a warm epoch, or a cold one as late as is safe.

    The next round is the last: what follows is weighed no further. Each hour costs 1 USD.
    """
    world = waiting_client(1800)
    keep, release = costs(world, EXECUTIONS=1)
    early_s = 1200 + 1810 - 1200 - 600
    worth_keeping = 0.5 * 100 / HOUR
    assert keep == pytest.approx((1200 + 600) / HOUR + min(early_s / HOUR, worth_keeping))
    assert release == pytest.approx(700 / HOUR)


def test_a_deadline_makes_a_delay_dearer_until_it_has_passed() -> None:
    """Needed in 500 s, ready after 600: 100 s late of 1000 to spare are a tenth of a miss."""
    world = waiting_client(1800)
    late = {"OWES": 1.0, "ROUND_LEFT_S": 500.0, "EXECUTIONS": 1.0}
    without = costs(world, **late)[0]
    with_one = costs(world, **late, HAS_DEADLINE=1.0, SLACK_S=3000.0, DURATION_S=2000.0)[0]
    passed = costs(world, **late, HAS_DEADLINE=1.0, SLACK_S=-1.0, DURATION_S=2000.0)[0]
    assert with_one - without == pytest.approx(0.1 * RoundParameters().miss_usd, rel=1e-4)
    assert passed == without


def test_an_owned_executor_is_worth_something_to_other_jobs() -> None:
    world = waiting_client(1800)
    world.observation["clusters"][0, 0, col.PRICE_USD_HOUR] = 0.0
    keep, _ = costs(world, EXECUTIONS=1, ROUND_LEFT_S=0.0, OWES=1.0)
    owned = RoundParameters().owned_usd_hour / HOUR
    delay_usd_s = RoundParameters().delay_price * (2 / HOUR + owned)
    assert keep == pytest.approx(600 * owned + 600 * delay_usd_s, rel=1e-4)


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


@pytest.mark.real
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


def test_clients_do_not_wait_for_each_other_for_ever() -> None:
    """The owned cluster starts sooner than what is rented: each of two equal clients seemed to have time."""
    world = federated_story(
        [600, 600], [replace(POOL, launch_s=90), OWNED], rounds=2, restart_s=120, max_decisions=200
    )
    decide(world, 0, 1)
    rule = make_rule("expected_cost")
    while not world.truncated(0) and world.lanes.lane[0, at.STATUS] == at.RUNNING:
        world.step(rule.act_batch(world.observation, np.zeros(1, np.int64)))
    assert world.metrics(0)["rounds_per_application"] == 2
    assert world.metrics(0)["application_hours"] < 1
