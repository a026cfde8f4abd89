"""The agent `mtdqn`: compiled values against torch, what is known by hand, and what must not matter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Literal, NamedTuple, cast

import numpy as np
import pytest
import torch

from spotweave.agents.mtdqn.decide import (
    GREEDY,
    GUIDED,
    RANDOM,
    Exploring,
    Label,
    Sizes,
    empty_label,
    evaluate,
    n_columns,
    network_size,
)
from spotweave.agents.mtdqn.markets import (
    DELAY,
    MONEY,
    N_CHOICE,
    N_STATE,
    OWN_MISSES,
    OWNED,
    PROGRESS,
    STANDARD,
    STREAMING,
    MarketView,
)
from spotweave.agents.mtdqn.policy import MTDQNNetwork, MTDQNPolicy, Weights
from spotweave.agents.mtdqn.questions import KINDS, QuestionView
from spotweave.agents.mtdqn.slices import NEED_UNIT, SliceView
from spotweave.agents.named import named_rule, question_rules
from spotweave.agents.rules import make_rule
from spotweave.agents.rules.policy import from_python
from spotweave.envs.bags_episodes import BagsConfig, build_bags
from spotweave.envs.federated_episodes import FederatedConfig, build_federated
from spotweave.envs.market_data import build_market
from spotweave.envs.simulation import columns as col
from spotweave.envs.simulation.market.config import MarketConfig, MarketWorldConfig, WorkloadConfig
from spotweave.envs.simulation.market.world import MarketWorld
from spotweave.envs.simulation.slices.config import SliceWorldConfig
from spotweave.envs.simulation.slices.world import SliceWorld
from spotweave.envs.simulation.snapshot import Observation, take_rows
from spotweave.envs.simulation.world import BatchWorld, EpisodeKey
from spotweave.envs.workflows_episodes import WorkflowsConfig, build_workflows
from tests.agents.inputs import copied, played

SIZES = Sizes(places=28, state=16, heads=2, lstm=3, own=6, networks=2, mutual=5, scaled=0)
LANES = 4


def trained(seed: int, guide: Literal["tuned", "committed"] = "tuned") -> MTDQNPolicy:
    """A policy with random weights, large enough to overrule what is known."""
    policy = untrained(guide)
    rng = np.random.default_rng(seed)
    policy.network.set_vector(rng.normal(0.0, 0.5, policy.network.size).astype(np.float32))
    return policy


def untrained(guide: Literal["tuned", "committed"] = "tuned") -> MTDQNPolicy:
    return MTDQNPolicy(SliceView(guide == "committed", 3, 6, 1, 5), (1.0, 1.0, 5.0), "mtdqn")


def seen(forecast: bool = False, steps: int = 60) -> Observation:
    """Every fifth observation of crowded clusters, where the rule MAF plays."""
    world = SliceWorld(SliceWorldConfig(n_jobs=200, forecast=forecast), LANES)
    shown = played(world, make_rule("maf"), steps)
    return take_rows(shown, np.arange(LANES * steps) // LANES % 5 == 0)


@pytest.mark.parametrize("lstm", [0, 3])
@pytest.mark.parametrize("mutual", [0, 5])
@pytest.mark.parametrize(("heads", "scaled"), [(2, 0), (4, 1)])
def test_compiled_values_are_those_of_the_network(lstm: int, mutual: int, heads: int, scaled: int) -> None:
    sizes = SIZES._replace(lstm=lstm, mutual=mutual, heads=heads, scaled=scaled)
    torch.manual_seed(1)
    network = MTDQNNetwork(sizes)
    network.fit_scaler(torch.rand(50, n_columns(sizes)))
    assert len(network.vector()) == network_size(sizes)
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, 0.0, 0.3)
    rng = np.random.default_rng(3)
    columns = rng.random((7, n_columns(sizes)), np.float32)
    needs = rng.random(7, np.float32) * 4
    values = np.empty((7, heads + 1), np.float32)
    from_python(evaluate)(network.vector(), sizes, columns, needs, values)
    own = network.own_values(torch.from_numpy(columns)).detach().numpy()
    assert own.shape == (2, 7, heads)
    assert np.abs(own[0] - own[1]).min() > 0.0
    others = network.mutual_values(torch.from_numpy(columns), torch.from_numpy(needs)).detach().numpy()
    assert values[:, :heads] == pytest.approx(own.mean(0), abs=1e-5)
    assert values[:, heads] == pytest.approx(others, abs=1e-5)
    assert (np.abs(others).max() > 0.01) == (mutual > 0)


def test_a_network_becomes_what_its_vector_says() -> None:
    one, other = MTDQNNetwork(SIZES), MTDQNNetwork(SIZES)
    other.set_vector(one.vector())
    for mine, its in zip(one.parameters(), other.parameters(), strict=True):
        assert torch.equal(mine, its)
    with pytest.raises(ValueError, match="weights, got 5"):
        one.set_vector(np.zeros(5, np.float32))


@pytest.mark.parametrize("guide", ["tuned", "committed"])
def test_untrained_it_is_its_guide(guide: Literal["tuned", "committed"]) -> None:
    shown = seen(forecast=guide == "committed")
    lanes = np.arange(len(shown["jobs"]))
    policy = untrained(guide)
    assert policy.act_lanes(shown, lanes).tolist() == make_rule(guide).act_lanes(shown, lanes).tolist()
    assert trained(1, guide).act_lanes(shown, lanes).tolist() != policy.act_lanes(shown, lanes).tolist()


def test_what_is_known_without_waiting() -> None:
    """A stream of 12 batches: on the first cluster, 30 % slower than standard, all of them are late."""
    world = SliceWorld(SliceWorldConfig(n_jobs=50), 1)
    world.reset([EpisodeKey(2, "train", 0)])
    shown = take_rows(world.observation, np.zeros(1, np.int64))
    shown["jobs"][0][:, [col.EXECUTIONS, col.STANDARD_S]] = 12, 50
    pair = shown["pairs"][0]
    pair[..., col.EXECUTION_S], pair[..., col.EXECUTION_RATIO] = (
        (65, 40, 50, 50, 50),
        (1.3, 0.8, 1.0, 1.0, 1.0),
    )
    pair[..., col.IMPROPER], pair[..., col.REQUEST] = (1, 0, 0, 0, 0), 100
    table = untrained().value_table(shown)[0]
    (values,) = table[~np.isnan(table[:, 0, 0])]  # own misses, the mutual value, delay
    assert values[0] == pytest.approx([-12.0, 0.0, -0.3], abs=1e-6)
    assert values[1] == pytest.approx([0.0, 0.0, 0.2], abs=1e-6)
    label, _ = tried(untrained(), shown, RANDOM, 0.3)  # the third cluster, in the place of the second
    assert label.needs[0] == pytest.approx([12 * 50 * 100 / NEED_UNIT, 12 * 40 * 100 / NEED_UNIT])


def test_the_order_of_clusters_makes_no_difference() -> None:
    shown, policy = seen(), trained(5)
    lanes, order = np.arange(len(shown["jobs"])), [3, 0, 4, 1, 2]
    jobs, places = np.divmod(policy.act_lanes(shown, lanes), 6)
    turned_jobs, turned_places = np.divmod(policy.act_lanes(reordered(shown, order), lanes), 6)
    assert len(set(places)) > 1
    assert turned_jobs.tolist() == jobs.tolist()
    assert np.array(order)[turned_places].tolist() == places.tolist()


def tried(
    policy: MTDQNPolicy,
    shown: Observation,
    how: int,
    draw: float | np.ndarray,
    take: bool = True,
    spent: bool = False,
) -> tuple[Label, list[int]]:
    """What is kept of an exploration, and its actions."""
    n, n_jobs = shown["jobs"].shape[:2]
    no_taste, all_spent = np.zeros((n, 0), np.float32), np.full((n, n_jobs), spent)
    exploring = Exploring(np.full(n, how), np.full(n, draw), np.full(n, take), all_spent, no_taste)
    label = empty_label(n, policy.view.sizes)
    return label, policy.explore(shown, np.arange(n), exploring, label, False).tolist()


def test_an_alternative_is_taken_or_not_and_both_are_kept() -> None:
    shown, policy = seen(), trained(6)
    lanes, draws = np.arange(len(shown["jobs"])), np.random.default_rng(1).random(len(shown["jobs"]))
    greedy = policy.act_lanes(shown, lanes)
    for how in (GUIDED, RANDOM):
        kept, chosen = tried(policy, shown, how, draws)
        passed, left = tried(policy, shown, how, draws, take=False)
        assert left == tried(policy, shown, how, draws, spent=True)[1] == greedy.tolist()
        assert not passed.taken.any()
        assert (kept.tried == (chosen != greedy)).all()
        assert (kept.taken == kept.tried).all()
        assert kept.tried.any()
        assert (kept.columns == passed.columns).all()
        if how == GUIDED:
            assert chosen == make_rule("tuned").act_lanes(shown, lanes).tolist()


def test_what_is_drawn_is_nearly_as_good_or_the_second_best() -> None:
    """Only draws decide, so all candidates come up; those that are far worse never do."""
    shown, policy = seen(), trained(7)
    n = len(shown["jobs"])
    table = policy.value_table(shown) @ np.array([1.0, 1.0, 5.0])
    drawn: list[set[int]] = [set() for _ in range(n)]
    for draw in np.linspace(0.0, 0.999, 25):
        for row, action in enumerate(tried(policy, shown, RANDOM, draw)[1]):
            drawn[row].add(action)
    for row, actions_drawn in enumerate(drawn):
        job = next(iter(actions_drawn)) // 6
        worth = table[row, job, :5]
        second = int(np.argsort(worth)[-2])
        proper = shown["pairs"][row, job, :, col.IMPROPER] == 0.0
        expected = {int(c) for c in np.flatnonzero(proper & (worth >= worth.max() - 2.0))} | {second}
        assert {action % 6 for action in actions_drawn} == expected


def test_weights_that_do_not_fit_are_refused() -> None:
    weights = Weights(network_size(SIZES))
    assert not weights.trained
    weights.load_state_dict({"vector": torch.zeros(0)})
    assert not weights.trained
    for bad in (torch.zeros(3), torch.full((network_size(SIZES),), torch.nan)):
        with pytest.raises(RuntimeError):
            weights.load_state_dict({"vector": bad})
    with pytest.raises(RuntimeError):
        weights.load_state_dict({})


def test_an_observation_without_a_job_is_refused() -> None:
    shown = seen(steps=1)
    shown["jobs"][1] = 0.0
    shown["action_mask"][1] = 0
    with pytest.raises(ValueError, match="observation 1 offers no valid action"):
        trained(8).act_lanes(shown, np.arange(LANES))


# In markets: targets by hand, the rule where nothing is learned, and which choices are tried.

WEIGHTS = (25.0, 25.0, 0.25, 1.0, 0.36)
EIGHT = np.arange(8)


def untaught(margin: float = 0.0) -> MTDQNPolicy:
    return MTDQNPolicy(MarketView(0, 6, 1, 0), WEIGHTS, "mtdqn", margin)


def taught(margin: float = 0.0) -> MTDQNPolicy:
    """With random weights."""
    policy, rng = untaught(margin), np.random.default_rng(4)
    vector = rng.normal(0.0, 1.0, policy.network.size).astype(np.float32)
    vector[N_CHOICE + N_STATE : 2 * (N_CHOICE + N_STATE)] = 0.2
    policy.network.set_vector(vector)
    return policy


@pytest.fixture(scope="module")
def offers() -> Observation:
    """Decisions of different moments of eight episodes in markets, where there is a choice."""
    world = build_market(MarketWorldConfig(WorkloadConfig(jobs=30)), 8)
    world.reset([EpisodeKey(3, "train", lane) for lane in range(8)])
    rule = make_rule("expected_cost")
    for _ in range(25):
        world.step(rule.act_batch(world.observation, EIGHT))
    return take_rows(world.observation, EIGHT)


def test_untrained_it_is_its_rule(offers: Observation) -> None:
    expected = make_rule("expected_cost").act_batch(offers, EIGHT)
    np.testing.assert_array_equal(untaught().act_batch(offers, EIGHT), expected)
    assert (taught().act_batch(offers, EIGHT) != expected).any()
    # Whatever the network says: no choice is better than the rule's by a margin of a thousand scales.
    np.testing.assert_array_equal(taught(margin=1000.0).act_batch(offers, EIGHT), expected)


def test_untrained_it_gives_way_where_its_rule_does() -> None:
    zones = [f"aws/us-east-1{zone}/p3.2xlarge/spot" for zone in "acdf"]
    market = MarketConfig(offers=zones, spot_quota=4)
    world = build_market(MarketWorldConfig(market=market), 8)
    world.reset([EpisodeKey(3, "train", lane) for lane in range(8)])
    rule = make_rule("expected_cost")
    never = make_rule("expected_cost", {"queue_after_s": 0.0, "reserve": 0.0})
    gave_way = 0
    for _ in range(60):
        actions = rule.act_batch(world.observation, EIGHT)
        np.testing.assert_array_equal(untaught().act_batch(world.observation, EIGHT), actions)
        gave_way += int((never.act_batch(world.observation, EIGHT) != actions).sum())
        world.step(actions)
    assert gave_way > 0


def test_each_target_is_what_an_outcome_exceeds_the_rules_estimate_by() -> None:
    """Two decisions of 4 USD: a step of 2 standard hours, half done, and a stream with 10 batches left."""
    view = MarketView(0, 6, 1, 0)
    label = empty_label(2, view.sizes)
    state = label.columns[:, 1, N_CHOICE : N_CHOICE + N_STATE]
    state[0, STANDARD], state[0, PROGRESS] = np.log1p(120.0), 0.5
    state[1, STREAMING] = 1.0
    label.known[:, 1, [MONEY, DELAY, OWNED]] = [[-3.0, -5.0, -2.0], [-6.0, -0.5, 0.0]]
    # The step makes others late with it: that is at stake, but its own deadline is what is learned.
    label.facts[:, :2] = [[4.0, 1.6], [4.0, 2.0]]
    # Own misses, mutual misses, delay hours, USD, owned executor-hours.
    outcomes = np.array([[1.0, 9.0, 8.0, 5.0, 0.0], [0.6, 0.0, 0.5, 2.0, 10.0]])
    side = np.ones(2, np.int64)
    targets = view.targets(label, side, outcomes)[:, [OWN_MISSES, DELAY, MONEY, OWNED]]
    # The rule's 5 hours hold the hour of work that is left, which the world does not count as delay.
    assert targets[0] == pytest.approx([1.0, 0.25 * (8.0 - 4.0) / 4, 2.0 / 4, 0.36 * -2.0 / 4])
    # 0.6 misses of a one-shot job are three late batches of ten.
    assert targets[1] == pytest.approx([0.3, 0.0, -1.0, 0.36 * 10.0 / 4])
    label.facts[:, 1] = 0.0
    assert np.isnan(view.targets(label, side, outcomes)[:, OWN_MISSES]).all()


def test_exploration_takes_every_candidate_and_keeps_what_was_taken(offers: Observation) -> None:
    policy = taught()
    n_targets = offers["clusters"].shape[1] + 1
    taken: list[set[int]] = [set() for _ in EIGHT]
    for draw in np.linspace(0.0, 0.999, 40):
        label, actions = tried(policy, offers, RANDOM, draw)
        assert offers["action_mask"][EIGHT, actions].all()
        for row in EIGHT:
            taken[row].add(actions[row])
            spot, place = label.columns[row, 0, 1], actions[row] % n_targets
            if place < n_targets - 1:
                assert spot == offers["clusters"][row, place, col.IS_SPOT]
    values = policy.value_table(offers)
    for row in EIGHT:
        weighed = np.argwhere(~np.isnan(values[row, ..., 0]))
        assert taken[row] == {int(job * n_targets + place) for job, place in weighed}
    assert max(len(one) for one in taken) > 2
    guided, actions = tried(policy, offers, GUIDED, 0.0)
    assert actions == make_rule("expected_cost").act_batch(offers, EIGHT).tolist()
    assert guided.tried.any()


@pytest.mark.parametrize(
    ("place", "other_weights"), [("slices", (1.0, 0.0, 500.0)), ("markets", (25.0, 25.0, 0.25, 0.0, 0.36))]
)
def test_the_largest_weighed_value_is_taken_and_weights_can_be_changed(
    place: str, other_weights: tuple[float, ...], offers: Observation
) -> None:
    policy, shown = (trained(4), seen()) if place == "slices" else (taught(), offers)
    rows, taken = np.arange(len(shown["jobs"])), []
    for weights in (policy.value_weights, other_weights):
        policy.set_weights(weights)
        taken.append(policy.act_batch(shown, rows).tolist())
        total = policy.value_table(shown) @ np.array(weights)
        assert np.nanargmax(total.reshape(len(rows), -1), 1).tolist() == taken[-1]
    assert taken[0] != taken[1]
    for wrong, message in (((1.0,), "1 value weights given"), ((np.nan,) * len(other_weights), "finite")):
        with pytest.raises(ValueError, match=message):
            policy.set_weights(wrong)


def test_what_the_mutual_value_is_compared_with_is_what_decides() -> None:
    world: MarketWorld = build_market(MarketWorldConfig(WorkloadConfig(jobs=10)), 4)
    world.reset([EpisodeKey(3, "train", lane) for lane in range(4)])
    policy, lanes = taught(), np.arange(4)
    label, _ = tried(policy, world.observation, RANDOM, 0.7)
    table = policy.value_table(world.observation) @ np.array(WEIGHTS)
    best = np.nanmax(table.reshape(4, -1), 1)
    network = MTDQNNetwork(policy.view.sizes)
    network.set_vector(policy.network.vector)
    outputs = network.own_values(torch.from_numpy(label.columns[lanes, 1])).mean(0)
    known, facts = torch.from_numpy(label.known[:, 1]), torch.from_numpy(label.facts)
    worth = policy.view.own_worth(outputs, known, facts, torch.from_numpy(policy.of_heads))
    assert label.columns.shape[2] == n_columns(policy.view.sizes)
    assert worth.detach().numpy() == pytest.approx(best, rel=1e-3)


def test_each_member_acts_by_one_of_the_networks() -> None:
    policy = MTDQNPolicy(MarketView(lstm=3, own=8, networks=3, mutual=2), WEIGHTS, "mtdqn")
    assert [one.network.trained for one in policy.members()] == [False] * 3
    network = MTDQNNetwork(policy.view.sizes)
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter)
    policy.network.set_vector(network.vector())
    columns, needs = torch.rand(7, n_columns(policy.view.sizes)), torch.rand(7)
    for member, together in zip(policy.members(), network.own_values(columns), strict=True):
        alone = MTDQNNetwork(member.view.sizes)
        alone.set_vector(member.network.vector)
        torch.testing.assert_close(alone.own_values(columns)[0], together)
        torch.testing.assert_close(alone.mutual_values(columns, needs), network.mutual_values(columns, needs))


# How `mtdqn` answers questions about bags, workflows and rounds, and the rules there: one contract.


HIDDEN = 5


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


def policy_of(name: str, seed: int | None = None) -> MTDQNPolicy:
    policy = MTDQNPolicy(QuestionView(CASES[name].rule, 0, 0, HIDDEN), (1.0, 1.0), "random")
    if seed is not None:
        weights = np.random.default_rng(seed).normal(0.0, 1.0, policy.network.size)
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
    world = cast(Any, case.build())
    played(world, named_rule(case.rule), 100_000)  # to the end
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
