"""What moving data to where tasks start costs: charged to their jobs, within their budgets."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.simulated import SimulatedOffer
from deploy.billing import CHARGES_PER_USD, usd
from deploy.model.jobs import JobSpec, JobState, Profile, TaskKey
from deploy.model.transfers import Transfers
from deploy.scheduler.act.placing import of_start
from deploy.scheduler.settings import SchedulerSettings
from tests.deploy.scheduler.cases import offer
from tests.deploy.scheduler.worlds import World, batch

TRANSFERS = Transfers(("home", "far"), {("home", "far"): 0.02, ("far", "home"): 0.05})
INPUT = Profile(data_region="home", data_gb=10.0, checkpoint_gb=2.0)


def job(name: str = "job", work_s: float = 600.0, budget_usd: float | None = None) -> JobSpec:
    return batch(name, work_s=work_s, profile=INPUT, budget_usd=budget_usd)


def place(region: str, price_usd_hour: float, up_until_s: float = float("inf")) -> SimulatedOffer:
    facts = {"provider": "simulated", "launch_s": 30.0, "region": region, "quota": 10, "disk_usd_month": 4.0}
    return SimulatedOffer(
        offer(region, "spot", price_usd_hour=price_usd_hour, **facts), lambda now_s: now_s < up_until_s
    )


def world(folder: Path, *places: SimulatedOffer, budget_usd: float | None = None) -> World:
    settings = SchedulerSettings(
        period_s=10.0, ask_again_s=10.0, cool_down_s=60.0, transfers=TRANSFERS, budget_usd=budget_usd
    )
    return World(folder, list(places), settings=settings)


def egress_usd(here: World, job_id: str | None = None) -> float:
    now_s, costs = here.clock.now(), here.store.costs
    return float(usd((costs.total(now_s) if job_id is None else costs.of_job(job_id, now_s)).egress))


@pytest.mark.real
def test_a_start_away_from_the_data_costs_their_way_and_one_at_home_does_not(tmp_path: Path) -> None:
    here = world(tmp_path, place("far", 0.3))
    job_id = here.submit(job())
    here.until_all_end()
    # 10 GB at 0.02.
    assert egress_usd(here, job_id) == 0.2
    assert [event.data["egress_usd"] for event in here.events("task.started")] == [0.2]
    assert [event.data["egress_usd"] for event in here.events("task.decided")] == [0.2]
    (decision,) = here.store.decisions.latest(9)
    reasons = {one.offer_id: one.reason for one in decision.candidates}
    assert reasons["far"] == "its data move to far for 0.2000 USD"
    here.check_nothing_is_left()


@pytest.mark.real
def test_at_home_it_is_free(tmp_path: Path) -> None:
    here = world(tmp_path, place("home", 0.3))
    here.submit(job())
    here.until_all_end()
    assert egress_usd(here) == 0.0
    assert "egress_usd" not in here.events("task.started")[0].data
    assert "egress_usd" not in here.events("task.decided")[0].data


@pytest.mark.real
def test_after_an_interruption_the_input_is_moved_to_where_it_goes_on(tmp_path: Path) -> None:
    here = world(tmp_path, place("home", 0.3, 1_000_600.0), place("far", 0.6))
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
    here = world(tmp_path, place("far", 0.3), budget_usd=budget_usd)
    jobs = [here.submit(job(f"job{k}", work_s=3600.0)) for k in range(3)]
    here.go(1200.0)
    # It pays the way of one of them. What is left then does not pay another, nor this one for an hour.
    assert len(here.events("task.started")) == 1
    spent = float(here.store.costs.total(here.clock.now()).usd)
    assert 0.2 < spent <= budget_usd
    assert {here.state(job_id) for job_id in jobs} == {JobState.FAILED}
    here.check_nothing_is_left()


@pytest.mark.real
def test_a_job_whose_budget_pays_no_start_anywhere_has_failed(tmp_path: Path) -> None:
    here = world(tmp_path, place("far", 0.3))
    poor, rich = here.submit(job("poor", budget_usd=0.2)), here.submit(job("rich", budget_usd=0.4))
    here.until_all_end()
    assert (here.state(poor), here.state(rich)) == (JobState.FAILED, JobState.SUCCEEDED)
    assert (
        here.store.jobs.get(poor).reason
        == "its budget leaves 0.2000 USD, which pays no further start anywhere"
    )
    assert here.store.instances.of_job(poor) == []
    assert 0.2 < float(here.store.costs.of_job(rich, here.clock.now()).usd) <= 0.4


@pytest.mark.real
def test_a_budget_that_does_not_pay_the_way_leaves_the_job_where_its_data_are(tmp_path: Path) -> None:
    # Away it would be cheaper.
    here = world(tmp_path, place("home", 0.6), place("far", 0.3))
    job_id = here.submit(job(budget_usd=0.19))
    here.until_all_end()
    assert here.state(job_id) is JobState.SUCCEEDED
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
    here = world(tmp_path, place("home", 0.6, 1_000_200.0), place("far", 0.3))
    job_id = here.submit(job(work_s=36_000.0, budget_usd=budget_usd))
    here.go(1500.0)
    assert here.state(job_id) is state
    assert float(here.store.costs.of_job(job_id, here.clock.now()).usd) <= budget_usd
    assert here.cloud.live() == []
