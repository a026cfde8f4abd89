"""Theorem 7.0.1 and its corollary: the values worked by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.federated.asynchronous.step_size import allowed, guarantee, largest_step
from agents.federated.asynchronous.updates import UpdateError


def test_the_largest_step_is_the_root_of_the_condition() -> None:
    # T = 0: gamma L = 1. T = 1, L = 2: 2 gamma + 8 gamma^2 = 1, gamma = (-2 + sqrt(4 + 32)) / 16 = 1/4.
    assert largest_step(2.0, 0) == pytest.approx(0.5)
    assert largest_step(2.0, 1) == pytest.approx(0.25)


@given(st.floats(0.01, 100), st.integers(0, 60))
def test_a_little_more_than_the_largest_step_is_too_much(lipschitz: float, bound: int) -> None:
    step = largest_step(lipschitz, bound)
    rounds = bound + 2
    assert allowed([step] * rounds, lipschitz, bound)
    assert not allowed([step * 1.001] * rounds, lipschitz, bound)


def test_steps_that_shrink_are_allowed_where_a_constant_one_is_not() -> None:
    # L = 1, T = 1: 0.6 + 2 x 0.6 x 0.3 = 0.96, but 0.6 + 2 x 0.6 x 0.6 = 1.32.
    assert allowed([0.6, 0.3, 0.3], 1.0, 1)
    assert not allowed([0.6, 0.6, 0.3], 1.0, 1)


def test_the_corollarys_range_and_bound() -> None:
    # gap = 4, L = 1, variance = 4, T = 0: K >= 4 x 1 x 4 x 1 / 4 = 4. With K = 100:
    # gamma <= sqrt(4 / (1 x 100 x 4)) = 0.1, from 0.05 for C = 2;
    # bound = (4 x 2 + 1) x 4 / 2 x sqrt(4 x 4 x 1 / 100) = 18 x 0.4 = 7.2.
    found = guarantee(
        lipschitz=1, staleness_bound=0, gap=4, variance=4, rounds=100, round_updates=2, spread=2
    )
    assert found == pytest.approx((0.05, 0.1, 7.2))
    with pytest.raises(UpdateError, match="at least 4"):
        guarantee(lipschitz=1, staleness_bound=0, gap=4, variance=4, rounds=3, round_updates=2)


@given(st.floats(0.1, 10), st.integers(0, 20), st.floats(0.1, 10), st.floats(0.1, 10))
def test_the_corollarys_steps_satisfy_the_theorem(
    lipschitz: float, bound: int, gap: float, variance: float
) -> None:
    rounds = int(4 * lipschitz * gap * (bound + 1) ** 2 / variance) + 1
    found = guarantee(
        lipschitz=lipschitz,
        staleness_bound=bound,
        gap=gap,
        variance=variance,
        rounds=rounds,
        round_updates=5,
    )
    assert found.largest_step <= largest_step(lipschitz, bound)


def test_values_out_of_range_are_refused() -> None:
    with pytest.raises(UpdateError, match="T is -1"):
        largest_step(1.0, -1)
    with pytest.raises(UpdateError, match="L is 0"):
        largest_step(0.0, 1)
    with pytest.raises(UpdateError, match="smallest step is 0"):
        allowed([0.1, 0.0], 1.0, 1)
