"""The safety net over live tasks, times by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from deploy.model.instances import Offer
from deploy.model.jobs import Places
from deploy.scheduler.guards.guards import Guards
from deploy.scheduler.snapshot.needs import Need, Round
from deploy.scheduler.snapshot.observed import observe
from deploy.scheduler.snapshot.occupancy import Occupancy
from deploy.scheduler.snapshot.writer import snapshot_of
from envs.simulation.guards.rules import GuardsConfig
from tests.deploy.scheduler.cases import need, offer

SPOT, SURE, FAST = (
    offer("spot"),
    offer("sure", "on_demand"),
    offer("fast", "on_demand", speed=2.0, price_usd_hour=3.0),
)
OFFERS = [SPOT, SURE, FAST]
GUARDS = Guards(GuardsConfig(gain_test=False, margin_s=60.0, margin_share=0.1))


def goes(task: Need, chosen: str | None, offers: Sequence[Offer] = OFFERS, **used: int) -> str | None:
    """Where a task goes; `used` instances are taken of each offer."""
    row = observe(snapshot_of(offers, [task], used, Occupancy()), [task], 1, GUARDS.rules).row(0)
    return GUARDS.bound(row, task, chosen, offers).offer_id


def verdict(slack_s: float, chosen: str | None = "spot", **changes: Any) -> str | None:
    """Where the net sends a task; None: the choice stands."""
    task = need(kind="deadline", slack_s=slack_s, **changes)
    kept = goes(task, chosen)
    return None if kept == chosen else kept


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
    assert goes(need(), "spot") == "spot"


def test_streams_are_left_alone() -> None:
    assert goes(need(kind="streaming", slack_s=400.0, executions_left=9, period_s=600.0), "spot") == "spot"


def test_only_what_is_free_counts() -> None:
    task = need(kind="deadline", slack_s=456.0)
    assert goes(task, "spot", fast=4) == "spot"
    task = need(kind="deadline", slack_s=780.0)
    # 660 s on the slower one; with margins 786 s.
    assert goes(task, "spot", fast=4) == "sure"


def test_a_task_goes_only_where_it_may_and_where_there_is_capacity_now() -> None:
    task = need(kind="deadline", slack_s=456.0)
    gone = replace(FAST, available=False)
    assert goes(task, "spot", [SPOT, SURE, gone]) == "spot"
    later = replace(task, slack_s=780.0)
    assert goes(later, "spot", [SPOT, SURE, gone]) == "sure"
    picky = replace(later, places=Places(instance_types=("large",)))
    large = replace(FAST, offer_id="large", instance_type="large", speed=1.0)
    assert goes(picky, None, [SPOT, SURE, FAST]) is None
    assert goes(picky, None, [SPOT, SURE, large]) == "large"


def test_the_net_counts_all_rounds_of_a_client() -> None:
    """60 s of launch, its own epoch of 100 s, and four more rounds of 300 s."""
    offers = [SPOT, SURE]
    client = need(kind="federated", standard_s=100.0, executions_left=5, round=Round(round_s=300.0))
    needed_s, later_s = 160.0, 1200.0
    spare = replace(client, slack_s=later_s + needed_s * 1.1 + 61)
    assert goes(spare, "spot", offers) == "spot"
    assert goes(replace(spare, slack_s=later_s + needed_s * 1.1 + 60), None, offers) == "sure"
    # An idle one on sure capacity is not released any more.
    idle = replace(
        spare, slack_s=later_s + 160, here="sure", left_here_s=100.0, round=Round(True, round_s=300.0)
    )
    assert goes(idle, None, offers, sure=4) == "sure"


@settings(deadline=None)
@given(slack_s=st.floats(1, 3000), step_s=st.floats(5, 300), progress=st.floats(0, 0.99))
def test_whoever_asks_often_enough_never_loses_a_deadline_that_could_be_met(
    slack_s: float, step_s: float, progress: float
) -> None:
    """Asked every `step_s` below the fixed margin, the net catches before the latest start."""
    step_s = min(step_s, GUARDS.rules.margin_s)
    task = need(kind="deadline", slack_s=slack_s, progress=progress)
    if task.finish_s(FAST) > slack_s:
        return
    while True:
        caught = goes(task, None)
        assert task.slack_s is not None
        if caught is not None:
            assert task.finish_s(FAST) <= task.slack_s
            return
        task = need(kind="deadline", slack_s=task.slack_s - step_s, progress=progress)
        assert task.finish_s(FAST) <= (task.slack_s or 0.0), "the last moment has passed unseen"
