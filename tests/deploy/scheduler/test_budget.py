"""The deployment's budget is a hard limit: what it does not pay is not launched, and all ends before it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from deploy.model.instances import InstanceReport, LaunchRequest
from deploy.model.jobs import JobState, TaskKey
from deploy.scheduler.act.placing import place
from deploy.scheduler.guards.budgets import Budgets
from deploy.scheduler.settings import SchedulerSettings
from tests.deploy.scheduler.cases import need
from tests.deploy.scheduler.worlds import World, batch, cheap_and_sure


def world(tmp_path: Path, budget_usd: float | None) -> World:
    settings = SchedulerSettings(period_s=10.0, ask_again_s=10.0, cool_down_s=60.0, budget_usd=budget_usd)
    return World(tmp_path, cheap_and_sure(), settings=settings)


def spent(world: World) -> float:
    return float(world.store.costs.total(world.clock.now()).usd)


@pytest.mark.real
@pytest.mark.parametrize("budget_usd", [0.02, 0.05, 0.1])
def test_everything_ends_before_it_is_passed_and_nothing_new_begins(
    tmp_path: Path, budget_usd: float
) -> None:
    here = world(tmp_path, budget_usd)
    jobs = [here.submit(batch(f"long{k}", work_s=36_000.0)) for k in range(3)]
    here.go(600.0)
    reason = f"the deployment's budget of {budget_usd:g} USD is spent"
    for job_id in jobs:
        job = here.store.jobs.get(job_id)
        assert (job.state, job.reason) == (JobState.FAILED, reason)
    here.check_nothing_is_left()
    # Three instances at 0.3 USD/h: a pass of 10 s costs a quarter of a cent.
    assert budget_usd - 4 * 0.0025 < spent(here) <= budget_usd
    (event,) = here.events("deployment.budget_spent")
    assert event.data == {"reason": reason, "jobs": 3}
    late = here.submit(batch("late"))
    here.go(100.0)
    assert here.cloud.live() == []
    assert here.store.instances.of_job(late) == []


@pytest.mark.real
def test_what_it_does_not_pay_at_least_is_not_launched(tmp_path: Path) -> None:
    # 60 s at 0.3 USD/h are half a cent: it pays one instance and not two.
    here = world(tmp_path, 0.009)
    two = here.submit(batch("two", instances=2))
    here.go(300.0)
    assert here.state(two) is JobState.PENDING
    assert spent(here) == 0.0
    one = here.submit(batch("one", work_s=10.0))
    here.go(600.0)
    assert not here.store.jobs.get(one).state.live
    assert 0.0 < spent(here) <= 0.009


def test_what_it_does_not_pay_is_shown_as_not_to_be_had(tmp_path: Path) -> None:
    """A minute on spot capacity costs half a cent, on demand more than the budget."""
    here = world(tmp_path, 0.01)
    here.submit(batch("one", work_s=10.0))
    here.scheduler.step()
    (decision,) = here.store.decisions.latest(9)
    shown = {one.offer_id: (one.available, one.reason) for one in decision.candidates}
    assert shown["spot"] == (True, "")
    assert shown["sure"][0] is False
    assert "budget leaves 0.0100 USD" in shown["sure"][1]


def test_what_was_asked_for_counts_before_any_bill_does(tmp_path: Path) -> None:
    """Launches are written down in one pass and done at its end: until then no bill knows of them."""
    # 60 s at 0.3 USD/h are half a cent: it pays one instance and not two.
    here = world(tmp_path, 0.009)
    key = TaskKey(here.submit(batch("one")), "main")
    now_s = here.clock.now()
    with here.store.transaction():
        place(here.store, key, 1, here.cloud.offers[0].offer, now_s, None)
    budgets = Budgets(here.store, here.settings)
    budgets.count(now_s)
    assert budgets.left_usd == pytest.approx(0.009 - 0.005)
    job = here.store.jobs.get(key.job_id)
    budgets.know([replace(job, spec=job.spec.model_copy(update={"budget_usd": 0.02}))])
    assert budgets.left_of(key.job_id) == pytest.approx(0.02 - 0.005)
    spot = here.cloud.offers[0].offer
    assert need("two").start_usd(spot) > budgets.left_usd
    assert budgets.reason(spot).startswith("the deployment's budget leaves 0.0040 USD")
    assert not budgets.shows(spot)


def test_what_a_pass_takes_is_not_there_for_its_next_decision(tmp_path: Path) -> None:
    here = world(tmp_path, 0.014)
    spot = here.cloud.offers[0].offer
    budgets = Budgets(here.store, here.settings)
    job = here.store.jobs.get(here.submit(batch("one", budget_usd=0.009)))
    own, other = need(job.job_id), need("other")
    budgets.count(here.clock.now())
    budgets.know([job])
    assert own.start_usd(spot) <= budgets.left_of(job.job_id)
    budgets.take(spot, own)
    assert budgets.left_usd == pytest.approx(0.009)
    assert budgets.left_of(job.job_id) == pytest.approx(0.004)
    assert own.start_usd(spot) > budgets.left_of(job.job_id), "its own budget"
    assert other.start_usd(spot) <= budgets.left_usd
    budgets.take(spot, other)
    assert other.start_usd(spot) > budgets.left_usd, "the deployment's"
    assert budgets.spent == ""
    budgets.take(spot, other)
    assert budgets.spent == "the deployment's budget of 0.014 USD is spent"


def test_a_quarter_of_a_cent_is_kept_for_the_time_that_an_end_takes(tmp_path: Path) -> None:
    here = world(tmp_path, 0.1)
    key = TaskKey(here.submit(batch("one")), "main")
    here.go(200.0)
    (instance,) = here.store.instances.of_job(key.job_id)
    assert instance.launched_s is not None
    budgets = Budgets(here.store, here.settings)
    budgets.count(here.clock.now())
    # Two passes of 10 s at 0.3 USD/h beyond what the bill says now.
    assert budgets.left_usd == pytest.approx(0.1 - spent(here) - 20 * 0.3 / 3600, abs=1e-4)


@pytest.mark.real
def test_what_a_restart_finds_asked_for_leaves_no_room_for_more(tmp_path: Path) -> None:
    """A scheduler is killed between asking for an instance and its launch; its follower knows the promise."""
    here = world(tmp_path, 0.009)
    here.submit(batch("one", work_s=10.0))
    launch = here.provider.launch

    def killed(request: LaunchRequest) -> InstanceReport:
        raise KeyboardInterrupt

    here.provider.launch = killed  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        here.scheduler.step()
    here.provider.launch = launch  # type: ignore[method-assign]
    here.restart()
    here.submit(batch("two", work_s=10.0))
    here.scheduler.step()
    assert len(here.cloud.live()) == 1
    here.go(600.0)
    assert 0.0 < spent(here) <= 0.009
