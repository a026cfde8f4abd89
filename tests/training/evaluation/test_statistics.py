"""Statistics against hand-computed values, scipy and published figures."""

import math

import numpy as np
import pytest
from scipy import stats

from training.evaluation.statistics import (
    Interval,
    bootstrap_interval,
    compare_paired,
    interquartile_mean,
    summarise,
    wilson_interval,
)


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
    width = theirs.high - theirs.low
    assert ours.low == pytest.approx(theirs.low, abs=0.05 * width)
    assert ours.high == pytest.approx(theirs.high, abs=0.05 * width)


def test_interval_covers_the_mean_of_normals_and_is_reproducible() -> None:
    rng = np.random.default_rng(2)
    samples = rng.normal(3.0, 2.0, (300, 50))
    intervals = [bootstrap_interval(sample) for sample in samples]
    covered = np.mean([not interval.excludes(3.0) for interval in intervals])
    assert 0.90 <= covered <= 0.99
    widths = np.array([interval.high - interval.low for interval in intervals])
    assert widths.mean() == pytest.approx(2 * 1.96 * 2.0 / math.sqrt(50), rel=0.05)
    assert bootstrap_interval(samples[0]) == intervals[0]


def test_interval_of_equal_values_has_no_width() -> None:
    assert bootstrap_interval([4.0, 4.0, 4.0]) == Interval(4.0, 4.0)
    assert bootstrap_interval([0.1, 0.1, 0.1]).high == pytest.approx(0.1)
    # The interquartile mean ignores the one outlier unless it is drawn often.
    assert bootstrap_interval([1.0] * 9 + [2.0], interquartile_mean).low == 1.0


def test_two_episodes_are_enough_and_one_is_not() -> None:
    interval = bootstrap_interval([1.0, 3.0])
    assert 1.0 <= interval.low < interval.high <= 3.0
    with pytest.raises(ValueError, match="at least 2 episodes, got 1"):
        summarise([1.0])


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_values_that_are_not_finite_are_named(bad: float) -> None:
    with pytest.raises(ValueError, match="value of episode 1 is"):
        summarise([1.0, bad, 2.0])
    with pytest.raises(ValueError, match="value of episode 1 is"):
        compare_paired([1.0, 2.0], [1.0, bad], higher_is_better=True)


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


def test_paired_samples_need_the_same_length() -> None:
    with pytest.raises(ValueError, match="same episodes: got 2 and 3"):
        compare_paired([1.0, 2.0], [1.0, 2.0, 3.0], higher_is_better=True)


def test_wilson_interval_matches_published_figures() -> None:
    # Newcombe 1998, table I, method 3 (score without continuity correction).
    assert wilson_interval(81, 263).low == pytest.approx(0.2553, abs=5e-5)
    assert wilson_interval(81, 263).high == pytest.approx(0.3662, abs=5e-5)
    assert wilson_interval(15, 148).low == pytest.approx(0.0624, abs=5e-5)
    assert wilson_interval(0, 20).low == 0.0
    assert wilson_interval(0, 20).high == pytest.approx(0.1611, abs=5e-5)
    assert wilson_interval(50, 50).high == 1.0
    assert wilson_interval(50, 50).low == pytest.approx(0.9287, abs=5e-5)
