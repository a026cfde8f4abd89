"""F/S/N and Score A to D of Liu 2022, by hand."""

import math

import pytest

from training.evaluation.liu_scores import dominance, eval_app, liu_scores, log_score


def test_eval_app_and_log_score() -> None:
    # Liu 2022, table 5.3: MAF 343.84 / 93.22 -> S = -343.84 + 50 * 6.78 = -4.84
    assert log_score([343.84], [93.22])[0] == pytest.approx(-math.log10(4.84))
    assert log_score([61.70], [90.30])[0] == pytest.approx(math.log10(423.3))
    assert log_score([0.5], [100.0])[0] == 0.0  # |S| below 1 counts as 1
    assert eval_app([189.34], [5.78])[0] == pytest.approx(1 / (3.7868 + 5.78))
    assert eval_app([0.0], [0.0])[0] == math.inf


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


def test_metric_samples_must_match() -> None:
    with pytest.raises(ValueError, match="same episodes everywhere"):
        dominance([1.0], [1.0, 2.0], [1.0], [1.0])
