"""How long is waited between tries; figures by hand."""

from __future__ import annotations

from itertools import pairwise

from deploy.scheduler.settings import SchedulerSettings


def test_waits_double_up_to_the_longest() -> None:
    settings = SchedulerSettings(back_off_s=5.0, back_off_most_s=300.0)
    assert [settings.back_off(tries) for tries in range(1, 9)] == [5, 10, 20, 40, 80, 160, 300, 300]
    assert settings.back_off(0) == 5.0, "the first try has failed at most"


def test_no_number_of_tries_is_too_large() -> None:
    settings = SchedulerSettings()
    waits = [settings.back_off(10**k) for k in range(0, 400, 40)]
    assert all(earlier <= later for earlier, later in pairwise(waits))
    assert waits[-1] == settings.back_off_most_s
