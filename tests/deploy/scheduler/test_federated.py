"""Trainings with several clients: release and pre-warming, budgets, deadlines, where data lie."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.simulated import SimulatedOffer
from deploy.billing import usd
from deploy.model.jobs import JobSpec, Places
from deploy.model.tasks import Phase
from tests.deploy.scheduler.cases import offer
from tests.deploy.scheduler.training import A, B, TrainingWorld, federated, key_of
from tests.deploy.scheduler.worlds import cheap_and_sure


@pytest.mark.real
def test_a_quick_client_is_released_and_back_in_time_for_the_next_round(tmp_path: Path) -> None:
    world = TrainingWorld(tmp_path, cheap_and_sure(), a=60.0, b=900.0)
    job = world.submit(federated(4, A, B, epoch_s=600.0))
    world.go(2400)
    world.restart()  # a scheduler that comes back hears of the released one from the runner
    world.ends_well(job)
    training = world.trainings[job]
    assert training.done == 4
    released = [event for event in world.events("task.requeued") if "released" in event.data["reason"]]
    assert {event.task for event in released} == {"client-a"}
    assert len(released) >= 2
    # Four slow epochs; the first round waits for a launch; nobody waits for the quick client after that.
    assert training.ended_s is not None
    assert training.ended_s - 1_000_000 <= 4 * 900 + 120
    bills = world.store.costs.of_tasks(job, world.clock.now())
    assert bills["client-a"].seconds < 0.5 * bills["client-b"].seconds
    assert world.store.costs.of_job(job, world.clock.now()) == bills["client-a"] + bills["client-b"]
    assert len(world.events("job.succeeded")) == 1


@pytest.mark.real
def test_a_client_whose_budget_is_spent_leaves_and_the_others_go_on(tmp_path: Path) -> None:
    """At 0.3 USD an hour 0.12 USD are 1440 s: two epochs of 500 s with their starts, not three."""
    world = TrainingWorld(tmp_path, cheap_and_sure(), a=500.0, b=500.0)
    job = world.submit(federated(5, A.model_copy(update={"budget_usd": 0.12}), B, epoch_s=500.0))
    world.ends_well(job)
    spent = float(usd(world.store.costs.of_tasks(job, world.clock.now())["client-a"].cost))
    assert 0.05 < spent <= 0.12
    left = world.store.tasks.get(key_of(job, "a"))
    assert left.phase is Phase.LEFT
    assert "budget" in left.message
    (event,) = world.events("task.left")
    assert event.task == "client-a"
    asked_s = [one.requested_s for one in world.store.instances.of_job(job) if one.key.task == "client-a"]
    assert max(asked_s) <= event.time_s
    assert world.trainings[job].done == 5
    assert world.metric("clients_left_total") == 1


@pytest.mark.real
def test_a_training_that_needs_who_left_fails_with_one_line(tmp_path: Path) -> None:
    world = TrainingWorld(tmp_path, cheap_and_sure(), a=500.0, b=500.0)
    poor = A.model_copy(update={"budget_usd": 0.1})
    job = world.submit(federated(5, poor, B, epoch_s=500.0, run_config={"quorum": "2"}))
    why = "1 of 2 clients are left, 2 are needed: the budget of a is spent; raise it or lower the quorum"
    assert world.why_failed(job) == why


def test_a_budget_that_pays_no_round_at_all_is_known_before_anything_is_rented(tmp_path: Path) -> None:
    world = TrainingWorld(tmp_path, cheap_and_sure(), a=500.0)
    job = world.submit(federated(5, A.model_copy(update={"budget_usd": 0.001}), epoch_s=500.0))
    assert world.why_failed(job)
    assert world.cloud.machines == {}


@pytest.mark.real
def test_a_training_with_a_deadline_goes_to_sure_capacity_in_time(tmp_path: Path) -> None:
    """Spot capacity never lasts an epoch of 400 s; three rounds on demand take about 1250."""
    world = TrainingWorld(
        tmp_path, cheap_and_sure(available=lambda now_s: (now_s - 1_000_000) % 400 < 380), a=400.0, b=400.0
    )
    job = world.submit(federated(3, A, B, epoch_s=400.0, deadline_s=2600.0))
    world.ends_well(job)
    assert world.took_s(job) <= 2600
    # By the policy, which weighs the deadline, or by the net: what counts is where it trained.
    rented = {one.offer.market for one in world.store.instances.of_job(job)}
    assert "on_demand" in rented


@pytest.mark.parametrize(("region", "goes_to"), [(None, "far"), ("near", "near")])
def test_a_client_trains_where_its_data_are(tmp_path: Path, region: str | None, goes_to: str) -> None:
    offers = [
        SimulatedOffer(offer(name, provider="simulated", region=name, price_usd_hour=price, launch_s=30.0))
        for name, price in (("far", 0.1), ("near", 0.5))
    ]
    world = TrainingWorld(tmp_path, offers, a=100.0)
    world.submit(federated(2, A.model_copy(update={"region": region}), epoch_s=100.0))
    world.until_all_end()
    assert set(world.offers_taken()) == {goes_to}


def test_data_where_the_job_may_not_run_are_a_mistake() -> None:
    work = federated(1, A.model_copy(update={"region": "far"})).work
    with pytest.raises(ValueError, match="add that region"):
        JobSpec(name="fl", work=work, places=Places(regions=("near",)))
