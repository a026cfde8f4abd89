"""How `mtdqn` answers questions about bags, workflows and rounds, and the rules there: one contract."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple, cast

import numpy as np
import pytest
import torch

from agents.mtdqn.decide import GREEDY, GUIDED, RANDOM, Exploring, empty_label
from agents.mtdqn.network import MTDQNNetwork
from agents.mtdqn.policy import MTDQNPolicy
from agents.mtdqn.questions import KINDS, QuestionView
from agents.named import named_rule, question_rules
from envs.bags_episodes import BagsConfig, build_bags
from envs.federated_episodes import FederatedConfig, build_federated
from envs.simulation.snapshot import Observation, take_rows
from envs.simulation.world import BatchWorld, EpisodeKey
from envs.workflows_episodes import WorkflowsConfig, build_workflows
from tests.agents.inputs import copied, played

HIDDEN = 5
LANES = 4


class Case(NamedTuple):
    """A world of questions, and the guide there."""

    rule: str
    build: Callable[[], BatchWorld]


CASES = {
    "rounds": Case("round_cost", lambda: build_federated(FederatedConfig(rounds_most=10), LANES)),
    "bags": Case(
        "bag_cost", lambda: build_bags(BagsConfig(job="J60", deadline_s=2100, scenario="sc_4"), LANES)
    ),
    "workflows": Case("workflow_cost", lambda: build_workflows(WorkflowsConfig(steps=30), LANES)),
}
RULES = [("bags", "bag_cost")]
RULES += [("rounds", name) for name in question_rules("federated")]
RULES += [("workflows", name) for name in question_rules("workflows")]


@cache
def drawn(world_name: str) -> Observation:
    """Real observations of drawn episodes: half of the answers are the rule's, half are at random."""
    case = CASES[world_name]
    return played(case.build(), named_rule(case.rule), 80, random_share=0.5)


def observations(world_name: str) -> tuple[Observation, np.ndarray]:
    """A copy of what was played, and its rows."""
    shown = copied(drawn(world_name))
    return shown, np.arange(len(shown["jobs"]))


def policy_of(name: str, seed: int | None = None, size: float = 1.0) -> MTDQNPolicy:
    policy = MTDQNPolicy(QuestionView(CASES[name].rule, 0, 0, HIDDEN), (1.0, 1.0), "random")
    if seed is not None:
        weights = np.random.default_rng(seed).normal(0.0, size, policy.network.size)
        policy.network.set_vector(weights.astype(np.float32))
    return policy


def reordered(shown: Observation, order: Sequence[int]) -> Observation:
    n, jobs, clusters = shown["pairs"].shape[:3]
    mask = shown["action_mask"].reshape(n, jobs, clusters + 1)
    return {
        "clusters": shown["clusters"][:, order],
        "occupation": shown["occupation"][:, order],
        "jobs": shown["jobs"],
        "pairs": np.ascontiguousarray(shown["pairs"][:, :, order]),
        "action_mask": np.ascontiguousarray(mask[:, :, [*order, clusters]].reshape(n, -1)),
    }


every_world = pytest.mark.parametrize("name", CASES)


@every_world
def test_untrained_it_is_its_guide_and_with_weights_it_takes_other_valid_actions(name: str) -> None:
    shown, rows = observations(name)
    expected = named_rule(CASES[name].rule).act_batch(shown, rows)
    assert len(set(expected.tolist())) > 3
    np.testing.assert_array_equal(policy_of(name).act_batch(shown, rows), expected)
    answers = policy_of(name, 1).act_batch(shown, rows)
    assert shown["action_mask"][rows, answers].all()
    assert (answers != expected).sum() > 10


@pytest.mark.parametrize(
    ("name", "metric", "weight"),
    [("rounds", "cost_percent", 1.0), ("bags", "cost_percent", 0.5), ("workflows", "cost_index", 1.0)],
)
def test_a_usd_is_in_the_objective_what_the_world_says(name: str, metric: str, weight: float) -> None:
    case = CASES[name]
    world, rule = cast(Any, case.build()), named_rule(case.rule)
    world.reset([EpisodeKey(3, "train", index) for index in range(LANES)])
    active, actions = np.ones(LANES, np.bool_), np.zeros(LANES, np.int64)
    while active.any():
        lanes = np.flatnonzero(active)
        actions[lanes] = rule.act_lanes(world.observation, lanes)
        active &= ~world.step(actions, active)[1]
    for lane in range(LANES):
        metrics = world.metrics(lane)
        assert world.reward_of_usd(lane) * metrics["cost_usd"] == pytest.approx(weight * metrics[metric])


@every_world
def test_each_row_is_decided_alone(name: str) -> None:
    shown, rows = observations(name)
    policy = policy_of(name, 2)
    alone = [int(policy.act_batch(take_rows(shown, rows[[i]]), rows[[i]])[0]) for i in rows]
    assert policy.act_batch(shown, rows).tolist() == alone


