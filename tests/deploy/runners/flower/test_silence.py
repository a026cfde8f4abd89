"""How long something has been silent, as far as somebody looked."""

from __future__ import annotations

import pytest

from deploy.runners.flower.liveness import Silence


def test_it_lasts_from_the_latest_good_sign() -> None:
    silence = Silence()
    found = [
        silence.note(good, now_s)
        for good, now_s in [(True, 0), (False, 2), (False, 5), (True, 6), (False, 9)]
    ]
    assert found == [0, 2, 5, 0, 3]


def test_the_first_look_says_nothing_of_the_time_before() -> None:
    assert Silence().note(False, 1e6) == 0


def test_a_scheduler_that_did_not_look_does_not_blame_others() -> None:
    silence = Silence()
    silence.note(True, 0.0)
    assert silence.note(False, 3600.0) == pytest.approx(15.0)
    assert silence.note(False, 3602.0) == pytest.approx(17.0)
