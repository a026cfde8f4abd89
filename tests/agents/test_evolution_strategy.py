"""The evolution strategy on a function whose optimum is known, and its exact resume."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from agents.learning.evolution_strategy import EvolutionStrategy

TARGET = np.array([1.0, -2.0, 0.5, 3.0], np.float32)


def make(seed: int = 0) -> EvolutionStrategy:
    start, scales = np.zeros(4, np.float32), np.array([1.0, 1.0, 0.5, 2.0], np.float32)
    return EvolutionStrategy(start, scales, 0.1, np.random.default_rng(seed))


def returns_of(tried: NDArray[np.float32], luck: NDArray[np.float64]) -> NDArray[np.float64]:
    """Minus the squared distance to the target, plus what both of a pair owe to their episode."""
    distance: NDArray[np.float64] = ((tried - TARGET).astype(np.float64) ** 2).sum(1)
    return -distance + np.repeat(luck, 2)


@pytest.mark.real
def test_a_pair_is_mirrored_around_the_weights() -> None:
    strategy = make()
    strategy.theta[:] = 2.0
    tried = strategy.ask(5)
    assert tried.shape == (10, 4)
    assert (tried[0::2] + tried[1::2]) / 2 == pytest.approx(np.full((5, 4), 2.0), abs=1e-6)
    spread = np.abs(tried[0::2] - tried[1::2]).mean(0)
    assert spread[3] > spread[0] > spread[2]


def test_it_climbs_to_the_optimum_through_the_luck_of_episodes() -> None:
    strategy, luck = make(), np.random.default_rng(1)
    for step in range(300):
        tried = strategy.ask(16)
        strategy.tell(returns_of(tried, luck.normal(0.0, 100.0, 16)), 0.1 * (1 - step / 300))
    assert strategy.average == pytest.approx(TARGET, abs=0.05)


def test_equal_returns_move_nothing() -> None:
    strategy = make()
    strategy.ask(3)
    assert strategy.tell(np.ones(6), 0.5) == 0.0
    assert not strategy.theta.any()


def test_the_reported_spread_is_the_root_mean_square_difference() -> None:
    strategy = make()
    strategy.ask(2)
    assert strategy.tell(np.array([4.0, 1.0, 2.0, 6.0]), 0.1) == pytest.approx(np.sqrt((9 + 16) / 2))


def stepped(worlds: int, returns: list[float]) -> list[float]:
    strategy = EvolutionStrategy(
        np.zeros(4, np.float32), np.ones(4, np.float32), 0.1, np.random.default_rng(0), worlds=worlds
    )
    strategy.ask(4)
    strategy.tell(np.array(returns), 0.1)
    # Adam's first moment after one step: the direction itself, whatever its length.
    moment: list[float] = strategy.state_dict()["adam"]["state"][0]["exp_avg"].tolist()
    return moment


def test_each_world_has_a_unit_of_its_own() -> None:
    first, second = [4.0, 1.0, 2.0, 6.0], [1.0, 0.0, 5.0, 7.0]
    larger = [1000.0 * value for value in second]
    assert stepped(2, first + larger) == pytest.approx(stepped(2, first + second))
    assert stepped(1, first + larger) != pytest.approx(stepped(1, first + second), rel=0.1)


def test_a_world_without_differences_leaves_the_step_to_the_others() -> None:
    returns = [4.0, 1.0, 2.0, 6.0, 7.0, 7.0, 7.0, 7.0]
    # Its zeros make the common unit smaller by the root of 2.
    assert np.sqrt(2) * np.array(stepped(2, returns)) == pytest.approx(stepped(1, returns))


def test_pairs_must_be_split_evenly_among_worlds() -> None:
    with pytest.raises(ValueError, match="equal division"):
        stepped(3, [0.0] * 8)


def test_resuming_is_exact() -> None:
    straight, luck = make(), np.zeros(4)
    for _ in range(6):
        straight.tell(returns_of(straight.ask(4), luck), 0.1)
    first = make()
    for _ in range(3):
        first.tell(returns_of(first.ask(4), luck), 0.1)
    second = make(9)
    second.load_state_dict(first.state_dict())
    for _ in range(3):
        second.tell(returns_of(second.ask(4), luck), 0.1)
    assert second.theta.tolist() == straight.theta.tolist()
    assert second.average.tolist() == straight.average.tolist()


def test_wrong_numbers_are_refused() -> None:
    strategy = make()
    strategy.ask(2)
    with pytest.raises(ValueError, match="expected 4 returns"):
        strategy.tell(np.zeros(3), 0.1)
    other = EvolutionStrategy(np.zeros(5, np.float32), np.ones(5, np.float32), 0.1, np.random.default_rng(0))
    with pytest.raises(RuntimeError, match="expected 4 weights, got 5"):
        strategy.load_state_dict(other.state_dict())
