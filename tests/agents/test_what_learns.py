"""What learns: exploration, regressions and replays."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from spotweave.agents.learning import DecisionReplay, GuidedExploration, ValueRegression
from spotweave.agents.policy import Policy
from spotweave.envs.simulation.snapshot import (
    HISTORY_STEPS,
    N_CLUSTER_FIELDS,
    N_JOB_FIELDS,
    N_PAIR_FIELDS,
    Observation,
    take_rows,
)
from tests.agents.inputs import TableNetwork, on_disk, random_batch, random_input

# Baseline-guided exploration: the three cases of Liu 2022, eq. 4.3, in the right proportions.

N, JOBS, CLUSTERS = 20_000, 2, 3
GREEDY, GUIDED = 0, 1


class Constant(Policy):
    """Always one action; remembers the lanes it was asked about."""

    def __init__(self, action: int) -> None:
        self.name = f"always {action}"
        self.action = action
        self.lanes: list[int] = []

    def act_batch(self, observations: Observation, lanes: NDArray[np.int64]) -> NDArray[np.int64]:
        assert len(observations["jobs"]) == len(lanes)
        self.lanes += lanes.tolist()
        return np.full(len(lanes), self.action)


def explore(
    epsilon_1: float, epsilon_2: float, batch: Observation, seed: int = 0
) -> tuple[NDArray[np.int64], Constant, Constant]:
    greedy, guide = Constant(GREEDY), Constant(GUIDED)
    exploration = GuidedExploration(guide, np.random.default_rng(seed))
    n = len(batch["jobs"])
    return exploration.choose(greedy, batch, np.arange(n), epsilon_1, epsilon_2), greedy, guide


@pytest.fixture(scope="module")
def batch() -> Observation:
    """Only choices 2 to 7 are valid, so greedy (0) and guided (1) actions cannot be confused with random."""
    made = random_batch(N, JOBS, CLUSTERS)
    made["action_mask"][:] = [0, 0, 1, 1, 0, 1, 0, 1]
    return made


@pytest.mark.parametrize(
    ("epsilon_1", "epsilon_2"), [(0.8, 0.5), (0.3, 0.1), (0.05, 0.9), (0.0, 1.0), (1.0, 0.0)]
)
def test_frequencies_of_equation_4_3(epsilon_1: float, epsilon_2: float, batch: Observation) -> None:
    actions, _, _ = explore(epsilon_1, epsilon_2, batch)
    for case, share in (
        (actions > 1, epsilon_1 * epsilon_2),
        (actions == GUIDED, epsilon_1 * (1 - epsilon_2)),
        (actions == GREEDY, 1 - epsilon_1),
    ):
        # Five standard errors of a binomial share.
        assert abs(case.mean() - share) <= 5 * (share * (1 - share) / N) ** 0.5


def test_random_choices_are_valid_and_uniform_over_the_valid(batch: Observation) -> None:
    made = random_batch(N, JOBS, CLUSTERS, seed=5)
    assert made["action_mask"][np.arange(N), explore(1.0, 1.0, made)[0]].all()
    counts = np.bincount(explore(1.0, 1.0, batch)[0], minlength=8)
    # Chi-squared with 3 degrees of freedom; 16.3 is exceeded once in a thousand seeds.
    assert ((counts[[2, 3, 5, 7]] - N / 4) ** 2 / (N / 4)).sum() < 16.3
    assert counts.sum() == counts[[2, 3, 5, 7]].sum()


def test_each_lane_is_asked_for_once(batch: Observation) -> None:
    actions, greedy, guide = explore(0.5, 0.4, batch)
    assert sorted(greedy.lanes) == np.flatnonzero(actions == GREEDY).tolist()
    assert sorted(guide.lanes) == np.flatnonzero(actions == GUIDED).tolist()


def test_the_stream_alone_decides(batch: Observation) -> None:
    assert np.array_equal(explore(0.5, 0.5, batch, seed=1)[0], explore(0.5, 0.5, batch, seed=1)[0])
    assert not np.array_equal(explore(0.5, 0.5, batch, seed=1)[0], explore(0.5, 0.5, batch, seed=2)[0])


def test_policies_see_the_rows_they_decide() -> None:
    made = random_batch(6, JOBS, CLUSTERS)
    rows = np.array([True, False, False, True, True, False])
    for chosen in (take_rows(made, rows), take_rows(made, np.flatnonzero(rows))):
        for name in ("clusters", "occupation", "jobs", "pairs", "action_mask"):
            assert np.array_equal(chosen[name], made[name][rows])
    assert take_rows(made, np.ones(6, np.bool_)) is made


# The regression: losses computed by hand on tables, and what must not influence them.

C = 2


def table(*rows: tuple[float, ...]) -> Tensor:
    """(1, C + 1, K) values of the choices of one job."""
    return torch.tensor([rows])


class TestValueRegression:
    def sgd(
        self, network: TableNetwork, weights: tuple[float, ...], loss: str = "mse", clip: float = 5.0
    ) -> ValueRegression:
        return ValueRegression(network, weights, "sgd", 0.1, loss, target_clip=clip, gradient_clip=1e9)

    def step(self, regression: ValueRegression, chosen: int, *values: float) -> list[float]:
        """The losses of one step on one decision."""
        loss = regression.step(random_input(1, 1, C), torch.tensor([chosen]), torch.tensor([values]))
        found: list[float] = loss.tolist()
        return found

    def test_one_step_by_hand(self) -> None:
        network = TableNetwork(table((1.0, 2.0), (3.0, 4.0), (5.0, 6.0)), (10.0, 2.0))
        regression = self.sgd(network, (1.0, 1.0))
        # Two decisions: cluster 1 was worth (20, 2) = scaled (2, 1); none was worth (50, 10) = scaled (5, 5).
        chosen = torch.tensor([1, 2])
        values = torch.tensor([[20.0, 2.0], [50.0, 10.0]])
        loss = regression.step(random_input(2, 1, C), chosen, values)
        # Head 1: ((3 - 2)^2 + (5 - 5)^2) / 2; head 2: ((4 - 1)^2 + (6 - 5)^2) / 2.
        assert loss.tolist() == [0.5, 5.0]
        # Gradient 2 (prediction - target) / 2 through the chosen clusters only, learning rate 0.1.
        expected = table((1.0, 2.0), (3.0 - 0.1 * 1.0, 4.0 - 0.1 * 3.0), (5.0, 6.0 - 0.1 * 1.0))
        assert torch.allclose(network.table, expected)

    def test_targets_are_clipped_in_scaled_units(self) -> None:
        regression = self.sgd(TableNetwork(torch.zeros(1, C + 1, 2), (10.0, 0.5)), (1.0, 1.0), clip=3.0)
        targets = regression.scaled_targets(torch.tensor([[-500.0, 1.0], [29.0, -7.0]]))
        assert targets.tolist() == [[-3.0, 2.0], [pytest.approx(2.9), -3.0]]

    def test_one_output_learns_the_scalarised_value(self) -> None:
        network = TableNetwork(torch.zeros(1, C + 1, 1), (4.0,))
        regression = self.sgd(network, (1.0, 0.5, 2.0))
        # (-2 - 2 - 2) / 4 = -1.5
        assert self.step(regression, 2, -2.0, -4.0, -1.0) == [2.25]
        assert network.table[0, 2].tolist() == pytest.approx([-0.3])

    def test_huber_is_linear_far_out(self) -> None:
        network = TableNetwork(torch.zeros(1, C + 1, 2), (1.0, 1.0))
        # |4| - 1/2 and 0.5^2 / 2
        assert self.step(self.sgd(network, (1.0, 1.0), "huber"), 0, 4.0, 0.5) == [3.5, 0.125]
        assert network.table[0, 0].tolist() == pytest.approx([0.1, 0.05])

    def test_the_gradient_is_bounded(self) -> None:
        network = TableNetwork(torch.zeros(1, C + 1, 1), (1.0,))
        regression = ValueRegression(network, (1.0,), "sgd", 0.1, target_clip=5.0, gradient_clip=0.5)
        self.step(regression, 0, 5.0)
        assert network.table[0, 0].item() == pytest.approx(0.05)

    @pytest.mark.parametrize("optimizer", ["adam", "sgd"])
    def test_the_learning_rate_follows_the_schedule(self, optimizer: Literal["adam", "sgd"]) -> None:
        network = TableNetwork(torch.zeros(1, C + 1, 1), (1.0,))
        regression = ValueRegression(network, (1.0,), optimizer, 0.1)
        regression.set_learning_rate(0.0)
        self.step(regression, 0, 5.0)
        assert network.table.abs().sum() == 0

    def test_it_converges_to_the_mean_worth_of_each_choice(self) -> None:
        network = TableNetwork(torch.zeros(1, C + 1, 2), (2.0, 10.0))
        regression = ValueRegression(network, (1.0, 1.0), "adam", 0.05)
        chosen = torch.tensor([0, 0, 1, 2])
        values = torch.tensor([[-1.0, 0.0], [-3.0, 10.0], [4.0, -20.0], [0.0, 5.0]])
        for _ in range(400):
            regression.step(random_input(4, 1, C), chosen, values)
        learned = network.values(random_input(1, 1, C))[0, 0]
        assert torch.allclose(learned, torch.tensor([[-2.0, 5.0], [4.0, -20.0], [0.0, 5.0]]), atol=0.05)

    def test_its_state_includes_the_optimiser(self) -> None:
        first = ValueRegression(TableNetwork(torch.zeros(1, C + 1, 1), (1.0,)), (1.0,))
        self.step(first, 0, 2.0)
        second = ValueRegression(TableNetwork(torch.ones(1, C + 1, 1), (1.0,)), (1.0,))
        second.load_state_dict(on_disk(first.state_dict()))
        for regression in (first, second):
            self.step(regression, 0, 2.0)
        assert torch.equal(first.network.state_dict()["table"], second.network.state_dict()["table"])


# The replay: a ring that forgets the oldest, draws uniformly, and goes on exactly where it was saved.

K, CAPACITY = 2, 5
CPU = torch.device("cpu")


def decision_replay(*numbers: int, seed: int = 0) -> DecisionReplay:
    """A replay that holds these decisions, each filled with its number, and what they were worth."""
    replay = DecisionReplay(CAPACITY, C, K, np.random.default_rng(seed))
    fill(replay, *numbers)
    return replay


def fill(replay: DecisionReplay, *numbers: int) -> None:
    replay.fill(add_numbered(replay, list(numbers)), worth(list(numbers)))


def add_numbered(replay: DecisionReplay, numbers: list[int]) -> NDArray[np.int64]:
    """Decisions whose every column holds their number."""
    value = np.array(numbers, np.float32)
    return replay.add(
        clusters=np.broadcast_to(value[:, None, None], (len(numbers), C, N_CLUSTER_FIELDS)),
        occupation=np.broadcast_to(value[:, None, None] / 64, (len(numbers), C, HISTORY_STEPS)),
        jobs=np.broadcast_to(value[:, None], (len(numbers), N_JOB_FIELDS)),
        pairs=np.broadcast_to(value[:, None, None], (len(numbers), C, N_PAIR_FIELDS)),
        targets=np.array(numbers) % (C + 1),
    )


def worth(numbers: list[int]) -> NDArray[np.float64]:
    return np.outer(numbers, [1.0, -1.0])


def held(replay: DecisionReplay) -> dict[float, list[float]]:
    """Number of each decision held -> its values; every column must agree on the number."""
    inputs, targets, values = replay.rows(np.arange(replay.size), CPU)
    numbers = inputs.jobs[:, 0, 0]
    assert torch.equal(inputs.clusters[:, 0, 0], numbers)
    assert torch.equal(inputs.pairs[:, 0, 1, -1], numbers)
    assert torch.equal(inputs.occupation[:, 1, -1] * 64, numbers)
    assert torch.equal(targets.double(), numbers.double() % (C + 1))
    return dict(zip(numbers.tolist(), values.tolist(), strict=True))


def numbered(first: int, end: int) -> dict[float, list[float]]:
    """What is held of the decisions from one number to another."""
    return {float(n): [float(n), float(-n)] for n in range(first, end)}


class TestDecisionReplay:
    def test_the_oldest_are_overwritten(self) -> None:
        replay = decision_replay(1, 2, 3)
        assert replay.size == 3
        fill(replay, 4, 5, 6, 7)
        assert replay.size == CAPACITY
        assert held(replay) == numbered(3, 8)

    def test_more_than_fits_at_once_keeps_the_latest(self) -> None:
        assert held(decision_replay(*range(12))) == numbered(7, 12)

    def test_values_arrive_late_and_skip_what_was_overwritten(self) -> None:
        replay = decision_replay()
        early = add_numbered(replay, [1, 2, 3, 4])
        late = add_numbered(replay, [5, 6, 7])  # overwrites 1 and 2
        replay.fill(early, worth([1, 2, 3, 4]))
        replay.fill(late, worth([5, 6, 7]))
        assert held(replay) == numbered(3, 8)

    def test_values_may_come_in_any_order(self) -> None:
        replay = decision_replay()
        ids = add_numbered(replay, [1, 2, 3])
        replay.fill(ids[[2, 0, 1]], worth([3, 1, 2]))
        assert held(replay) == numbered(1, 4)

    def test_draws_are_uniform_over_what_is_held(self) -> None:
        replay = decision_replay()
        add_numbered(replay, [1, 2, 3])  # two places are still empty and must never be drawn
        numbers = replay.sample(30_000, CPU)[0].jobs[:, 0, 0].numpy().astype(int)
        counts = np.bincount(numbers, minlength=4)
        assert counts[0] == 0
        # Chi-squared with 2 degrees of freedom; 13.8 is exceeded once in a thousand seeds.
        assert ((counts[1:] - 10_000) ** 2 / 10_000).sum() < 13.8

    @pytest.mark.parametrize("count", [3, 8])
    def test_saved_and_loaded_it_goes_on_exactly(self, count: int) -> None:
        first = decision_replay(*range(1, count + 1), seed=4)
        first.sample(3, CPU)
        second = decision_replay(seed=99)
        second.load_state_dict(on_disk(first.state_dict()))
        assert held(first) == held(second)
        for replay in (first, second):
            fill(replay, 20, 21)
        assert held(first) == held(second)
        assert torch.equal(first.sample(50, CPU)[2], second.sample(50, CPU)[2])
