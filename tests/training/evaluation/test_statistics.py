"""Statistics and scores: by hand, against theory, scipy and published figures, and what they refuse."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from spotweave.training.evaluation.statistics import (
    Interval,
    bootstrap_interval,
    clustered_interval,
    compare_paired,
    dominance,
    hierarchical_interval,
    hierarchical_ratio_interval,
    interquartile_mean,
    liu_scores,
    summarise,
    wilson_interval,
)

# Intervals over training seeds, episodes and start days.


def width(interval: Interval) -> float:
    return interval.high - interval.low


def expected_width(values: np.ndarray) -> float:
    """Of the mean of so many independent values."""
    return float(2 * 1.96 * values.std() / math.sqrt(len(values)))


EIGHT_SEEDS = np.arange(1.0, 9.0)


def test_hierarchical_interval_counts_what_seeds_share() -> None:
    weather = np.random.default_rng(4).normal(0.0, 10.0, 30)  # the same for all seeds
    shared = hierarchical_interval(np.tile(weather, (8, 1)))
    assert width(shared) == pytest.approx(expected_width(weather), rel=0.05)
    # Only seeds differ: the interval is that of 8 seed means.
    interval = hierarchical_interval(np.tile(EIGHT_SEEDS[:, None], (1, 30)))
    assert width(interval) == pytest.approx(expected_width(EIGHT_SEEDS), rel=0.07)


@pytest.mark.real
def test_hierarchical_interval_covers_the_true_mean() -> None:
    rng = np.random.default_rng(5)
    covered = 0
    for _ in range(200):
        table = rng.normal(0, 1, (10, 1)) + rng.normal(0, 1, (1, 30)) + rng.normal(0, 1, (10, 30))
        covered += not hierarchical_interval(table).excludes(0.0)
    assert 0.87 <= covered / 200 <= 0.99


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: hierarchical_interval([[1.0, 2.0], [math.nan, 3.0]]), "seed 1, episode 0"),
        (lambda: hierarchical_interval([[1.0, 2.0], [math.inf, 3.0]]), "seed 1, episode 0"),
        (
            lambda: hierarchical_interval([[1.0, 2.0, 3.0]]),
            r"at least 2 training seeds x 2 episodes, got shape \(1, 3\)",
        ),
        (lambda: clustered_interval([[1.0, 2.0]], [3, 3]), "over clusters needs at least 2, got 1"),
        (lambda: clustered_interval([[1.0, 2.0]], [3, 3, 4]), "every episode needs its cluster: got 2 and 3"),
        (lambda: hierarchical_ratio_interval(np.ones((2, 3)), [2, 1]), "the same episodes: got 3 and 2"),
        (lambda: hierarchical_ratio_interval(np.ones((2, 1)), [2]), "at least 1 training seeds x 2 episodes"),
        (lambda: hierarchical_ratio_interval([[1.0, math.nan]], [2, 1]), "not finite"),
        (lambda: summarise([1.0]), "at least 2 episodes, got 1"),
        (lambda: summarise([1.0, math.nan, 2.0]), "value of episode 1 is"),
        (lambda: summarise([1.0, math.inf, 2.0]), "value of episode 1 is"),
        (lambda: compare_paired([1.0, 2.0], [1.0, math.inf], True), "value of episode 1 is"),
        (lambda: compare_paired([1.0, 2.0], [1.0, 2.0, 3.0], True), "same episodes: got 2 and 3"),
        (lambda: dominance([1.0], [1.0, 2.0], [1.0], [1.0]), "same episodes everywhere"),
    ],
)
def test_what_has_no_interval_is_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


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
    assert width(interval) == pytest.approx(expected_width(days), rel=0.07)
    assert width(hierarchical_interval(table)) < width(interval)


def test_seeds_are_resampled_next_to_clusters() -> None:
    table = np.tile(EIGHT_SEEDS[:, None], (1, 30))
    ours = clustered_interval(table, list(range(30)))
    assert width(ours) == pytest.approx(width(hierarchical_interval(table)), rel=0.05)


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


# Samples of one policy, and pairs.


def test_summary_by_hand() -> None:
    summary = summarise([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 100.0])
    assert summary.episodes == 8
    assert summary.mean == 16.0
    # squares of (-15..-9, 84): 225+196+169+144+121+100+81+7056 = 8092, over 7
    assert summary.sd == pytest.approx(math.sqrt(8092 / 7))
    assert summary.iqm == 4.5  # the middle half: 3, 4, 5, 6
    assert summary.p95 == pytest.approx(7 + 0.65 * 93)  # position 0.95 * 7 = 6.65
    assert summary.p99 == pytest.approx(7 + 0.93 * 93)
    assert summary.p05 == pytest.approx(1.35)
    assert summary.interval.low < 16.0 < summary.interval.high
    assert summary.iqm_interval.high < summary.interval.high


def test_interval_agrees_with_scipys_bca() -> None:
    sample = np.random.default_rng(1).exponential(10.0, 50)
    ours = bootstrap_interval(sample)
    rng = np.random.default_rng(2)
    theirs = stats.bootstrap((sample,), np.mean, method="BCa", n_resamples=9999, rng=rng).confidence_interval
    close = 0.05 * (theirs.high - theirs.low)
    assert [ours.low, ours.high] == pytest.approx([theirs.low, theirs.high], abs=close)


def test_interval_covers_the_mean_of_normals_and_is_reproducible() -> None:
    rng = np.random.default_rng(2)
    samples = rng.normal(3.0, 2.0, (300, 50))
    intervals = [bootstrap_interval(sample) for sample in samples]
    covered = np.mean([not interval.excludes(3.0) for interval in intervals])
    assert 0.90 <= covered <= 0.99
    mean_width = np.mean([width(interval) for interval in intervals])
    assert mean_width == pytest.approx(2 * 1.96 * 2.0 / math.sqrt(50), rel=0.05)
    assert bootstrap_interval(samples[0]) == intervals[0]


def test_interval_of_equal_values_has_no_width() -> None:
    assert bootstrap_interval([4.0, 4.0, 4.0]) == Interval(4.0, 4.0)
    assert bootstrap_interval([0.1, 0.1, 0.1]).high == pytest.approx(0.1)
    # The interquartile mean ignores the one outlier unless it is drawn often.
    assert bootstrap_interval([1.0] * 9 + [2.0], interquartile_mean).low == 1.0


def test_two_episodes_are_enough() -> None:
    interval = bootstrap_interval([1.0, 3.0])
    assert 1.0 <= interval.low < interval.high <= 3.0


def test_paired_difference_by_hand() -> None:
    paired = compare_paired([2.0, 4.0, 8.0, 8.0], [1.0, 2.0, 4.0, 8.0], higher_is_better=False)
    assert paired.difference == pytest.approx(7 / 4)
    assert paired.ratio == pytest.approx(2 ** (3 / 4))
    assert paired.ratio_interval is not None
    assert paired.ratio_interval.low < 2 ** (3 / 4) < paired.ratio_interval.high
    assert paired.win_probability == 0.125  # lower is better: no win, one tie
    assert paired.verdict == "worse"


def test_verdict_follows_direction_and_interval() -> None:
    base = np.arange(10.0)
    assert compare_paired(base + 1.0, base, higher_is_better=True).verdict == "better"
    assert compare_paired(base + 1.0, base, higher_is_better=False).verdict == "worse"
    assert compare_paired(base, base, higher_is_better=True).verdict == "unclear"
    assert compare_paired(base, base[::-1], higher_is_better=True).verdict == "unclear"


def test_pairing_finds_what_independent_samples_hide() -> None:
    rng = np.random.default_rng(3)
    weather = rng.normal(0.0, 100.0, 30)
    ours, theirs = weather + 1.0 + rng.normal(0, 1, 30), weather + rng.normal(0, 1, 30)
    assert compare_paired(ours, theirs, higher_is_better=True).verdict == "better"
    assert not bootstrap_interval(ours).excludes(float(theirs.mean()))


def test_no_ratio_where_a_value_is_not_positive() -> None:
    assert compare_paired([0.0, 1.0], [1.0, 1.0], higher_is_better=True).ratio is None


def test_wilson_interval_matches_published_figures() -> None:
    # Newcombe 1998, table I, method 3 (score without continuity correction).
    for wins, of, low, high in ((81, 263, 0.2553, 0.3662), (0, 20, 0.0, 0.1611), (50, 50, 0.9287, 1.0)):
        interval = wilson_interval(wins, of)
        assert [interval.low, interval.high] == pytest.approx([low, high], abs=5e-5)
    assert wilson_interval(15, 148).low == pytest.approx(0.0624, abs=5e-5)
    assert (wilson_interval(0, 20).low, wilson_interval(50, 50).high) == (0.0, 1.0)


# F/S/N and Score A to D of Liu 2022.


# Five episodes: both better, only misses better, only delay better, none, both equal.
OURS_MISSES, BASE_MISSES = [10, 90, 110, 110, 50], [100, 100, 100, 100, 50]
OURS_DELAY, BASE_DELAY = [5, 11, 4, 11, 5], [10, 10, 10, 10, 5]


def test_dominance_by_hand() -> None:
    counts = dominance(OURS_MISSES, BASE_MISSES, OURS_DELAY, BASE_DELAY)
    assert (counts.fully, counts.semi, counts.non) == (1, 2, 2)
    assert str(counts) == "1/2/2"


def test_liu_scores_by_hand() -> None:
    scores = liu_scores(OURS_MISSES, BASE_MISSES, OURS_DELAY, BASE_DELAY)
    assert scores.a == 20.0
    assert scores.b == 40.0
    # 0.02 TMDL + AJDR: 5.2 < 12 yes; 12.8 < 12 no; 6.2 < 12 yes; 13.2 no; equal no
    assert scores.c == 40.0
    # changes: -0.9-0.5; -0.1+0.1 = 0 (no); +0.1-0.6; +0.1+0.1; 0
    assert scores.d == 40.0


def test_score_d_from_a_baseline_without_misses() -> None:
    assert liu_scores([0.0], [0.0], [4.0], [5.0]).d == 100.0
    assert liu_scores([1.0], [0.0], [4.0], [5.0]).d == 0.0
