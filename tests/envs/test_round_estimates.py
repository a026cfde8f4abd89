"""What rounds have shown, by hand; and that every world asks again by the same rule."""

from __future__ import annotations

import pytest

from envs.simulation.round_estimates import (
    ERROR_WEIGHT,
    OVERDUE_SHARE,
    UNSEEN_SHARE,
    WARM_S,
    RoundEstimates,
    ask_again_s,
    epoch_left_s,
    slack_s,
)


def test_a_cold_and_a_warm_epoch_are_told_apart() -> None:
    known = RoundEstimates(2)
    assert known.epoch_s(0, cold=True) is None
    known.note_epoch(0, 150.0, cold=True)
    assert known.epoch_s(0, cold=True) == 150
    assert known.epoch_s(0, cold=False) == 0.8 * 150
    assert known.epoch_s(0, cold=False, warm_share=1.0) == 150
    assert known.cold_extra_s(0) is None
    known.note_epoch(0, 100.0, cold=False)
    known.note_epoch(0, 120.0, cold=False)
    assert known.measured_s(0, WARM_S) == 110
    assert known.cold_extra_s(0) == 40
    assert known.epoch_s(1, cold=False) is None


def test_the_weight_is_of_the_new_sample() -> None:
    known = RoundEstimates(1, weight=0.9)
    for seconds in (100.0, 200.0):
        known.note_epoch(0, seconds, cold=False)
    assert known.epoch_s(0, cold=False) == pytest.approx(190)


def test_the_error_is_that_of_the_slowest_other_client_and_of_starts() -> None:
    known = RoundEstimates(3)
    assert known.error_s(-1) == 0
    for seconds in (100.0, 103.0):
        known.note_epoch(0, seconds, cold=False)
    for seconds in (500.0, 530.0, 515.0):
        known.note_epoch(1, seconds, cold=False)
    # 30 s off, then exactly as expected.
    slow = 30 * (1 - ERROR_WEIGHT)
    assert known.error_s(0) == pytest.approx(slow)
    assert known.error_s(1) == pytest.approx(3)
    known.note_spin_up(2, 60.0)
    assert known.error_s(1) == pytest.approx(3)
    known.note_spin_up(2, 64.0)
    assert known.error_s(1) == pytest.approx(5)


def test_an_epoch_that_outlasts_its_estimate_goes_on_for_a_while() -> None:
    assert epoch_left_s(100.0, 30.0, True) == 70
    assert epoch_left_s(100.0, 200.0, True) == OVERDUE_SHARE * 200
    assert epoch_left_s(100.0, 20.0, False) == 80
    assert epoch_left_s(100.0, 90.0, False) == UNSEEN_SHARE * 90


def test_slack_is_until_the_latest_start_in_time() -> None:
    # Its epoch of 50 s must end in 300 s and begins 40 s after the request.
    assert slack_s(True, 300.0, 500.0, 40.0, 50.0) == 210
    # It works for the next round, which begins in 300 s and lasts 500 s.
    assert slack_s(False, 300.0, 500.0, 40.0, 50.0) == 710
    # An epoch longer than the round cannot begin before the round does.
    assert slack_s(False, 300.0, 500.0, 40.0, 900.0) == 260


@pytest.mark.parametrize(("slack", "after"), [(-50.0, 15), (40.0, 20), (900.0, 450), (9000.0, 600)])
def test_half_of_the_slack_within_bounds(slack: float, after: float) -> None:
    assert ask_again_s(slack) == after
