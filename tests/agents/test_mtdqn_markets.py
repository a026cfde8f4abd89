"""`mtdqn` in markets: targets by hand, the rule where nothing is learned, and which choices are tried."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from agents.mtdqn.decide import GUIDED, RANDOM, Exploring, Label, empty_label
from agents.mtdqn.forward import n_columns
from agents.mtdqn.market_columns import N_CHOICE, N_STATE, PROGRESS, STANDARD, STREAMING
from agents.mtdqn.markets import DELAY, MONEY, OWN_MISSES, OWNED, MarketView
from agents.mtdqn.network import MTDQNNetwork
from agents.mtdqn.policy import MTDQNPolicy
from agents.rules import make_rule
from envs.multicloud import build_market
from envs.simulation import columns as col
from envs.simulation.market.config import MarketWorldConfig, WorkloadConfig
from envs.simulation.market.world import MarketWorld
from envs.simulation.snapshot import Observation, take_rows
from envs.simulation.world import EpisodeKey

WEIGHTS = (25.0, 25.0, 0.25, 1.0, 0.36)
LANES = np.arange(8)


def untrained(margin: float = 0.0) -> MTDQNPolicy:
    return MTDQNPolicy(MarketView(0, 6, 0), WEIGHTS, "mtdqn", margin)


def taught(margin: float = 0.0, spread: float = 1.0) -> MTDQNPolicy:
    """With random weights."""
    policy, rng = untrained(margin), np.random.default_rng(4)
    vector = rng.normal(0.0, spread, policy.network.size).astype(np.float32)
    vector[N_CHOICE + N_STATE : 2 * (N_CHOICE + N_STATE)] = 0.2
    policy.network.set_vector(vector)
    return policy


@pytest.fixture(scope="module")
def observations() -> Observation:
    """Decisions of different moments of eight episodes, where there is a choice."""
    world = build_market(MarketWorldConfig(WorkloadConfig(jobs=30)), 8)
    world.reset([EpisodeKey(3, "train", lane) for lane in range(8)])
    rule = make_rule("expected_cost")
    for _ in range(25):
        world.step(rule.act_batch(world.observation, LANES))
    return take_rows(world.observation, LANES)


def test_untrained_it_is_its_rule(observations: Observation) -> None:
    expected = make_rule("expected_cost").act_batch(observations, LANES)
    np.testing.assert_array_equal(untrained().act_batch(observations, LANES), expected)
    assert (taught().act_batch(observations, LANES) != expected).any()
    # Whatever the network says: no choice is better than the rule's by a margin of a thousand scales.
    np.testing.assert_array_equal(taught(margin=1000.0).act_batch(observations, LANES), expected)


def test_each_target_is_what_an_outcome_exceeds_the_rules_estimate_by() -> None:
    """Two decisions of 4 USD: a job of 2 standard hours, half done, and a stream with 10 batches left."""
    view = MarketView(0, 6, 0)
    label = empty_label(2, view.sizes)
    state = label.columns[:, 1, N_CHOICE : N_CHOICE + N_STATE]
    state[0, STANDARD], state[0, PROGRESS] = np.log1p(120.0), 0.5
    state[1, STREAMING] = 1.0
    label.known[:, 1, [MONEY, DELAY, OWNED]] = [[-3.0, -5.0, -2.0], [-6.0, -0.5, 0.0]]
    label.facts[:, :2] = [[4.0, 1.0], [4.0, 2.0]]
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


def tried(policy: MTDQNPolicy, shown: Observation, how: int, draw: float) -> tuple[Label, list[int]]:
    n, n_jobs = shown["jobs"].shape[:2]
    none_spent = np.zeros((n, n_jobs), np.bool_)
    no_taste = np.zeros((n, 0), np.float32)
    exploring = Exploring(np.full(n, how), np.full(n, draw), np.ones(n, np.bool_), none_spent, no_taste)
    label = empty_label(n, policy.view.sizes)
    return label, policy.explore(shown, np.arange(n), exploring, label, False).tolist()


def test_exploration_takes_every_candidate_and_keeps_what_was_taken(observations: Observation) -> None:
    policy = taught()
    n_targets = observations["clusters"].shape[1] + 1
    taken: list[set[int]] = [set() for _ in LANES]
    for draw in np.linspace(0.0, 0.999, 40):
        label, actions = tried(policy, observations, RANDOM, draw)
        assert observations["action_mask"][LANES, actions].all()
        for row in LANES:
            taken[row].add(actions[row])
            spot, place = label.columns[row, 0, 1], actions[row] % n_targets
            if place < n_targets - 1:
                assert spot == observations["clusters"][row, place, col.IS_SPOT]
    values = policy.value_table(observations)
    for row in LANES:
        weighed = np.argwhere(~np.isnan(values[row, ..., 0]))
        assert taken[row] == {int(job * n_targets + place) for job, place in weighed}
    assert max(len(one) for one in taken) > 2
    guided, actions = tried(policy, observations, GUIDED, 0.0)
    assert actions == make_rule("expected_cost").act_batch(observations, LANES).tolist()
    assert guided.tried.any()


def test_the_largest_weighed_value_is_taken_and_weights_can_be_changed(observations: Observation) -> None:
    policy, taken = taught(), []
    for weights in (WEIGHTS, (25.0, 25.0, 0.25, 0.0, 0.36)):  # money is nothing
        policy.set_weights(weights)
        taken.append(policy.act_batch(observations, LANES).tolist())
        total = policy.value_table(observations) @ np.array(weights)
        assert np.nanargmax(total.reshape(8, -1), 1).tolist() == taken[-1]
    assert taken[0] != taken[1]
    for wrong, message in (((1.0,), "1 value weights given"), ((1.0, 1.0, np.nan, 1.0, 1.0), "finite")):
        with pytest.raises(ValueError, match=message):
            policy.set_weights(wrong)


def test_what_the_mutual_value_is_compared_with_is_what_decides() -> None:
    """The worth of outputs in torch, with which lanes are compared, is that of the compiled values."""
    world: MarketWorld = build_market(MarketWorldConfig(WorkloadConfig(jobs=10)), 4)
    world.reset([EpisodeKey(3, "train", lane) for lane in range(4)])
    policy, lanes = taught(), np.arange(4)
    label, _ = tried(policy, world.observation, RANDOM, 0.7)
    table = policy.value_table(world.observation) @ np.array(WEIGHTS)
    best = np.nanmax(table.reshape(4, -1), 1)
    network = MTDQNNetwork(policy.view.sizes)
    network.set_vector(policy.network.vector)
    outputs = network.own_values(torch.from_numpy(label.columns[lanes, 1]))
    known, facts = torch.from_numpy(label.known[:, 1]), torch.from_numpy(label.facts)
    worth = policy.view.own_worth(outputs, known, facts, torch.from_numpy(policy.of_heads))
    assert label.columns.shape[2] == n_columns(policy.view.sizes)
    assert worth.detach().numpy() == pytest.approx(best, rel=1e-3)
