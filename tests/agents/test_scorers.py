"""What holds for every scorer, and for the rules that decide in its world: one contract."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import cast

import numpy as np
import pytest

import agents.bags.scorer as bags
import agents.workflows.online.scorer as workflows
from agents.bags.cost import BagParameters
from agents.bags.cost import weigh as weigh_bag
from agents.federated.cost import RoundParameters
from agents.federated.cost import weigh as weigh_round
from agents.federated.features import CHOICE_FEATURES, TASK_FEATURES
from agents.federated.features import describe as describe_round
from agents.federated.rules import ROUND_RULE_SOURCES, ROUND_RULES
from agents.federated.scorer import RoundScorerPolicy, round_scorer
from agents.named import named_rule
from agents.vector_policy import Scorer, VectorPolicy
from agents.workflows.online.cost import WorkflowParameters
from agents.workflows.online.cost import weigh as weigh_step
from agents.workflows.online.rule import seen as seen_of_step
from agents.workflows.online.rules import WORKFLOW_RULES
from envs.bags_episodes import BagsConfig, build_bags
from envs.federated_episodes import FederatedConfig, build_federated
from envs.simulation.snapshot import Observation, take_rows
from envs.simulation.world import BatchWorld, EpisodeKey
from envs.workflows_episodes import WorkflowsConfig, build_workflows

HIDDEN = 5
LANES = 4


@dataclass(frozen=True)
class Case:
    """A scorer, the rule that it corrects, and the world that it decides in."""

    scorer: Callable[[int], Scorer]
    policy: Callable[[Scorer, str], VectorPolicy]
    rule: str
    build: Callable[[], BatchWorld]
    features: Callable[[Observation], tuple[np.ndarray, np.ndarray]] | None = None
    columns: tuple[int, int] = (0, 0)


CASES = {
    "rounds": Case(
        round_scorer,
        RoundScorerPolicy,
        "round_cost",
        lambda: build_federated(FederatedConfig(rounds_most=10), LANES),
        lambda shown: describe_round(shown, weigh_round(shown, RoundParameters())),
        (len(TASK_FEATURES), len(CHOICE_FEATURES)),
    ),
    "bags": Case(
        bags.bag_scorer,
        bags.BagScorerPolicy,
        "bag_cost",
        lambda: build_bags(BagsConfig(job="J60", deadline_s=2100, scenario="sc_4"), LANES),
        lambda shown: bags.describe(shown, weigh_bag(shown, BagParameters())),
        (bags.N_TASK, bags.N_CHOICE),
    ),
    "workflows": Case(
        workflows.workflow_scorer,
        workflows.WorkflowScorerPolicy,
        "workflow_cost",
        lambda: build_workflows(WorkflowsConfig(steps=30), LANES),
        lambda shown: workflows.describe(weigh_step(seen_of_step(shown), WorkflowParameters())),
        (workflows.N_STEP, workflows.N_CHOICE),
    ),
}
RULES = [("bags", "bag_cost")]
RULES += [("rounds", name) for name in ROUND_RULES] + [("workflows", name) for name in WORKFLOW_RULES]


@cache
def played(world_name: str) -> Observation:
    """Real observations of drawn episodes: half of the answers are the rule's, half are at random."""
    case = CASES[world_name]
    world, rule, rng = case.build(), named_rule(case.rule), np.random.default_rng(2)
    world.reset([EpisodeKey(2, "train", index) for index in range(LANES)])
    found: dict[str, list[np.ndarray]] = {name: [] for name in world.observation}
    active = np.ones(LANES, np.bool_)
    for _ in range(80):
        lanes = np.flatnonzero(active)
        shown = take_rows(world.observation, lanes)
        for name, array in shown.items():
            found[name].append(np.array(array))
        actions = np.zeros(LANES, np.int64)
        actions[lanes] = rule.act_batch(shown, lanes)
        for row, lane in enumerate(lanes):
            if rng.random() < 0.5:
                actions[lane] = rng.choice(np.flatnonzero(shown["action_mask"][row]))
        _, done = world.step(actions, active)
        active &= ~done
        if not active.any():
            break
    return cast(Observation, {name: np.concatenate(arrays) for name, arrays in found.items()})


def observations(world_name: str) -> tuple[Observation, np.ndarray]:
    """A copy of what was played, and its rows."""
    shown = played(world_name)
    copied = cast(Observation, {name: np.array(array) for name, array in shown.items()})
    return copied, np.arange(len(shown["jobs"]))


def random_scorer(case: Case, seed: int) -> Scorer:
    scorer = case.scorer(HIDDEN)
    weights = np.random.default_rng(seed).normal(size=scorer.layout.size)
    scorer.set_vector(weights.astype(np.float32))
    return scorer


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


every_scorer = pytest.mark.parametrize("name", CASES)


