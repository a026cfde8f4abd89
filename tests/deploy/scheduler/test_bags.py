"""Bags of tasks in the simulated cloud; times by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.simulated import SimulatedOffer
from deploy.model.jobs import Bag, BagTask, JobSpec, JobState, Places, Resources, TaskKey
from deploy.scheduler.snapshot.estimates import need_of
from deploy.store.intents import IntentKind
from tests.deploy.scheduler.cases import offer
from tests.deploy.scheduler.worlds import SETTINGS, World, cheap_and_sure


def bag(n_tasks: int, minutes: float, deadline_s: float | None, **changes: Any) -> JobSpec:
    tasks = tuple(BagTask(name=f"t{k}", command=("run", str(k)), minutes=minutes) for k in range(n_tasks))
    return JobSpec(name="bag", work=Bag(tasks=tasks, deadline_s=deadline_s), **changes)


def each_once(world: World, job: str, n_tasks: int) -> bool:
    return world.cloud.completions == {TaskKey(job, f"t{k}"): 1 for k in range(n_tasks)}


@pytest.mark.real
def test_ten_tasks_under_interruptions_end_before_the_deadline_each_once(tmp_path: Path) -> None:
    # Four machines of each kind; every 300 s spot capacity is away for 60 s and all that runs there is lost.
    # Ten times 10 min of work; four machines on demand alone need three rounds of about 640 s: 1920 s.
    world = World(tmp_path, cheap_and_sure(available=lambda now_s: (now_s - 1_000_000) % 300 < 240))
    job = world.submit(bag(10, 10.0, 3600.0))
    world.until_all_end()
    record = world.store.jobs.get(job)
    assert record.state is JobState.SUCCEEDED
    assert record.ended_s is not None
    assert record.ended_s - record.submitted_s <= 3600.0
    assert each_once(world, job, 10)
    # No task of 600 s ends on spot capacity that lasts for 240 s: all were interrupted or moved.
    assert len(world.events("task.lost")) >= 10
    assert {machine.report.offer_id for machine in world.cloud.machines.values()} == {"spot", "sure"}
    world.check_nothing_is_left()


def test_the_net_takes_tasks_off_spot_capacity_in_time(tmp_path: Path) -> None:
    # One of two zones always has spot capacity, for 100 s: a try saves one checkpoint (60 s) of the 300 s of
    # work. On demand all of it takes 30 s of launch, 20 s of set-up and 300 s, so at first nothing stands in
    # the way of spot; after a try 290 s are left to do, and 360 s to do it in.
    zones = [
        SimulatedOffer(offer(name, provider="simulated", launch_s=10.0), available=available)
        for name, available in (
            ("a", lambda now_s: (now_s - 1_000_000) % 200 < 100),
            ("b", lambda now_s: (now_s - 1_000_000) % 200 >= 100),
        )
    ]
    world = World(tmp_path, [*zones, cheap_and_sure()[1]])
    job = world.submit(bag(4, 5.0, 460.0))
    world.until_all_end()
    record = world.store.jobs.get(job)
    assert record.state is JobState.SUCCEEDED
    assert record.ended_s is not None
    assert record.ended_s - record.submitted_s <= 460.0
    assert each_once(world, job, 4)
    assert world.metric("overruled_total", by="net") >= 4
    world.check_nothing_is_left()


@pytest.mark.real
def test_a_killed_scheduler_goes_on_and_what_is_done_is_ended_once(tmp_path: Path) -> None:
    world = World(tmp_path, cheap_and_sure())
    # Four at once: four are done after about 350 s, four more run.
    job = world.submit(bag(12, 5.0, None, places=Places(markets=("spot",))))
    for _ in range(10):
        world.go(50.0)
        world.restart()
    tasks = world.store.tasks.of_job(job)
    assert sum(task.phase == "succeeded" for task in tasks) == 4
    assert world.store.gantt.sums([job])[job].tasks_done == 4
    assert world.state(job) is JobState.RUNNING
    world.until_all_end()
    assert world.state(job) is JobState.SUCCEEDED
    assert each_once(world, job, 12)
    # Twelve machines; for each task one stop, and one to forget the job.
    assert world.cloud.launches == 12
    n_intents = sum(world.store.intents.counts().values())
    stops = [
        one for one in map(world.store.intents.get, range(1, n_intents + 1)) if one.kind is IntentKind.STOP
    ]
    assert sorted(one.target for one in stops) == sorted(
        [f"{job}:forget", *(f"{job}.t{k}.1" for k in range(12))]
    )
    world.check_nothing_is_left()


def test_one_command_that_fails_too_often_fails_the_bag_with_its_line(tmp_path: Path) -> None:
    world = World(tmp_path, cheap_and_sure())
    world.cloud.fails["bag"] = 3
    job = world.submit(bag(1, 5.0, None, max_user_failures=2))
    world.until_all_end()
    record = world.store.jobs.get(job)
    assert (record.state, record.reason) == (JobState.FAILED, "exit code 1")
    world.check_nothing_is_left()


def test_a_task_needs_what_it_says_and_the_bag_is_time_critical(tmp_path: Path) -> None:
    world = World(tmp_path, cheap_and_sure())
    one = BagTask(name="small", command=("a",), minutes=2.0)
    other = BagTask(name="large", command=("b",), minutes=5.0, vcpus=3, memory_gib=6.0)
    spec = JobSpec(
        name="bag", work=Bag(tasks=(one, other), deadline_s=1000.0), resources=Resources(memory_gib=2.0)
    )
    job = world.store.jobs.get(world.submit(spec))
    needs = [
        need_of(job, task, [], job.submitted_s + 100.0, SETTINGS)
        for task in world.store.tasks.of_job(job.job_id)
    ]
    assert [need.standard_s for need in needs] == [120.0, 300.0]
    assert [(need.resources.vcpus, need.resources.memory_gib) for need in needs] == [(1, 2.0), (3, 6.0)]
    assert [need.slack_s for need in needs] == [900.0, 900.0]
    assert {need.kind for need in needs} == {"deadline"}
