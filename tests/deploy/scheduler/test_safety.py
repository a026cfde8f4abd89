"""The safety net over live tasks, times by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deploy.model.instances import Offer
from deploy.model.jobs import Places
from deploy.scheduler.guards.guards import Guards
from deploy.scheduler.snapshot.needs import Need, Round
from deploy.scheduler.snapshot.occupancy import Occupancy
from deploy.scheduler.snapshot.writer import observe, snapshot_of
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


ON_SPOT: dict[str, Any] = {"running": True, "here": "spot", "left_here_s": 300.0}
ON_SURE = {**ON_SPOT, "here": "sure"}


# On the fast type 60 s of launch and 300 of work; with margins 360 * 1.1 + 60 = 456 s.
@pytest.mark.parametrize(
    ("slack_s", "chosen", "changes", "expected"),
    [
        pytest.param(457.0, "spot", {}, None, id="time to spare"),
        pytest.param(457.0, None, {}, None, id="time to wait"),
        pytest.param(456.0, "spot", {}, "fast", id="time is up"),
        pytest.param(456.0, None, {}, "fast", id="no time to wait"),
        pytest.param(360.0, "spot", {}, "fast", id="just possible"),
        pytest.param(359.0, "spot", {}, None, id="nothing meets it"),
        pytest.param(400.0, "sure", {}, None, id="on demand is chosen"),
        pytest.param(400.0, None, ON_SURE, None, id="runs on demand"),
        pytest.param(310.0, None, ON_SURE, None, id="runs on demand, and nowhere else in time"),
        pytest.param(400.0, None, ON_SPOT, "fast", id="runs on spot"),
    ],
)
def test_a_task_goes_where_it_ends_first_when_its_time_is_up(
    slack_s: float, chosen: str | None, changes: dict[str, Any], expected: str | None
) -> None:
    """None: the choice stands."""
    kept = goes(need(kind="deadline", slack_s=slack_s, **changes), chosen)
    assert (None if kept == chosen else kept) == expected


@pytest.mark.parametrize(
    "task", [need(), need(kind="streaming", slack_s=400.0, executions_left=9, period_s=600.0)]
)
def test_tasks_without_a_deadline_and_streams_are_left_alone(task: Need) -> None:
    assert goes(task, "spot") == "spot"


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
