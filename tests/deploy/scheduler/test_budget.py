"""Budgets are hard limits, of what runs and of what moving its data costs: the rest is not launched."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.simulated import SimulatedOffer
from spotweave.deploy.billing import CHARGES_PER_USD, Transfers, usd
from spotweave.deploy.model.instances import LaunchRequest
from spotweave.deploy.model.jobs import JobSpec, JobState, Profile, TaskKey
from spotweave.deploy.providers.base import ProviderError
from spotweave.deploy.scheduler.guards import Budgets
from spotweave.deploy.scheduler.placing import of_start, place
from spotweave.deploy.store.jobs import Job
from tests.deploy.scheduler.worlds import SETTINGS, World, batch, cheap_and_sure, need, rentable

TRANSFERS = Transfers(("home", "far"), {("home", "far"): 0.02, ("far", "home"): 0.05})
INPUT = Profile(data_region="home", data_gb=10.0, checkpoint_gb=2.0)


def world(folder: Path, *offers: SimulatedOffer, budget_usd: float | None = None) -> World:
    """Of these offers, between which moves cost money; or of a cheap one and a sure one."""
    settings = replace(SETTINGS, budget_usd=budget_usd)
    if not offers:
        return World(folder, cheap_and_sure(), settings=settings)
    return World(folder, list(offers), settings=replace(settings, transfers=TRANSFERS))


def spent(world: World) -> float:
    return float(world.store.costs.total(world.clock.now()).usd)


def counted(world: World, *jobs: Job) -> Budgets:
    """What is left of the deployment's budget and of these jobs' now."""
    budgets = Budgets(world.store, world.settings)
    budgets.count(world.clock.now())
    budgets.know(jobs)
    return budgets


@pytest.mark.real
@pytest.mark.parametrize("budget_usd", [0.02, 0.05, 0.1])
def test_all_ends_before_it_is_passed_and_nothing_new_begins(tmp_path: Path, budget_usd: float) -> None:
    here = world(tmp_path, budget_usd=budget_usd)
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
    here = world(tmp_path, budget_usd=0.009)
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
    here = world(tmp_path, budget_usd=0.01)
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
    here = world(tmp_path, budget_usd=0.009)
    key = TaskKey(here.submit(batch("one", budget_usd=0.02)), "main")
    now_s = here.clock.now()
    with here.store.transaction():
        place(here.store, key, 1, here.cloud.offers[0].offer, now_s, None)
    job = here.store.jobs.get(key.job_id)
    budgets = counted(here, job)
    assert budgets.left_usd == pytest.approx(0.009 - 0.005)
    assert budgets.left_of(key.job_id) == pytest.approx(0.02 - 0.005)
    spot = here.cloud.offers[0].offer
    assert need("two").start_usd(spot) > budgets.left_usd
    assert budgets.reason(spot).startswith("the deployment's budget leaves 0.0040 USD")
    assert not budgets.shows(spot)
    budgets.left_usd = spot.least_usd(2 * here.settings.period_s)
    assert budgets.shows(spot)  # what pays exactly one instance does pay it


def test_what_a_pass_takes_is_not_there_for_its_next_decision(tmp_path: Path) -> None:
    here = world(tmp_path, budget_usd=0.014)
    spot = here.cloud.offers[0].offer
    job = here.store.jobs.get(here.submit(batch("one", budget_usd=0.009)))
    budgets, own, other = counted(here, job), need(job.job_id), need("other")
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


def test_launches_with_an_unknown_outcome_count_against_the_budget(tmp_path: Path) -> None:
    far = rentable("far", "on_demand", region="far")
    here = world(tmp_path, far)

    def unheard(request: LaunchRequest) -> None:
        raise ProviderError("time-out")

    here.before_launches(unheard)
    job_id = here.submit(batch("two", instances=2, profile=INPUT, budget_usd=5.0))
    here.go(10.0)
    assert len(here.store.instances.of_job(job_id)) == 2
    budgets = counted(here, here.store.jobs.get(job_id))
    # The minimum of a minute of both at 1 USD/h, and 10 GB from home at 2 cents.
    assert 5.0 - budgets.left_of(job_id) == pytest.approx(2 * 60 / 3600 + 10 * 0.02)


def test_a_quarter_of_a_cent_is_kept_for_the_time_that_an_end_takes(tmp_path: Path) -> None:
    here = world(tmp_path, budget_usd=0.1)
    here.submit(batch("one"))
    here.go(200.0)
    assert here.cloud.live()
    # Two passes of 10 s at 0.3 USD/h beyond what the bill says now.
    assert counted(here).left_usd == pytest.approx(0.1 - spent(here) - 20 * 0.3 / 3600, abs=1e-4)


@pytest.mark.real
def test_what_a_restart_finds_asked_for_leaves_no_room_for_more(tmp_path: Path) -> None:
    """A scheduler is killed between asking for an instance and its launch; its follower knows the promise."""
    here = world(tmp_path, budget_usd=0.009)
    here.submit(batch("one", work_s=10.0))

    def killed(request: LaunchRequest) -> None:
        raise KeyboardInterrupt

    here.before_launches(killed)
    with pytest.raises(KeyboardInterrupt):
        here.scheduler.step()
    here.restart()
    here.submit(batch("two", work_s=10.0))
    here.scheduler.step()
    assert len(here.cloud.live()) == 1
    here.go(600.0)
    assert 0.0 < spent(here) <= 0.009


def job(name: str = "job", work_s: float = 600.0, budget_usd: float | None = None) -> JobSpec:
    return batch(name, work_s=work_s, profile=INPUT, budget_usd=budget_usd)


def cluster(region: str, price_usd_hour: float, up_until_s: float = float("inf")) -> SimulatedOffer:
    facts: dict[str, Any] = {"region": region, "quota": 10, "disk_usd_month": 4.0}
    return rentable(region, "spot", lambda now_s: now_s < up_until_s, price_usd_hour=price_usd_hour, **facts)


def egress_usd(here: World, job_id: str | None = None) -> float:
    now_s, costs = here.clock.now(), here.store.costs
    return float(usd((costs.total(now_s) if job_id is None else costs.of_job(job_id, now_s)).egress))


@pytest.mark.real
@pytest.mark.parametrize(("region", "paid"), [("far", 0.2), ("home", None)], ids=["away", "at home"])
def test_a_start_away_from_the_data_costs_their_way(tmp_path: Path, region: str, paid: float | None) -> None:
    """10 GB at 0.02."""
    here = world(tmp_path, cluster(region, 0.3))
    job_id = here.submit(job())
    here.ends_well(job_id)
    assert egress_usd(here, job_id) == egress_usd(here) == (paid or 0.0)
    for kind in ("task.started", "task.decided"):
        assert [event.data.get("egress_usd") for event in here.events(kind)] == [paid]
    (decision,) = here.store.decisions.latest(9)
    reasons = {one.offer_id: one.reason for one in decision.candidates}
    assert reasons[region] == ("its data move to far for 0.2000 USD" if paid else "")


@pytest.mark.real
def test_after_an_interruption_the_input_is_moved_to_where_it_goes_on(tmp_path: Path) -> None:
    here = world(tmp_path, cluster("home", 0.3, 1_000_600.0), cluster("far", 0.6))
    job_id = here.submit(job(work_s=1200.0))
    here.until_all_end()
    task = here.store.tasks.get(TaskKey(job_id, "main"))
    assert (task.interruptions, egress_usd(here, job_id)) == (1, 0.2)
    # And so are the 2 GB of its checkpoint, from where its runner says that it lies.
    for region, saved_in, cents in (("far", "home", 24), ("far", "far", 20), ("home", "far", 10)):
        saved = replace(task, saved_region=saved_in)
        assert of_start(job(), saved, region, TRANSFERS, {}) == cents * CHARGES_PER_USD // 100


@pytest.mark.real
@pytest.mark.parametrize("budget_usd", [0.21, 0.25])
def test_a_deployments_budget_is_not_passed_by_moves_of_data(tmp_path: Path, budget_usd: float) -> None:
    here = world(tmp_path, cluster("far", 0.3), budget_usd=budget_usd)
    jobs = [here.submit(job(f"job{k}", work_s=3600.0)) for k in range(3)]
    here.go(1200.0)
    # It pays the way of one of them. What is left then does not pay another, nor this one for an hour.
    assert len(here.events("task.started")) == 1
    assert 0.2 < spent(here) <= budget_usd
    assert {here.state(job_id) for job_id in jobs} == {JobState.FAILED}
    here.check_nothing_is_left()


@pytest.mark.real
def test_a_job_whose_budget_pays_no_start_anywhere_has_failed(tmp_path: Path) -> None:
    here = world(tmp_path, cluster("far", 0.3))
    poor, rich = here.submit(job("poor", budget_usd=0.2)), here.submit(job("rich", budget_usd=0.4))
    assert here.why_failed(poor) == "its budget leaves 0.2000 USD, which pays no further start anywhere"
    assert here.state(rich) is JobState.SUCCEEDED
    assert here.store.instances.of_job(poor) == []
    assert 0.2 < here.spent_usd(rich) <= 0.4


@pytest.mark.real
def test_a_budget_that_does_not_pay_the_way_leaves_the_job_where_its_data_are(tmp_path: Path) -> None:
    # Away it would be cheaper.
    here = world(tmp_path, cluster("home", 0.6), cluster("far", 0.3))
    job_id = here.submit(job(budget_usd=0.19))
    here.ends_well(job_id)
    assert {one.offer.region for one in here.store.instances.of_job(job_id)} == {"home"}


@pytest.mark.real
@pytest.mark.parametrize(
    ("budget_usd", "state"),
    [
        (0.004, JobState.FAILED),
        (0.02, JobState.FAILED),
        # What is left after the interruption pays a start at home, once there is room again.
        (0.05, JobState.RUNNING),
        (0.21, JobState.FAILED),
        (0.25, JobState.FAILED),
    ],
)
def test_a_jobs_budget_is_never_passed(tmp_path: Path, budget_usd: float, state: JobState) -> None:
    """Also not by a first minute, by disks, or by a way that it paid for before it began."""
    here = world(tmp_path, cluster("home", 0.6, 1_000_200.0), cluster("far", 0.3))
    job_id = here.submit(job(work_s=36_000.0, budget_usd=budget_usd))
    here.go(1500.0)
    assert here.state(job_id) is state
    assert here.spent_usd(job_id) <= budget_usd
    assert here.cloud.live() == []
