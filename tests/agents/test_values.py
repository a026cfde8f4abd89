"""The value networks, and the greedy policy that acts by them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from spotweave.agents.networks import (
    RLFC,
    RLLSFC,
    FeatureScaler,
    NetworkInput,
    StateColumns,
    ValueNetwork,
    ValuePolicy,
    request_distribution,
)
from spotweave.envs.simulation import columns as col
from spotweave.envs.simulation.snapshot import HISTORY_STEPS, Observation, empty_observation
from tests.agents.inputs import TableNetwork, random_batch, random_input, small_network
from tests.envs.checks import decided

# The value networks: shapes of the thesis, the occupation traverse, scaling, and what must not matter.

C, J = 5, 3
SCALES = (5.0, 20.0, 0.25)
SIZES = {"lstm_size": 6, "shared_size": 16, "head_size": 8, "hidden_sizes": [16, 8]}


def network(kind: str, features: str = "table_5_1") -> ValueNetwork:
    torch.manual_seed(1)
    return small_network(kind, C, SCALES, (1.0, 0.05, 5.0), features=features, **SIZES)


def lstm_input(model: RLLSFC, batch: NetworkInput) -> Tensor:
    seen: list[Tensor] = []

    def keep(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        seen.append(inputs[0])

    handle = model.lstm.register_forward_pre_hook(keep)
    model(batch)
    handle.remove()
    return seen[0]


class TestStateOfTable51:
    def test_the_state_has_839_dimensions_for_five_clusters(self) -> None:
        model = RLLSFC(C, SCALES)
        batch = random_input(2, J, C)
        clusters, jobs = model.columns(batch)
        segments = lstm_input(model, batch)
        # Table 5.1: 5 x 155 for the clusters (150 of each are the traverse), 64 for the job.
        per_cluster = clusters.shape[-1] + segments.shape[1] * segments.shape[2]
        assert per_cluster == 155
        assert jobs.shape == (2, J, 64)
        assert C * per_cluster + jobs.shape[-1] == 839

    def test_the_columns_are_those_of_the_table_in_its_order(self) -> None:
        batch = random_input(1, 1, 2)
        clusters, jobs = StateColumns(2, "table_5_1")(batch)
        columns = [col.SEQUENCE, col.CAPACITY_NORMAL, col.CAPACITY_MAX, col.HETERO_FACTOR, col.MISSED]
        assert clusters[0, 1].tolist() == batch.clusters[0, 1, columns].clamp(-6, 6).tolist()
        job, pair = batch.jobs[0, 0], batch.pairs[0, 0]
        peaks = int(job[col.PEAK_SLOTS])
        expected = [job[col.CATEGORY], job[col.EXPECTED_HETERO], job[col.SENSITIVITY], job[col.DURATION_S]]
        for cluster in range(2):
            expected += [pair[cluster, col.REQUEST]] * (10 - peaks)
            expected += [pair[cluster, col.PEAK_REQUEST]] * peaks
            expected += [pair[cluster, col.EXECUTION_S], pair[cluster, col.DEADLINE_S]]
        assert jobs[0, 0].tolist() == torch.stack(expected).clamp(-6, 6).tolist()

    def test_the_defaults_are_the_layers_of_the_thesis(self) -> None:
        model = RLLSFC(C, SCALES)
        assert model.shared_job.out_features == model.shared_clusters.out_features == 800
        assert [head[0].out_features for head in model.heads] == [200] * 3  # type: ignore[index]
        assert [head[2].out_features for head in model.heads] == [C + 1] * 3  # type: ignore[index]
        flat = RLFC(C, (1.0,))
        # Without the traverse: 5 x (5 + 105) + 64.
        assert flat.first_clusters.in_features + flat.first_job.in_features == 614
        assert flat.first_job.out_features == 2000
        assert flat.rest[1].out_features == 500

    def test_the_state_of_table_4_1(self) -> None:
        batch = random_input(2, J, C)
        model = RLFC(C, (1.0,), "table_4_1")
        # Table 4.1: 5 x (3 + 100) + 14 = 529.
        assert model.first_clusters.in_features == 515
        assert model.first_job.in_features == 14
        clusters, jobs = model.columns(batch)
        columns = [col.SEQUENCE, col.CAPACITY_NORMAL, col.MISSED]
        assert clusters[1, 2].tolist() == batch.clusters[1, 2, columns].clamp(-6, 6).tolist()
        job, pair = batch.jobs[1, 0], batch.pairs[1, 0, 0]
        peaks = int(job[col.PEAK_SLOTS])
        expected = [
            *job[[col.CATEGORY, col.STANDARD_S, col.DURATION_S]].tolist(),
            *[float(pair[col.REQUEST])] * (10 - peaks),
            *[float(pair[col.PEAK_REQUEST])] * peaks,
            float(pair[col.DEADLINE_S]),
        ]
        assert jobs[1, 0].tolist() == torch.tensor(expected).clamp(-6, 6).tolist()
        # The five oldest of 105 occupation steps are no part of it, the hundred latest are.
        values = model(batch)
        older, newer = batch.occupation.clone(), batch.occupation.clone()
        older[..., :5] += 1.0
        newer[..., 5] += 1.0
        assert torch.equal(model(replace(batch, occupation=older)), values)
        assert not torch.equal(model(replace(batch, occupation=newer)), values)

    def test_all_columns_but_those_of_federated_tasks_are_used_on_request(self) -> None:
        batch = random_input(2, J, C)
        clusters, jobs = StateColumns(C, "all")(batch)
        # Each column and its logarithm.
        assert clusters.shape == (2, C, 2 * batch.clusters.shape[-1])
        assert jobs.shape == (2, J, 2 * col.IDLE + C * 2 * batch.pairs.shape[-1])

    def test_other_features_are_refused(self) -> None:
        with pytest.raises(ValueError, match=r"agent\.features is 'some': expected 'table_5_1', 'table_4_1'"):
            StateColumns(C, "some")


def test_segments_of_the_traverse_are_fifteen_long_and_start_ten_apart() -> None:
    batch = random_input(2, 1, C)
    history = torch.arange(2 * C * HISTORY_STEPS, dtype=torch.float32)
    batch = replace(batch, occupation=history.reshape(2, C, HISTORY_STEPS))
    segments = lstm_input(RLLSFC(C, SCALES), batch)
    assert segments.shape == (2 * C, 10, 15)
    # Row 7 is decision 1, cluster 2: its history starts at 7 * 105 (Fig. 5.4: 0-14, 10-24, ..., 90-104).
    for number in range(10):
        first = 7 * HISTORY_STEPS + 10 * number
        assert segments[7, number].tolist() == list(range(first, first + 15))


def test_the_distribution_of_requests_by_hand() -> None:
    # The example of section 5.3.2: eight 30s and two 60s; the second cluster asks for more.
    batch = random_input(1, 2, 2)
    batch.jobs[0, :, col.PEAK_SLOTS] = torch.tensor([2.0, 0.0])
    batch.pairs[0, :, :, col.REQUEST] = torch.tensor([[30.0, 31.0], [7.0, 8.0]])
    batch.pairs[0, :, :, col.PEAK_REQUEST] = torch.tensor([[60.0, 62.0], [7.0, 8.0]])
    slots = request_distribution(batch.jobs, batch.pairs)
    assert slots.shape == (1, 2, 2, 10)
    assert slots[0, 0].tolist() == [[30.0] * 8 + [60.0] * 2, [31.0] * 8 + [62.0] * 2]
    assert slots[0, 1, 1].tolist() == [8.0] * 10


class TestFeatureScaler:
    def test_statistics_by_hand(self) -> None:
        scaler = FeatureScaler(2, with_log=False)
        scaler.fit(torch.tensor([[1.0, 5.0], [3.0, 5.0], [5.0, 5.0]]))
        assert scaler.mean.tolist() == [3.0, 5.0]
        # Population variance (4 + 0 + 4) / 3; the constant column is only centred.
        assert scaler.std.tolist() == pytest.approx([(8 / 3) ** 0.5, 1.0])
        assert scaler.fitted == 1.0
        assert scaler(torch.tensor([[5.0, 7.5]])).tolist()[0] == pytest.approx([2 / (8 / 3) ** 0.5, 2.5])

    def test_the_second_half_are_signed_logarithms(self) -> None:
        scaler = FeatureScaler(1, with_log=True)
        rows = torch.tensor([[0.0], [np.e - 1], [-(np.e**2 - 1)]])  # signed logarithms 0, 1, -2
        scaler.fit(rows)
        assert scaler.n_outputs == 2
        mean, std = -1 / 3, (14 / 9) ** 0.5
        assert [scaler.mean[1].item(), scaler.std[1].item()] == pytest.approx([mean, std])
        assert scaler(rows)[:, 1].tolist() == pytest.approx([(x - mean) / std for x in (0, 1, -2)])

    def test_outliers_are_bounded_and_nothing_is_changed_before_the_fit(self) -> None:
        rows = torch.tensor([[2.0], [1e9], [-1e9]])
        assert FeatureScaler(1, with_log=False)(rows).flatten().tolist() == [2.0, 6.0, -6.0]

    def test_leading_axes_are_rows(self) -> None:
        rows = torch.rand(4, 3, 2, generator=torch.Generator().manual_seed(0))
        flat, nested = FeatureScaler(2, with_log=True), FeatureScaler(2, with_log=True)
        flat.fit(rows.reshape(12, 2))
        nested.fit(rows)
        assert torch.equal(flat.mean, nested.mean)
        assert torch.equal(flat(rows.reshape(12, 2)), nested(rows).reshape(12, 4))

    def test_large_columns_keep_their_spread(self) -> None:
        # In single precision a sum of squares of numbers near 1e6 would lose a spread of 1.
        scaler = FeatureScaler(1, with_log=False)
        scaler.fit(torch.tensor([[1e6 - 1], [1e6 + 1]]))
        assert scaler.std.item() == pytest.approx(1.0, rel=1e-6)

    def test_statistics_travel_with_the_weights(self) -> None:
        first, second = network("rl_fc"), network("rl_fc")
        batch = random_input(8, J, C)
        first.fit_scalers(batch)
        assert not torch.equal(first(batch), second(batch))
        second.load_state_dict(first.state_dict())
        assert torch.equal(first(batch), second(batch))


KINDS = ["rl_lsfc", "rl_fc"]


class TestEveryNetwork:
    @pytest.mark.parametrize("kind", KINDS)
    def test_shape_and_physical_units(self, kind: str) -> None:
        model, batch = network(kind), random_input(4, J, C)
        model.fit_scalers(batch)
        out = model(batch)
        # RL-FC learns one scalarised value; its scale is the largest weighted scale, 1.25 = 5 * 0.25 < 5 * 1.
        scales = (5.0,) if kind == "rl_fc" else SCALES
        assert out.shape == (4, J, C + 1, len(scales))
        assert torch.allclose(model.values(batch), out * torch.tensor(scales))
        assert bool(torch.isfinite(out).all())

    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("features", ["table_5_1", "all"])
    def test_jobs_are_scored_one_by_one(self, kind: str, features: str) -> None:
        # Section 5.3.4, "multi-job selection": the model accepts one job at a time.
        model = network(kind, features)
        batch = random_input(2, J, C)
        alone = replace(batch, jobs=batch.jobs[:, 1:2], pairs=batch.pairs[:, 1:2])
        assert torch.allclose(model(batch)[:, 1], model(alone)[:, 0], atol=1e-6)

    def test_an_unknown_kind_is_refused(self) -> None:
        with pytest.raises(ValueError, match="unknown agent 'dqn': expected one of rl_lsfc, rl_fc"):
            network("dqn")

    def test_heads_are_independent(self) -> None:
        # The loss of one head must not move another head's own layers, only the shared ones.
        model = network("rl_lsfc")
        assert isinstance(model, RLLSFC)
        torch.autograd.backward(model(random_input(4, J, C))[..., 1].square().sum())

        def learns(module: nn.Module) -> bool:
            return any(p.grad is not None and bool((p.grad != 0).any()) for p in module.parameters())

        assert [learns(head) for head in model.heads] == [False, True, False]
        assert learns(model.shared_job)


# The greedy policy: the best valid choice over all jobs, under weights that can be changed at any time.

JOBS, CLUSTERS = 3, 2
# Two components (misses, money) of every choice: (JOBS, CLUSTERS + 1, K). Scales 2 and 10.
TABLE = torch.tensor(
    [
        [[-1.0, -9.0], [-2.0, -1.0], [-3.0, -3.0]],
        [[-0.5, -8.0], [-4.0, -0.5], [-3.0, -3.0]],
        [[-5.0, -5.0], [-5.0, -0.1], [-9.0, -9.0]],
    ]
)


def policy(weights: tuple[float, ...] = (1.0, 0.0)) -> ValuePolicy:
    return ValuePolicy(TableNetwork(TABLE, (2.0, 10.0)), weights, "table")


def observe(valid: list[int], present: int = JOBS) -> Observation:
    batch = empty_observation(JOBS, CLUSTERS, (1,))
    batch["jobs"][0, :present, col.PRESENT] = 1
    batch["action_mask"][0, valid] = 1
    return batch


def test_invalid_choices_are_never_taken() -> None:
    assert decided(policy(), observe([1, 4, 8])) == 1
    assert decided(policy(), observe([8])) == 8  # the worst, but the only one
    assert decided(policy(), observe([2, 4])) == 2  # "none for now" is a choice


def test_components_are_weighted_in_physical_units() -> None:
    # Values of job 0: cluster 0 (-2, -90), cluster 1 (-4, -10), none (-6, -30). With weights (w, 1):
    # cluster 0 wins over 1 when -2w - 90 > -4w - 10, i.e. w > 40.
    shown = observe([0, 1, 2], present=1)
    assert decided(policy((39.9, 1.0)), shown) == 1
    assert decided(policy((40.1, 1.0)), shown) == 0


def test_the_best_choice_over_all_jobs_wins_under_any_weights_without_retraining() -> None:
    acting = policy((1.0, 0.0))
    before = {name: tensor.clone() for name, tensor in acting.network.state_dict().items()}
    everything = observe(list(range(JOBS * (CLUSTERS + 1))))
    assert decided(acting, everything) == 3  # job 1, cluster 0: -0.5
    acting.set_weights((0.0, 1.0))
    assert decided(acting, everything) == 7  # job 2, cluster 1: -0.1
    assert all(torch.equal(before[name], tensor) for name, tensor in acting.network.state_dict().items())


def test_rows_are_decided_on_their_own() -> None:
    batch = random_batch(6, JOBS, CLUSTERS, seed=3)
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
    for present in (1, 2):
        decided(acting, observe([0, 1], present))
    assert seen == [1, 2]


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
