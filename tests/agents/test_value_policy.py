"""The greedy policy: the best valid choice over all jobs, under weights that can be changed at any time."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from agents.networks.base import ValueNetwork
from agents.value_policy import ValuePolicy, to_input
from envs.simulation import columns as col
from envs.simulation.snapshot import Observation, empty_observation
from tests.agents.inputs import TableNetwork, random_batch

J, C = 3, 2
LANE = np.zeros(1, np.int64)
# Two components (misses, money) of every choice: (J, C + 1, K). Scales 2 and 10.
TABLE = torch.tensor(
    [
        [[-1.0, -9.0], [-2.0, -1.0], [-3.0, -3.0]],
        [[-0.5, -8.0], [-4.0, -0.5], [-3.0, -3.0]],
        [[-5.0, -5.0], [-5.0, -0.1], [-9.0, -9.0]],
    ]
)


def policy(weights: tuple[float, ...] = (1.0, 0.0)) -> ValuePolicy:
    return ValuePolicy(TableNetwork(TABLE, (2.0, 10.0)), weights, "table")


def observe(valid: list[int], present: int = J) -> Observation:
    batch = empty_observation(J, C, (1,))
    batch["jobs"][0, :present, col.PRESENT] = 1
    batch["action_mask"][0, valid] = 1
    return batch


def test_the_best_choice_over_all_jobs_wins() -> None:
    everything = observe(list(range(J * (C + 1))))
    assert policy((1.0, 0.0)).act_batch(everything, LANE).tolist() == [3]  # job 1, cluster 0: -0.5
    assert policy((0.0, 1.0)).act_batch(everything, LANE).tolist() == [7]  # job 2, cluster 1: -0.1


def test_invalid_choices_are_never_taken() -> None:
    assert policy().act_batch(observe([1, 4, 8]), LANE).tolist() == [1]
    assert policy().act_batch(observe([8]), LANE).tolist() == [8]  # the worst, but the only one
    assert policy().act_batch(observe([2, 4]), LANE).tolist() == [2]  # "none for now" is a choice


def test_components_are_weighted_in_physical_units() -> None:
    # Values of job 0: cluster 0 (-2, -90), cluster 1 (-4, -10), none (-6, -30). With weights (w, 1):
    # cluster 0 wins over 1 when -2w - 90 > -4w - 10, i.e. w > 40.
    shown = observe([0, 1, 2], present=1)
    assert policy((39.9, 1.0)).act_batch(shown, LANE).tolist() == [1]
    assert policy((40.1, 1.0)).act_batch(shown, LANE).tolist() == [0]


def test_weights_change_the_choice_without_retraining() -> None:
    acting = policy((1.0, 0.0))
    before = {name: tensor.clone() for name, tensor in acting.network.state_dict().items()}
    everything = observe(list(range(J * (C + 1))))
    assert acting.act_batch(everything, LANE).tolist() == [3]
    acting.set_weights((0.0, 1.0))
    assert acting.act_batch(everything, LANE).tolist() == [7]
    assert all(torch.equal(before[name], tensor) for name, tensor in acting.network.state_dict().items())


def test_rows_are_decided_on_their_own() -> None:
    batch = random_batch(6, J, C, seed=3)
    acting = policy((1.0, 0.3))
    together = acting.act_batch(batch, np.arange(6))
    scores = (TABLE * torch.tensor([2.0, 10.0]) @ torch.tensor([1.0, 0.3])).flatten().numpy()
    for row in range(6):
        valid = np.flatnonzero(batch["action_mask"][row])
        assert together[row] == valid[np.argmax(scores[valid])]


def test_empty_rows_of_the_window_are_not_computed() -> None:
    seen: list[int] = []

    class Counting(TableNetwork):
        def forward(self, batch):  # type: ignore[no-untyped-def]
            seen.append(batch.jobs.shape[1])
            return super().forward(batch)

    acting = ValuePolicy(Counting(TABLE, (2.0, 10.0)), (1.0, 0.0), "table")
    acting.act_batch(observe([0, 1], present=1), LANE)
    acting.act_batch(observe([0, 4], present=2), LANE)
    assert seen == [1, 2]


def test_a_single_observation_needs_no_batch() -> None:
    batch = observe([1, 4, 8])
    single: Observation = {
        "clusters": batch["clusters"][0],
        "occupation": batch["occupation"][0],
        "jobs": batch["jobs"][0],
        "pairs": batch["pairs"][0],
        "action_mask": batch["action_mask"][0],
    }
    assert policy().act(single) == 1


def test_to_input_cuts_the_window_and_keeps_the_clusters() -> None:
    batch = random_batch(2, J, C)
    cut = to_input(batch, torch.device("cpu"), 1)
    assert cut.jobs.shape[:2] == (2, 1)
    assert cut.pairs.shape[:3] == (2, 1, C)
    assert np.array_equal(cut.clusters.numpy(), batch["clusters"])
    assert to_input(batch, torch.device("cpu")).jobs.shape[:2] == (2, J)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ((1.0, float("nan")), r"value weights must be finite numbers, got \[1.0, nan\]"),
        ((float("inf"), 1.0), "value weights must be finite numbers"),
        ((1.0,), "1 value weights given, but the policy has 2 value components"),
        ((1.0, 2.0, 3.0), "3 value weights given, but the policy has 2 value components"),
        ((), "0 value weights given"),
    ],
)
def test_wrong_weights_are_one_clear_line(weights: tuple[float, ...], message: str) -> None:
    acting = policy((1.0, 0.0))
    for attempt in (lambda: policy(weights), lambda: acting.set_weights(weights)):
        with pytest.raises(ValueError, match=message) as caught:
            attempt()
        assert "\n" not in str(caught.value)
    assert acting.weights.tolist() == [1.0, 0.0]  # a refused change changes nothing


def test_acting_needs_no_gradients_and_no_training_mode() -> None:
    network: ValueNetwork = TableNetwork(TABLE, (2.0, 10.0))
    network.train()
    acting = ValuePolicy(network, (1.0, 0.0), "table")
    assert not acting.component_values(observe([0])).requires_grad
    assert not network.training
