"""A policy that is watched, standard times that are learned, deadlines beyond hope; figures by hand."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from spotweave.deploy.model.instances import Offer
from spotweave.deploy.model.jobs import JobSpec, JobState, SparkBatch, TaskKey
from spotweave.deploy.scheduler.needs import Learned, Need, need_of
from spotweave.deploy.scheduler.snapshot import Occupancy, observe, snapshot_of
from spotweave.deploy.store.intents import Mode
from spotweave.envs.simulation.guards import GuardsConfig
from tests.deploy.scheduler.training import A, B, TrainingWorld, federated
from tests.deploy.scheduler.worlds import SETTINGS, World, batch, cheap_and_sure, need, offer, rentable


def test_the_watched_policy_is_written_down_and_nothing_else(tmp_path: Path) -> None:
    world = World(tmp_path, cheap_and_sure(), "on_demand", Mode.SHADOW, watched="cheapest")
    job = world.submit(batch(work_s=300.0))
    world.ends_well(job)
    assert world.offers_taken() == ["sure"]
    (decision,) = world.store.decisions.latest(10)
    assert (decision.mode, decision.policy, decision.chosen) == (Mode.SHADOW, "on_demand", "sure")
    assert (decision.shadow_policy, decision.shadow_choice) == ("cheapest", "spot")
    # On demand 350 s at 1 USD/h; on spot 0.3, and a 7200 s spell seen for 0 s (counts as a tenth), whose
    # interruption costs half of the 300 s and 50 s of start, but what ran until then is free, as it is within
    # the first hour. An hour of delay counts 0.25.
    rate = 0.12 / (7200**0.25 * 720**0.75)
    lost_s = 300 * rate * 200
    free_s = (1 - math.exp(-300 * rate) * (1 + 300 * rate)) / rate * (1 + 300 * rate)
    spot = (0.3 * (350 + lost_s - free_s) + 0.25 * (350 + lost_s)) / 3600
    difference = spot - (1.0 + 0.25) * 350 / 3600
    assert decision.shadow_difference == pytest.approx(difference, rel=1e-4)
    told = world.events("task.decided")[0].data["watched"]
    assert (told["policy"], told["offer"]) == ("cheapest", "spot")
    assert world.metric("watched_total", policy="cheapest", agreed="no") == 1
    assert world.metric("watched_difference_usd", policy="cheapest") == pytest.approx(difference, rel=1e-4)


UNSAID = JobSpec(name="etl", work=SparkBatch(script="x.py"))


def test_a_job_that_says_nothing_is_expected_to_take_what_it_took(tmp_path: Path) -> None:
    """600 s of work at speed 1, on instances of speed 2, seen every 10 s."""
    world = World(tmp_path, [rentable("fast", "on_demand", speed=2.0)])
    job = world.submit(UNSAID)
    world.until_all_end()
    learned = Learned(world.store)
    learned.look(world.clock.now())
    record, key = world.store.jobs.get(job), TaskKey(job, "main")
    took_s = learned.standard_s(record.submitter, "etl", "spark-batch", "main")
    assert took_s is not None
    assert 600 <= took_s <= 600 + 2 * 3 * 10
    told = learned.told(record, key).spec.work
    assert isinstance(told, SparkBatch)
    assert told.standard_s == took_s
    said = replace(record, spec=batch("etl", work_s=77.0))
    assert learned.told(said, key) is said
    assert learned.standard_s(record.submitter, "other", "spark-batch", "main") is None
    foreign = replace(record, submitter="mallory")
    assert learned.told(foreign, key) is foreign, "another submitter's runs must not count"


def test_an_instance_type_is_as_fast_for_a_job_as_its_earlier_runs_were(tmp_path: Path) -> None:
    """600 s of work at speed 1. A GPU costs four times as much; it is configured with speed 2 and has 6."""
    up = {"plain": False, "gpu": False}
    plain = rentable("plain", "on_demand", lambda _: up["plain"], price_usd_hour=1.0)
    gpu = rentable("gpu", "on_demand", lambda _: up["gpu"], price_usd_hour=4.0, speed=2.0, instance_type="g")
    world = World(tmp_path, [plain, gpu], policy="expected_cost")
    learned = Learned(world.store)

    def run(*places: str) -> str:
        up.update({name: name in places for name in up})
        job = world.submit(UNSAID, 1 + len(world.cloud.machines))
        world.go(20.0)
        for machine in world.cloud.machines.values():
            machine.speed = 6.0 if machine.report.offer_id == "gpu" else 1.0
        world.until_all_end()
        world.go(60.0)
        learned.look(world.clock.now())
        return job

    first = run("plain")
    record, key = world.store.jobs.get(first), TaskKey(first, "main")
    run("plain")
    run("gpu")
    assert learned.faster(record, key) == {"small": pytest.approx(1.0)}, "one run says too little"
    assert world.offers_taken() == ["plain", "plain", "gpu"]
    run("gpu")
    run("plain", "gpu")
    assert world.offers_taken()[-1] == "gpu"
    again = replace(world.store.tasks.get(key), phase=None, saved=0.0)
    expected = need_of(
        learned.told(record, key), again, [], 0.0, SETTINGS, faster=learned.faster(record, key)
    )
    # Seen every 10 s, from ready instances to the end.
    assert 600 <= expected.fresh_s(plain.offer) <= 660
    assert 100 <= expected.fresh_s(gpu.offer) <= 160


def test_a_training_measures_the_speed_of_its_clients_itself(tmp_path: Path) -> None:
    world = TrainingWorld(
        tmp_path, [rentable("a", "on_demand"), rentable("b", "on_demand", instance_type="g")]
    )
    job_id = world.submit(federated(2, A, B))
    job, key = world.store.jobs.get(job_id), TaskKey(job_id, "client-a")
    learned = Learned(world.store)
    runs = [("small", 600.0), ("small", 600.0), ("g", 200.0), ("g", 200.0)]
    learned._runs[job.submitter, job.spec.name, "flower", "client-a"] = deque(runs)
    assert learned.faster(job, key) == {}


@pytest.mark.real
def test_an_interrupted_run_teaches_nothing(tmp_path: Path) -> None:
    world = World(tmp_path, cheap_and_sure(available=lambda now_s: now_s < 1_000_000 + 200))
    job = world.submit(UNSAID)
    world.until_all_end()
    learned = Learned(world.store)
    learned.look(world.clock.now())
    assert world.state(job) is JobState.SUCCEEDED
    submitter = world.store.jobs.get(job).submitter
    assert learned.standard_s(submitter, "etl", "spark-batch", "main") is None


@pytest.mark.real
@pytest.mark.parametrize("policy", ["expected_cost", "multicloud"])
def test_a_deadline_beyond_hope_is_said_once_and_the_job_runs_cheaply(tmp_path: Path, policy: str) -> None:
    world = World(tmp_path, cheap_and_sure(), policy=policy)
    job = world.submit(batch(work_s=300.0, deadline_s=200.0))
    world.go(50)
    world.restart()
    (machine,) = world.cloud.machines.values()
    machine_id = machine.report.instance_id
    world.cloud.kill(machine_id, by_provider=True)
    world.ends_well(job)
    (event,) = world.events("task.hopeless")
    # 30 s of launch, 20 of set-up, 300 of work.
    assert event.data["reason"] == "the deadline is in 200 s and what is left takes 350 s at best"
    assert set(world.offers_taken()) == {"spot"}
    assert world.metric("deadline_misses_total", kind="job") == 1


SPOT, SURE = offer("spot"), offer("sure", "on_demand")


def lost(task: Need, offers: Sequence[Offer]) -> str:
    """Why a deadline is not shown; "" if it is."""
    rules = GuardsConfig().rules()
    return observe(snapshot_of(offers, [task], {}, Occupancy()), [task], 1, rules).lost[0]


def test_a_deadline_is_beyond_hope_only_if_nothing_meets_it() -> None:
    late = need(kind="deadline", slack_s=650.0, restart_s=20.0)
    assert lost(late, [SPOT, SURE])
    assert not lost(late, [SPOT, offer("fast", speed=2.0)])
    assert not lost(replace(late, running=True, here="spot", left_here_s=640.0), [SPOT, SURE])
    assert not lost(replace(late, slack_s=None), [SPOT, SURE])
    assert not lost(replace(late, kind="streaming"), [SPOT, SURE])
    assert "was 5 s ago" in lost(replace(late, slack_s=-5.0), [SPOT, SURE])
