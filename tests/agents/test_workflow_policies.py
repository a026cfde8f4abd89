"""The rules for workflows on rented offers, worked by hand."""

from __future__ import annotations

import numpy as np
import pytest

from agents.named import named_rule, rules_of
from agents.policy import Policy
from agents.workflows.online.cost import WorkflowParameters, seen, weigh
from agents.workflows.online.rules import WORKFLOW_RULES, WorkflowCost
from envs.simulation import columns as col
from envs.simulation.workflows.episodes.world import WorkflowWorld
from tests.envs.offers_cases import DEMAND_A, NONE, OWNED, SPOT_A, SPOT_B, answer, begun, case_of, chain, fan

LANE = np.zeros(1, np.int64)


def acted(world: WorkflowWorld, rule: str) -> int:
    """What a rule answers."""
    return int(named_rule(rule).act_batch(world.observation, LANE)[0])


def played(world: WorkflowWorld, policy: Policy) -> dict[str, float]:
    """Metrics of the episode that a policy ends."""
    done = False
    while not done:
        _, done = answer(world, int(policy.act_batch(world.observation, LANE)[0]))
    return dict(world.metrics(0))


def test_heft_goes_where_a_step_ends_first() -> None:
    world = begun(case_of(fan(3)))
    # 600 s on the owned cluster; 700 s on a new instance, of which spot is the cheaper one.
    assert (acted(world, "heft_on_demand"), acted(world, "heft_spot")) == (OWNED, OWNED)
    answer(world, OWNED)
    assert (acted(world, "heft_on_demand"), acted(world, "heft_spot")) == (DEMAND_A, SPOT_B)


def test_heft_on_spot_waits_for_spot_and_falls_back_when_there_is_no_more_time() -> None:
    away = [(SPOT_A, 0, 9000), (SPOT_B, 0, 9000)]
    world = begun(case_of(fan(2, deadline_s=2000), ends_s=away))
    answer(world, OWNED)
    # On demand needs 820 s; asked every 300 s, it may wait at 0 and 300 s; then the owned step ends.
    for _ in range(2):
        assert acted(world, "heft_spot") == NONE
        answer(world, NONE)
    assert world.execution(0).now_s == 600
    assert acted(world, "heft_spot") == OWNED
    busy = begun(case_of(fan(2, deadline_s=1119), ends_s=away))
    answer(busy, OWNED)
    assert acted(busy, "heft_spot") == DEMAND_A  # 300 + 820 would be too late


def test_the_cheapest_place_is_free_then_the_cheapest_spot() -> None:
    world = begun(case_of(fan(2)))
    assert acted(world, "cheapest_place") == OWNED
    answer(world, OWNED)
    # 700 s at 0.0005 USD and 0.02 USD for moving 1 GB, against 700 s at 0.001 USD.
    assert acted(world, "cheapest_place") == SPOT_B


def test_the_cost_of_each_answer_by_hand() -> None:
    world = begun(case_of(fan(2)))
    answer(world, OWNED)
    choices = weigh(seen(world.observation), WorkflowParameters(time_price=0.0))
    cost = choices.cost[0]
    # Nothing was ever interrupted, but an offer that has been up for no time may go: 60 s count at least.
    risk = 1 - np.exp(-700 / 60)
    assert choices.risk[0, SPOT_A] == pytest.approx(risk)
    assert cost[SPOT_A] == pytest.approx(0.7 + risk * 0.35)
    assert cost[SPOT_B] == pytest.approx(0.35 + 0.02 + risk * 0.175)
    assert cost[DEMAND_A] == pytest.approx(2.8)
    # It may wait for the owned executor, which is free.
    assert cost[NONE] == pytest.approx(0.0)
    # The latest end is 10,000 s; 100 s of launch, 600 s of run and 720 s of doing it again leave 8,580 s.
    # The step is all of its path, so all of that is its due; waiting ends it at 1,200 s, 600 s later than
    # at best.
    timed = weigh(seen(world.observation), WorkflowParameters(time_price=1.0))
    assert timed.due_s[0] == pytest.approx(8580)
    dearer = 600 * 0.004 - 600 * 0.0005
    assert timed.cost[0, NONE] == pytest.approx(dearer * (600 / 8580) ** 2)
    assert timed.cost[0, DEMAND_A] == pytest.approx(2.8 + dearer * (100 / 8580) ** 2)


def test_an_idle_instance_is_kept_if_that_costs_less_than_a_launch() -> None:
    for rule in WORKFLOW_RULES:
        world = begun(case_of(chain()))
        answer(world, SPOT_A, OWNED)
        assert acted(world, rule) == NONE  # nothing will want it
        for left_s, kept in ((99, SPOT_A), (101, NONE)):
            world.observation["jobs"][0, 0, col.ROUND_LEFT_S] = left_s  # a launch takes 100 s
            assert acted(world, rule) == kept


def test_the_rules_have_names() -> None:
    assert rules_of("workflows") == ("heft_on_demand", "heft_spot", "cheapest_place", "workflow_cost")


def test_time_is_bought_only_where_it_is_short() -> None:
    spent = {}
    for deadline_s in (2200.0, 20_000.0):
        metrics = played(begun(case_of(fan(6, deadline_s))), WorkflowCost())
        assert metrics["missed"] == 0
        spent[deadline_s] = metrics["cost_usd"]
    assert spent[20_000.0] < 0.5 * spent[2200.0]
