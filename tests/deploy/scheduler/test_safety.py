"""The net under every policy, times by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from deploy.model.jobs import Places
from deploy.scheduler.safety import STANDS, Margin, catch, finish_s
from tests.deploy.scheduler.cases import need, offer

SPOT, SURE, FAST = (
    offer("spot"),
    offer("sure", "on_demand"),
    offer("fast", "on_demand", speed=2.0, price_usd_hour=3.0),
)
OFFERS = [SPOT, SURE, FAST]
FREE = {"spot": 4, "sure": 4, "fast": 4}
MARGIN = Margin(fixed_s=60.0, share=0.1)


def verdict(slack_s: float, chosen: str | None = "spot", **changes: Any) -> str | None:
    task = need(kind="deadline", slack_s=slack_s, **changes)
    return catch(task, chosen, OFFERS, FREE, MARGIN).offer_id


def test_with_time_to_spare_the_policy_decides() -> None:
    # On the fast type 60 s of launch and 300 of work; with margins 360 * 1.1 + 60 = 456 s.
    assert verdict(457.0) is None
    assert verdict(457.0, chosen=None) is None


def test_when_the_time_is_up_the_task_goes_where_it_ends_first() -> None:
    assert verdict(456.0) == "fast"
    assert verdict(456.0, chosen=None) == "fast"
    assert verdict(360.0) == "fast"


def test_a_deadline_that_nothing_meets_any_more_is_left_to_the_policy() -> None:
    assert verdict(359.0) is None


def test_on_demand_choices_stand() -> None:
    assert verdict(400.0, chosen="sure") is None
    for slack_s in (400.0, 310.0):
        assert verdict(slack_s, chosen=None, running=True, here="sure", left_here_s=300.0) is None


def test_a_task_that_runs_on_spot_is_moved_in_time() -> None:
    assert verdict(400.0, chosen=None, running=True, here="spot", left_here_s=300.0) == "fast"


def test_without_a_deadline_nothing_is_overruled() -> None:
    assert catch(need(), "spot", OFFERS, FREE, MARGIN) == STANDS


def test_only_what_is_free_counts() -> None:
    task = need(kind="deadline", slack_s=456.0)
    assert catch(task, "spot", OFFERS, {"spot": 4, "sure": 4, "fast": 0}, MARGIN).offer_id is None
    task = need(kind="deadline", slack_s=780.0)
    # 660 s on the slower one; with margins 786 s.
    assert catch(task, "spot", OFFERS, {"spot": 4, "sure": 4, "fast": 0}, MARGIN).offer_id == "sure"


def test_a_task_goes_only_where_it_may_and_where_there_is_capacity_now() -> None:
    task = need(kind="deadline", slack_s=456.0)
    gone = replace(FAST, available=False)
    assert catch(task, "spot", [SPOT, SURE, gone], FREE, MARGIN).offer_id is None
    later = replace(task, slack_s=780.0)
    assert catch(later, "spot", [SPOT, SURE, gone], FREE, MARGIN).offer_id == "sure"
    picky = replace(later, places=Places(instance_types=("large",)))
    large = replace(FAST, offer_id="large", instance_type="large", speed=1.0)
    free = {**FREE, "large": 4}
    assert catch(picky, "spot", [SPOT, SURE, FAST], FREE, MARGIN).offer_id is None
    assert catch(picky, "spot", [SPOT, SURE, large], free, MARGIN).offer_id == "large"


@settings(deadline=None)
@given(slack_s=st.floats(1, 3000), step_s=st.floats(5, 300), progress=st.floats(0, 0.99))
def test_whoever_asks_often_enough_never_loses_a_deadline_that_could_be_met(
    slack_s: float, step_s: float, progress: float
) -> None:
    """Asked every `step_s` below the fixed margin, the net catches before the latest start."""
    step_s = min(step_s, MARGIN.fixed_s)
    task = need(kind="deadline", slack_s=slack_s, progress=progress)
    if finish_s(task, FAST) > slack_s:
        return
    while True:
        caught = catch(task, None, OFFERS, FREE, MARGIN).offer_id
        assert task.slack_s is not None
        if caught is not None:
            assert finish_s(task, FAST) <= task.slack_s
            return
        task = need(kind="deadline", slack_s=task.slack_s - step_s, progress=progress)
        assert finish_s(task, FAST) <= (task.slack_s or 0.0), "the last moment has passed unseen"
