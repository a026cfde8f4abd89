"""The agent `mtdqn`: compiled values against torch, what is known by hand, and what must not matter."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest
import torch

from agents.mtdqn.decide import GUIDED, RANDOM, Exploring, empty_label, room_for
from agents.mtdqn.forward import Sizes, evaluate, n_columns, network_size
from agents.mtdqn.network import MTDQNNetwork
from agents.mtdqn.policy import MTDQNPolicy, Weights
from agents.mtdqn.slices import NEED_UNIT, SliceView, weigh
from agents.rules import make_rule
from agents.rules.choice import row_of
from envs.simulation import columns as col
from envs.simulation.slices.config import SliceWorldConfig
from envs.simulation.slices.world import SliceWorld
from envs.simulation.snapshot import Observation, arrays_of, take_rows
from envs.simulation.world import EpisodeKey
from tests.agents.inputs import played
from tests.agents.test_mtdqn_questions import reordered

SIZES = Sizes(places=28, state=16, heads=2, lstm=3, own=6, mutual=5, scaled=0)
LANES = 4


def no_taste(n: int) -> np.ndarray:
    return np.zeros((n, 0), np.float32)


def trained(seed: int, guide: Literal["tuned", "committed"] = "tuned") -> MTDQNPolicy:
    """A policy with random weights, large enough to overrule what is known."""
    policy = untrained(guide)
    rng = np.random.default_rng(seed)
    policy.network.set_vector(rng.normal(0.0, 0.5, policy.network.size).astype(np.float32))
    return policy


def untrained(guide: Literal["tuned", "committed"] = "tuned") -> MTDQNPolicy:
    """A policy without weights."""
    return MTDQNPolicy(SliceView(guide == "committed", 3, 6, 5), (1.0, 1.0, 5.0), "mtdqn")


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
    evaluate(network.vector(), sizes, columns, needs, values)
    own = network.own_values(torch.from_numpy(columns)).detach().numpy()
    others = network.mutual_values(torch.from_numpy(columns), torch.from_numpy(needs)).detach().numpy()
    assert np.abs(own).min() > 0.0
    assert values[:, :heads] == pytest.approx(own, abs=1e-5)
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
    shown["jobs"][0, 0, [col.EXECUTIONS, col.STANDARD_S]] = 12, 50
    pair = shown["pairs"][0, 0]
    pair[:, col.EXECUTION_S], pair[:, col.EXECUTION_RATIO] = (65, 40, 40, 40, 40), (1.3, 0.8, 0.8, 0.8, 0.8)
    pair[:, col.IMPROPER], pair[:, col.REQUEST] = (1, 0, 0, 0, 0), 100
    choices = room_for(5, SIZES)
    weigh(row_of(arrays_of(shown), 0), 0, untrained().acting(follow=True), choices)
    assert choices.values[0] == pytest.approx([-12.0, -0.3, 0.0], abs=1e-6)
    assert choices.values[1] == pytest.approx([0.0, 0.2, 0.0], abs=1e-6)
    assert choices.needs[:2] == pytest.approx([12 * 65 * 100 / NEED_UNIT, 12 * 40 * 100 / NEED_UNIT])


def test_the_largest_weighed_value_is_taken_and_weights_can_be_changed() -> None:
    shown, policy = seen(), trained(4)
    lanes = np.arange(len(shown["jobs"]))
    taken = []
    for weights in ((1.0, 1.0, 5.0), (1.0, 0.0, 500.0)):
        policy.set_weights(weights)
        table = policy.value_table(shown) @ np.array(weights)
        best = np.nanargmax(table.reshape(len(lanes), -1), axis=1)
        taken.append(policy.act_lanes(shown, lanes))
        assert best.tolist() == taken[-1].tolist()
    assert taken[0].tolist() != taken[1].tolist()
    with pytest.raises(ValueError, match="2 value weights given"):
        policy.set_weights((1.0, 5.0))


def test_the_order_of_clusters_makes_no_difference() -> None:
    shown, policy = seen(), trained(5)
    lanes, order = np.arange(len(shown["jobs"])), [3, 0, 4, 1, 2]
    jobs, places = np.divmod(policy.act_lanes(shown, lanes), 6)
    turned_jobs, turned_places = np.divmod(policy.act_lanes(reordered(shown, order), lanes), 6)
    assert len(set(places)) > 1
    assert turned_jobs.tolist() == jobs.tolist()
    assert np.array(order)[turned_places].tolist() == places.tolist()


def test_an_alternative_is_taken_or_not_and_both_are_kept() -> None:
    shown, policy = seen(), trained(6)
    n = len(shown["jobs"])
    lanes, draws = np.arange(n), np.random.default_rng(1).random(n)
    greedy = policy.act_lanes(shown, lanes)
    guided = make_rule("tuned").act_lanes(shown, lanes)
    for how in (GUIDED, RANDOM):
        none_spent = np.zeros((n, shown["jobs"].shape[1]), np.bool_)
        exploring = Exploring(np.full(n, how), draws, np.ones(n, np.bool_), none_spent, no_taste(n))
        kept, passed = empty_label(n, SIZES), empty_label(n, SIZES)
        chosen = policy.explore(shown, lanes, exploring, kept, False)
        left = policy.explore(shown, lanes, exploring._replace(take=~exploring.take), passed, False)
        all_spent = exploring._replace(spent=~none_spent)
        actions = policy.explore(shown, lanes, all_spent, empty_label(n, SIZES), False)
        assert actions.tolist() == greedy.tolist()
        assert left.tolist() == greedy.tolist()
        assert not passed.taken.any()
        assert (kept.tried == (chosen != greedy)).all()
        assert (kept.taken == kept.tried).all()
        assert kept.tried.any()
        assert (kept.columns == passed.columns).all()
        if how == GUIDED:
            assert chosen.tolist() == guided.tolist()


def test_what_is_drawn_is_nearly_as_good_or_the_second_best() -> None:
    """Only draws decide, so all candidates come up; those that are far worse never do."""
    shown, policy = seen(), trained(7)
    n = len(shown["jobs"])
    table = policy.value_table(shown) @ np.array([1.0, 1.0, 5.0])
    drawn: list[set[int]] = [set() for _ in range(n)]
    for draw in np.linspace(0.0, 0.999, 25):
        none_spent = np.zeros((n, shown["jobs"].shape[1]), np.bool_)
        exploring = Exploring(
            np.full(n, RANDOM), np.full(n, draw), np.ones(n, np.bool_), none_spent, no_taste(n)
        )
        actions = policy.explore(shown, np.arange(n), exploring, empty_label(n, SIZES), False)
        for row, action in enumerate(actions):
            drawn[row].add(int(action))
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