@every_world
def test_what_it_sees_is_bounded_and_has_its_columns(name: str) -> None:
    shown, rows = observations(name)
    kind = KINDS[CASES[name].rule]
    asked = kind.ask(shown)
    assert asked.task.shape == (len(rows), kind.n_task)
    assert asked.choice.shape == (len(rows), shown["clusters"].shape[1] + 1, kind.n_choice)
    for columns in (asked.task, asked.choice):
        assert np.isfinite(columns).all()
        assert np.abs(columns).max() <= 6.0


@every_world
def test_the_value_is_minus_the_expected_cost_and_what_torch_gives_beyond(name: str) -> None:
    shown, rows = observations(name)
    policy = policy_of(name, 3)
    network = MTDQNNetwork(policy.view.sizes)
    network.set_vector(policy.network.vector)
    asked = KINDS[CASES[name].rule].ask(shown)
    table = policy.value_table(shown)[:, 0, :, 0]
    np.testing.assert_array_equal(np.isnan(table), ~asked.valid)
    for row in rows[::7]:
        valid = asked.valid[row]
        choice = torch.from_numpy(asked.choice[row, valid])
        task = torch.from_numpy(asked.task[row]).expand(len(choice), -1)
        columns = torch.cat([choice, task, choice.mean(0).expand(len(choice), -1)], 1)
        with torch.no_grad():
            beyond = network.mutual_values(columns, torch.full((len(choice),), float(asked.unit[row])))
        cost = asked.cost[row, valid]
        expected = cost.min() - cost + beyond.numpy()
        np.testing.assert_allclose(table[row, valid], expected, rtol=1e-3, atol=1e-4 * float(asked.unit[row]))
    assert policy.act_batch(shown, rows).tolist() == np.nanargmax(table, 1).tolist()
    assert policy.value_weights == (1.0,)


@every_world
def test_it_explores_as_its_guide_does_or_by_the_taste_of_a_lane(name: str) -> None:
    shown, rows = observations(name)
    n, policy = len(rows), policy_of(name, 4)
    view, asked = policy.view, KINDS[CASES[name].rule].ask(shown)
    best, guided = policy.act_batch(shown, rows), named_rule(CASES[name].rule).act_batch(shown, rows)
    taste = np.zeros((n, view.sizes.places), np.float32)
    taste[:, 0] = 1e20  # nothing but "none for now"
    none = asked.choice.shape[1] - 1
    wanted = np.where(asked.valid[:, none], none, best)
    for how, other in ((GREEDY, best), (GUIDED, guided), (RANDOM, wanted)):
        for take in (False, True):
            label = empty_label(n, view.sizes)
            exploring = Exploring(
                np.full(n, how), np.zeros(n), np.full(n, take), np.zeros((n, 1), np.bool_), taste
            )
            actions = policy.explore(shown, rows, exploring, label, follow=False)
            tried = other != best
            assert tried.any() == (how != GREEDY)
            np.testing.assert_array_equal(label.tried, tried)
            np.testing.assert_array_equal(label.taken, tried & take)
            np.testing.assert_array_equal(actions, np.where(label.taken, other, best))
            for side, choice in ((0, other), (1, best)):
                np.testing.assert_allclose(
                    label.columns[:, side, : view.sizes.places], asked.choice[rows, choice]
                )


@pytest.mark.parametrize("seed", range(3))
def test_the_order_of_the_offers_does_not_matter(seed: int) -> None:
    policy = policy_of("rounds", seed)
    shown, _ = observations("rounds")
    n = shown["clusters"].shape[1]
    order = np.random.default_rng(seed).permutation(n)
    table = policy.value_table(shown)[:, 0, :, 0]
    there = policy.value_table(reordered(shown, order.tolist()))[:, 0, :, 0]
    size = np.nanmax(abs(table), 1)[:, None]
    np.testing.assert_allclose(there / size, table[:, [*order, n]] / size, atol=1e-5)


@every_world
def test_it_refuses_an_observation_without_a_valid_action(name: str) -> None:
    shown, rows = observations(name)
    shown["action_mask"][3] = 0
    with pytest.raises(ValueError, match="policy random: observation 3 offers no valid action"):
        policy_of(name, 0).act_batch(shown, rows)


def test_weights_of_the_objective_cannot_be_changed_nor_an_lstm_be_had() -> None:
    policy = policy_of("bags")
    policy.set_weights([1.0])
    with pytest.raises(ValueError, match="learned the objective itself: leave the weights out"):
        policy.set_weights([50.0, 10.0])
    with pytest.raises(ValueError, match=r"agent\.lstm_size is 8 and agent\.own_size 0: expected 0"):
        QuestionView("bag_cost", 8, 0, HIDDEN)


@pytest.mark.parametrize(("world_name", "rule"), RULES)
def test_a_rule_has_its_name_and_takes_valid_actions_only(world_name: str, rule: str) -> None:
    shown, rows = observations(world_name)
    policy = named_rule(rule)
    assert policy.name == rule
    assert shown["action_mask"][rows, policy.act_batch(shown, rows)].all()
    if world_name != "rounds":
        shown["action_mask"][2] = 0
        with pytest.raises(ValueError, match="observation 2 offers no valid action"):
            policy.act_batch(shown, rows)
