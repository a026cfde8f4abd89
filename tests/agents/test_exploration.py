"""Baseline-guided exploration: the three cases of Liu 2022, eq. 4.3, in the right proportions."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from agents.learning.exploration import GuidedExploration
from agents.policy import Policy
from envs.simulation.snapshot import Observation, take_rows
from tests.agents.inputs import random_batch

N, J, C = 20_000, 2, 3
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
    made = random_batch(N, J, C)
    made["action_mask"][:] = [0, 0, 1, 1, 0, 1, 0, 1]
    return made


@pytest.mark.parametrize(("epsilon_1", "epsilon_2"), [(0.8, 0.5), (0.3, 0.1), (0.05, 0.9)])
def test_frequencies_of_equation_4_3(epsilon_1: float, epsilon_2: float, batch: Observation) -> None:
    actions, _, _ = explore(epsilon_1, epsilon_2, batch)
    expected = {
        "random": epsilon_1 * epsilon_2,
        "guided": epsilon_1 * (1 - epsilon_2),
        "greedy": 1 - epsilon_1,
    }
    counted = {
        "random": float(np.mean(actions > 1)),
        "guided": float(np.mean(actions == GUIDED)),
        "greedy": float(np.mean(actions == GREEDY)),
    }
    for case, share in expected.items():
        # Five standard errors of a binomial share.
        assert abs(counted[case] - share) < 5 * (share * (1 - share) / N) ** 0.5, case


@pytest.mark.parametrize(
    ("epsilon_1", "epsilon_2", "expected"),
    [(0.0, 1.0, {GREEDY}), (1.0, 0.0, {GUIDED}), (1.0, 1.0, {2, 3, 5, 7})],
)
def test_pure_cases(epsilon_1: float, epsilon_2: float, expected: set[int], batch: Observation) -> None:
    actions, _, _ = explore(epsilon_1, epsilon_2, batch)
    assert set(actions.tolist()) == expected


def test_random_choices_are_valid_and_uniform_over_the_valid() -> None:
    made = random_batch(N, J, C, seed=5)
    actions, _, _ = explore(1.0, 1.0, made)
    assert made["action_mask"][np.arange(N), actions].all()
    made["action_mask"][:] = [0, 0, 1, 1, 0, 1, 0, 1]
    actions, _, _ = explore(1.0, 1.0, made)
    counts = np.bincount(actions, minlength=8)[[2, 3, 5, 7]]
    # Chi-squared with 3 degrees of freedom; 16.3 is exceeded once in a thousand seeds.
    assert ((counts - N / 4) ** 2 / (N / 4)).sum() < 16.3


def test_each_lane_is_asked_for_once(batch: Observation) -> None:
    actions, greedy, guide = explore(0.5, 0.4, batch)
    assert sorted(greedy.lanes) == np.flatnonzero(actions == GREEDY).tolist()
    assert sorted(guide.lanes) == np.flatnonzero(actions == GUIDED).tolist()


def test_the_stream_alone_decides(batch: Observation) -> None:
    assert np.array_equal(explore(0.5, 0.5, batch, seed=1)[0], explore(0.5, 0.5, batch, seed=1)[0])
    assert not np.array_equal(explore(0.5, 0.5, batch, seed=1)[0], explore(0.5, 0.5, batch, seed=2)[0])


def test_policies_see_the_rows_they_decide() -> None:
    made = random_batch(6, J, C)
    rows = np.array([True, False, False, True, True, False])
    for chosen in (take_rows(made, rows), take_rows(made, np.flatnonzero(rows))):
        for name in ("clusters", "occupation", "jobs", "pairs", "action_mask"):
            assert np.array_equal(chosen[name], made[name][rows])
    assert take_rows(made, np.ones(6, np.bool_)) is made
