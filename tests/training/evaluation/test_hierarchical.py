"""Intervals over training seeds, episodes and start days: by hand, against theory, and what they refuse."""

from __future__ import annotations

import math

import numpy as np
import pytest

from training.evaluation.statistics import (
    clustered_interval,
    hierarchical_interval,
    hierarchical_ratio_interval,
)


def test_hierarchical_interval_counts_what_seeds_share() -> None:
    rng = np.random.default_rng(4)
    weather = rng.normal(0.0, 10.0, 30)  # the same for all seeds
    table = np.tile(weather, (8, 1))
    shared = hierarchical_interval(table)
    expected = 2 * 1.96 * weather.std() / math.sqrt(30)
    assert shared.high - shared.low == pytest.approx(expected, rel=0.05)
    # Only seeds differ: the interval is that of 8 seed means.
    seeds = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0])
    interval = hierarchical_interval(np.tile(seeds[:, None], (1, 30)))
    assert interval.high - interval.low == pytest.approx(2 * 1.96 * seeds.std() / math.sqrt(8), rel=0.07)


@pytest.mark.real
def test_hierarchical_interval_covers_the_true_mean() -> None:
    rng = np.random.default_rng(5)
    covered = 0
    for _ in range(200):
        table = rng.normal(0, 1, (10, 1)) + rng.normal(0, 1, (1, 30)) + rng.normal(0, 1, (10, 30))
        covered += not hierarchical_interval(table).excludes(0.0)
    assert 0.87 <= covered / 200 <= 0.99


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_values_that_are_not_finite_are_named(bad: float) -> None:
    with pytest.raises(ValueError, match="seed 1, episode 0"):
        hierarchical_interval([[1.0, 2.0], [bad, 3.0]])


def test_hierarchical_interval_needs_two_of_each() -> None:
    with pytest.raises(ValueError, match=r"at least 2 training seeds x 2 episodes, got shape \(1, 3\)"):
        hierarchical_interval([[1.0, 2.0, 3.0]])


def test_clustered_interval_by_hand() -> None:
    # Two days, of two episodes (0 and 3) and of one (9). Days drawn: (first, first) 1/4, one of each 1/2,
    # (second, second) 1/4. The mean of four episodes of the first day is 0, 0.75, 1.5, ... with 1/16, 4/16,
    # 6/16, ...: P(0) = 1/64 = 0.016, P(0) + P(0.75) = 5/64 = 0.078: the 2.5 % quantile is 0.75. P(9) = 1/4.
    interval = clustered_interval([[0.0, 3.0, 9.0]], [7, 7, 8])
    assert (interval.low, interval.high) == (0.75, 9.0)


def test_episodes_of_a_day_that_are_alike_count_once() -> None:
    days = np.array([1.0, 4.0, 2.0, 8.0, 5.0, 7.0, 3.0, 6.0, 2.0, 9.0])
    table = np.tile(np.repeat(days, 12), (3, 1))
    interval = clustered_interval(table, np.repeat(np.arange(10), 12).tolist())
    assert interval.high - interval.low == pytest.approx(2 * 1.96 * days.std() / math.sqrt(10), rel=0.07)
    assert hierarchical_interval(table).high - hierarchical_interval(table).low < interval.high - interval.low


def test_seeds_are_resampled_next_to_clusters() -> None:
    seeds = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0])
    table = np.tile(seeds[:, None], (1, 30))
    ours, plain = clustered_interval(table, list(range(30))), hierarchical_interval(table)
    assert ours.high - ours.low == pytest.approx(plain.high - plain.low, rel=0.05)


def test_clustered_interval_needs_two_clusters_and_one_for_each_episode() -> None:
    with pytest.raises(ValueError, match="an interval over clusters needs at least 2, got 1"):
        clustered_interval([[1.0, 2.0]], [3, 3])
    with pytest.raises(ValueError, match="every episode needs its cluster: got 2 and 3"):
        clustered_interval([[1.0, 2.0]], [3, 3, 4])


def test_a_ratio_to_a_constant_has_the_interval_of_its_numerator() -> None:
    rng = np.random.default_rng(6)
    table = rng.normal(5.0, 2.0, (4, 12))
    ratio, plain = hierarchical_ratio_interval(table, np.full(12, 10.0)), hierarchical_interval(table)
    assert ratio is not None
    assert [ratio.low, ratio.high] == [pytest.approx(plain.low / 10), pytest.approx(plain.high / 10)]


def test_what_both_parts_of_a_ratio_share_cancels() -> None:
    """Every episode gains 30 % of its own room, however different the rooms are: there is no doubt."""
    room = np.array([1.0, 5.0, 100.0, 1000.0])
    ratio = hierarchical_ratio_interval(np.stack([0.3 * room, 0.3 * room]), room)
    assert ratio is not None
    assert [ratio.low, ratio.high] == [pytest.approx(0.3), pytest.approx(0.3)]
    # One seed is enough: only episodes are resampled then.
    assert hierarchical_ratio_interval([[0.0, 1.0, 0.0, 1.0]], np.ones(4)) is not None


@pytest.mark.real
def test_the_interval_of_a_ratio_covers_it() -> None:
    rng = np.random.default_rng(7)
    covered = 0
    for _ in range(200):
        room = rng.gamma(9.0, 10.0, 20)  # mean 90
        gained = 0.6 * room + rng.normal(0, 9, (5, 1)) + rng.normal(0, 20, (5, 20))
        interval = hierarchical_ratio_interval(gained, room)
        assert interval is not None
        covered += not interval.excludes(0.6)
    assert 0.8 <= covered / 200 <= 0.99


def test_a_ratio_to_what_may_be_nothing_has_no_interval() -> None:
    assert hierarchical_ratio_interval(np.ones((2, 2)), [2.0, -1.0]) is None
    with pytest.raises(ValueError, match="the same episodes: got 3 and 2"):
        hierarchical_ratio_interval(np.ones((2, 3)), [2.0, 1.0])
    with pytest.raises(ValueError, match="at least 1 training seeds x 2 episodes"):
        hierarchical_ratio_interval(np.ones((2, 1)), [2.0])
    with pytest.raises(ValueError, match="not finite"):
        hierarchical_ratio_interval([[1.0, math.nan]], [2.0, 1.0])
