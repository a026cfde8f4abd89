"""The agent `outcomes`: compiled against torch, labels by hand, and the rule where nothing is learned."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from agents.outcomes.decide import Label, Weighing
from agents.outcomes.features import N_FEATURES, N_STATE, PROGRESS, STANDARD, STREAMING
from agents.outcomes.forward import HEADS, Sizes, evaluate, n_inputs, network_size
from agents.outcomes.labels import targets_of
from agents.outcomes.network import OutcomeNetwork
from agents.outcomes.policy import Ensemble, OutcomePolicy
from agents.rules import make_rule
from envs.multicloud import build_market
from envs.simulation import columns as col
from envs.simulation.market.config import MarketWorldConfig, WorkloadConfig
from envs.simulation.market.world import MarketWorld
from envs.simulation.snapshot import Observation, take_rows
from envs.simulation.world import EpisodeKey

WEIGHTS = (25.0, 5.0, 0.25, 1.0, 0.36)
SIZES = Sizes(hidden=6, lstm=0)


def a_policy(**changes: float) -> OutcomePolicy:
    return OutcomePolicy(Ensemble(2, SIZES), WEIGHTS, "outcomes", **changes)


def taught(policy: OutcomePolicy, spread: float = 0.3) -> OutcomePolicy:
    """With random weights."""
    rng = np.random.default_rng(4)
    vectors = rng.normal(0.0, spread, policy.network.vectors.shape).astype(np.float32)
    vectors[:, N_FEATURES : 2 * N_FEATURES] = 0.2
    policy.network.set_vectors(vectors)
    return policy


@pytest.fixture(scope="module")
def world() -> MarketWorld:
    made = build_market(MarketWorldConfig(WorkloadConfig(jobs=30)), 8)
    made.reset([EpisodeKey(3, "train", lane) for lane in range(8)])
    return made


@pytest.fixture(scope="module")
def observations(world: MarketWorld) -> Observation:
    """Decisions of different moments of eight episodes, where there is a choice."""
    rule = make_rule("expected_cost")
    lanes = np.arange(8)
    for _ in range(25):
        world.step(rule.act_batch(world.observation, lanes))
    return take_rows(world.observation, lanes)


@pytest.mark.parametrize("lstm", [0, 5])
def test_the_compiled_network_is_torchs(lstm: int) -> None:
    torch.manual_seed(0)
    sizes = Sizes(hidden=6, lstm=lstm)
    network = OutcomeNetwork(sizes)
    features = torch.randn(7, n_inputs(sizes)) * 3.0 + 1.0
    network.fit_scaler(torch.randn(100, n_inputs(sizes)) * 2.0)
    torch.nn.init.normal_(network.heads.weight)
    outputs = np.empty((7, HEADS), np.float32)
    vector = network.vector()
    assert len(vector) == network_size(sizes)
    evaluate(vector, sizes, features.numpy(), outputs)
    np.testing.assert_allclose(outputs, network(features).detach().numpy(), rtol=1e-4, atol=1e-4)


def test_untrained_it_is_its_rule(observations: Observation) -> None:
    lanes = np.arange(8)
    expected = make_rule("expected_cost").act_batch(observations, lanes)
    np.testing.assert_array_equal(a_policy().act_batch(observations, lanes), expected)
    trained = taught(a_policy(margin=0.0, doubt=0.0), spread=1.0)
    # Whatever the networks say: no choice is better than the rule's by a margin of a thousand scales.
    cautious = taught(a_policy(margin=1000.0))
    assert (trained.act_batch(observations, lanes) != expected).any()
    np.testing.assert_array_equal(cautious.act_batch(observations, lanes), expected)


def test_each_target_is_what_an_outcome_exceeds_the_rules_estimate_by() -> None:
    """Two decisions of 4 USD: a job of 2 standard hours, half done, and a stream with 10 batches left."""
    features = np.zeros((2, N_FEATURES), np.float32)
    features[0, STANDARD], features[0, PROGRESS] = np.log1p(120.0), 0.5
    features[1, STREAMING] = 1.0
    expected = np.array([[3.0, 5.0, 2.0, 0.1], [6.0, 0.5, 0.0, 1.0]])
    label = Label(features, expected, np.array([4.0, 4.0]), np.array([1.0, 10.0]))
    # Own misses, mutual misses, delay hours, USD, owned executor-hours.
    outcomes = np.array([[1.0, 9.0, 8.0, 5.0, 0.0], [0.6, 0.0, 0.5, 2.0, 10.0]])
    targets = targets_of(label, outcomes, Weighing(25.0, 5.0, 0.25, 1.0, 0.36, 0.0, 0.0))
    # The rule's 5 hours hold the hour of work that is left, which the world does not count as delay.
    assert targets[0] == pytest.approx([2.0 / 4, 0.25 * (8.0 - 4.0) / 4, 0.36 * -2.0 / 4, 1.0])
    # 0.6 misses of a one-shot job are three late batches of ten.
    assert targets[1] == pytest.approx([-1.0, 0.0, 0.36 * 10.0 / 4, 0.3])
    no_deadline = label._replace(left=np.zeros(2))
    assert np.isnan(targets_of(no_deadline, outcomes, a_policy().weighing)[:, 3]).all()


def test_exploration_takes_every_candidate_and_keeps_what_was_taken(observations: Observation) -> None:
    policy, rows = a_policy(), np.arange(8)
    n_targets = observations["clusters"].shape[1] + 1
    taken: list[set[int]] = [set() for _ in rows]
    for draw in np.linspace(0.0, 0.999, 40):
        label = policy.empty_label(8)
        actions = policy.explore(observations, rows, np.full(8, draw), label)
        assert observations["action_mask"][rows, actions].all()
        for row in rows:
            taken[row].add(int(actions[row]))
            spot = label.features[row, N_STATE + 1]
            place = actions[row] % n_targets
            if place < n_targets - 1:
                assert spot == observations["clusters"][row, place, col.IS_SPOT]
    values = taught(a_policy()).value_table(observations)
    for row in rows:
        weighed = np.argwhere(~np.isnan(values[row, ..., 0]))
        weighed_actions = {int(job * n_targets + place) for job, place in weighed}
        assert taken[row] == weighed_actions or len(taken[row]) == 1
    assert max(len(one) for one in taken) > 2


def test_other_weights_act_at_once(observations: Observation) -> None:
    policy, lanes = taught(a_policy(margin=0.0, doubt=0.0)), np.arange(8)
    before = policy.act_batch(observations, lanes)
    policy.set_weights((25.0, 5.0, 0.25, 0.0, 0.36))  # money is nothing
    after = policy.act_batch(observations, lanes)
    assert (before != after).any()
    for wrong, message in (((1.0,), "1 value weights given"), ((1.0, 1.0, np.nan, 1.0, 1.0), "finite")):
        with pytest.raises(ValueError, match=message):
            policy.set_weights(wrong)


@pytest.mark.parametrize("wrong", ["shape", "nan"])
def test_weights_that_do_not_fit_are_refused(wrong: str) -> None:
    network = Ensemble(2, SIZES)
    vectors = torch.zeros(3 if wrong == "shape" else 2, network_size(SIZES))
    vectors[0, 0] = np.nan if wrong == "nan" else 0.0
    with pytest.raises(RuntimeError, match=r"expected weights of shape|finite"):
        network.load_state_dict({"vectors": vectors})