@every_scorer
def test_untrained_it_is_its_rule_and_with_other_weights_it_takes_other_valid_actions(name: str) -> None:
    case = CASES[name]
    shown, rows = observations(name)
    expected = named_rule(case.rule).act_batch(shown, rows)
    assert len(set(expected.tolist())) > 3
    zeros, started = case.scorer(HIDDEN), case.scorer(HIDDEN)
    started.set_vector(started.layout.start(np.random.default_rng(0)))
    assert started.vector.any()
    for scorer in (zeros, started):
        np.testing.assert_array_equal(case.policy(scorer, "untrained").act_batch(shown, rows), expected)
    answers = case.policy(random_scorer(case, 1), "other").act_batch(shown, rows)
    assert shown["action_mask"][rows, answers].all()
    assert (answers != expected).sum() > 10


@every_scorer
def test_each_row_is_decided_alone_and_by_its_own_weights(name: str) -> None:
    case = CASES[name]
    shown, rows = observations(name)
    vectors = np.stack([random_scorer(case, seed).vector for seed in range(3)])
    which = rows % 3
    together = case.policy(case.scorer(HIDDEN), "rows").act_with(vectors, shown, rows, which)
    for k in range(3):
        policy = case.policy(random_scorer(case, k), "one")
        alone = [int(policy.act_batch(take_rows(shown, rows[[i]]), rows[[i]])[0]) for i in rows[which == k]]
        assert together[which == k].tolist() == alone
        assert (policy.act_batch(shown, rows) != together).any()


@pytest.mark.parametrize("name", ["rounds", "bags", "workflows"])
def test_what_it_sees_is_bounded_and_has_its_columns(name: str) -> None:
    case = CASES[name]
    shown, rows = observations(name)
    assert case.features is not None
    task, choice = case.features(shown)
    assert task.shape == (len(rows), case.columns[0])
    assert choice.shape == (len(rows), shown["clusters"].shape[1] + 1, case.columns[1])
    assert np.isfinite(task).all()
    assert np.isfinite(choice).all()
    assert max(np.abs(task).max(), np.abs(choice).max()) <= 6.0


@pytest.mark.parametrize("seed", range(3))
def test_the_order_of_the_offers_does_not_matter(seed: int) -> None:
    name = "rounds"
    policy = CASES[name].policy(random_scorer(CASES[name], seed), "random")
    shown, rows = observations(name)
    n = shown["clusters"].shape[1]
    order = np.random.default_rng(seed).permutation(n)
    job, place = np.divmod(policy.act_batch(shown, rows), n + 1)
    job_there, place_there = np.divmod(policy.act_batch(reordered(shown, order.tolist()), rows), n + 1)
    np.testing.assert_array_equal(job_there, job)
    np.testing.assert_array_equal(np.array([*order, n])[place_there], place)


@every_scorer
def test_a_scorer_refuses_an_observation_without_a_valid_action(name: str) -> None:
    shown, rows = observations(name)
    shown["action_mask"][3] = 0
    with pytest.raises(ValueError, match="policy random: observation 3 offers no valid action"):
        CASES[name].policy(random_scorer(CASES[name], 0), "random").act_batch(shown, rows)


@every_scorer
def test_weights_are_kept_and_wrong_ones_are_refused(name: str) -> None:
    case = CASES[name]
    scorer, other = random_scorer(case, 4), case.scorer(HIDDEN)
    size = scorer.layout.size
    other.load_state_dict(scorer.state_dict())
    np.testing.assert_array_equal(other.vector, scorer.vector)
    with pytest.raises(RuntimeError, match=r"a scorer of 3 hidden units has \d+ weights"):
        case.scorer(3).load_state_dict(scorer.state_dict())
    with pytest.raises(RuntimeError):
        other.load_state_dict({})
    with pytest.raises(ValueError, match=f"has {size} weights, got an array of shape"):
        other.set_vector(np.zeros(3, np.float32))
    spoiled = np.zeros(size, np.float32)
    spoiled[2] = np.nan
    with pytest.raises(ValueError, match="must be finite"):
        other.set_vector(spoiled)
    with pytest.raises(ValueError, match="at least 1 hidden unit, got 0"):
        case.scorer(0)


@pytest.mark.parametrize(("world_name", "rule"), RULES)
def test_a_rule_has_its_name_and_takes_valid_actions(world_name: str, rule: str) -> None:
    shown, rows = observations(world_name)
    policy = named_rule(rule)
    assert policy.name == rule
    assert shown["action_mask"][rows, policy.act_batch(shown, rows)].all()


@pytest.mark.parametrize(("world_name", "rule"), [one for one in RULES if one[0] != "rounds"])
def test_a_rule_refuses_an_observation_without_a_valid_action(world_name: str, rule: str) -> None:
    shown, rows = observations(world_name)
    shown["action_mask"][2] = 0
    with pytest.raises(ValueError, match="observation 2 offers no valid action"):
        named_rule(rule).act_batch(shown, rows)


def test_every_rule_of_rounds_has_a_source() -> None:
    assert ROUND_RULE_SOURCES.keys() == ROUND_RULES.keys()
    assert {len(source) for source in ROUND_RULE_SOURCES.values()} == {2}
