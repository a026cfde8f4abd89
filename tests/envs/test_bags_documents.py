"""Bags: the files of Figure 4.5, plans and every way in which one is impossible, one clear line a mistake."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spotweave.envs.documents.bags import (
    plan_document,
    read_environment,
    read_job,
    read_map,
)
from spotweave.envs.simulation.bags import model
from spotweave.envs.simulation.bags.cases import TABLE_7_2, published_job, uniform_job
from spotweave.envs.simulation.bags.plan import (
    Occupancy,
    Plan,
    PlannedTask,
    PlannedVm,
    require_possible,
    violations,
)
from tests.envs.bag_cases import SLOW, SMALL_BURST, bag_of
from tests.envs.checks import put, refused
from tests.envs.traces_cases import write

# Figure 4.5, without the closing brace that its env.json has too many.
ENV: dict[str, Any] = {
    "instances": {
        "c3.large": {
            "vcpu": 2,
            "memory": 3.75,
            "markets": {"on-demand": "yes", "spot": "yes"},
            "burstable": {"burstable": "no", "cpu_credit_rate": 0, "baseline": 0},
        },
        "t3.xlarge": {
            "vcpu": 4,
            "memory": 16.0,
            "markets": {"on-demand": "yes", "spot": "no"},
            "burstable": {"burstable": "yes", "cpu_credit_rate": 96, "baseline": 30.0},
        },
    }
}
JOB: dict[str, Any] = {
    "job_id": 10,
    "job_name": "Test",
    "description": "A synthetic job",
    "tasks": {
        name: {
            "command": "sh exec.sh 400",
            "memory": 10.060959,
            "runtime": {"c3.large": 167.0, "t3.xlarge": 119.0},
        }
        for name in "012"
    },
}
PRICED = put(ENV, "instances/t3.xlarge/prices", {"on-demand": 0.1664})


def test_the_files_of_figure_4_5(tmp_path: Path) -> None:
    environment = read_environment(write(tmp_path / "env.json", PRICED))
    c3, t3 = environment.types
    # The prices of c3.large are those of Table 9.1.
    assert c3 == model.VmType("c3.large", 2, 3.75, 0.105, 0.0299)
    assert t3 == model.VmType("t3.xlarge", 4, 16.0, 0.1664, None, True, 96.0, 0.3)
    bag = read_job(write(tmp_path / "job.json", JOB), environment)
    assert (bag.id, bag.name, bag.description) == (10, "Test", "A synthetic job")
    runtimes_s = {"c3.large": 167.0, "t3.xlarge": 119.0}
    assert bag.tasks == tuple(model.Task(name, "sh exec.sh 400", 10.060959, runtimes_s) for name in "012")


def test_a_map_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    environment = model.Environment(model.TABLE_9_1)
    bag = published_job("J60", model.TABLE_9_1)
    first = PlannedTask(bag.tasks[0], 1, 0.0, bag.tasks[0].runtime_s["c3.large"] * 1.1, 131.5)
    one = Plan(
        type(bag)(1, "one", "", bag.tasks[:1]),
        (PlannedVm(model.Vm(model.TABLE_9_1[0], model.Market.SPOT, 3), (first,)),),
        2700.0,
        1900.0,
        900.0,
    )
    document = plan_document(one, "hads")
    assert document["cost_usd"] == one.cost_usd
    assert read_map(write(tmp_path / "map.json", document), one.bag, environment) == one
    # An edited map is checked again.
    document["vms"][0]["tasks"][0]["end_s"] += 1
    with pytest.raises(model.BagError, match=r"map.json: the plan cannot be carried out: task 0 .* runs"):
        read_map(write(tmp_path / "map.json", document), one.bag, environment)
    with pytest.raises(model.BagError, match="job_id is 1, expected 7"):
        read_map(tmp_path / "map.json", type(bag)(7, "one", "", bag.tasks[:1]), environment)


BAD_ENVIRONMENTS: list[tuple[Any, str]] = [
    ("{", "env.json is not YAML"),
    ([], "the whole: input should be an object, got []"),
    ({"instances": {}}, "instances: dictionary should have at least 1 item"),
    (put(PRICED, "more", 1), "more: unknown key"),
    (ENV, 'instances.t3.xlarge.prices lacks "on-demand"'),
    (
        put(PRICED, "instances/c3.large/vcpu", 0),
        "vcpu: input should be greater than or equal to 1, got 0",
    ),
    (put(PRICED, "instances/c3.large/memory", -1), "memory: input should be greater than 0, got -1"),
    (
        put(PRICED, "instances/c3.large/markets/spot", "maybe"),
        "spot: input should be 'yes' or 'no'",
    ),
    (put(PRICED, "instances/t3.xlarge/burstable/baseline", 0), "baseline is 0, expected a number > 0"),
    (
        put(PRICED, "instances/t3.xlarge/burstable/baseline", 101),
        "baseline: input should be less than",
    ),
    (
        put(PRICED, "instances/t3.xlarge/prices/on-demand", 0),
        "prices.on-demand: input should be greater than 0",
    ),
]
BAD_JOBS: list[tuple[Any, str]] = [
    (put(JOB, "tasks", {}), "tasks: dictionary should have at least 1 item"),
    (put(JOB, "job_id", "10"), "job_id: input should be a valid integer, got '10'"),
    (
        put(JOB, "tasks/1/runtime/c3.large", -1.0),
        "runtime.c3.large: input should be greater than 0, got -1.0",
    ),
    (
        put(JOB, "tasks/1/runtime/c3.large", ...),
        "tasks.1.runtime has t3.xlarge: expected seconds on each of c3.large",
    ),
    (
        put(JOB, "tasks/1/runtime/c9.huge", 3.0),
        "tasks.1.runtime has c3.large, t3.xlarge, c9.huge: expected seconds on each of c3.large, t3.xlarge",
    ),
    # 3.75 GB are 3840 MB; the burstable VM has more, but takes only what others hand over.
    (put(JOB, "tasks/2/memory", 3840.5), "tasks.2.memory is 3840.5 MB, expected at most 3840 MB"),
    (
        put(JOB, "tasks/2/memory", -0.5),
        "memory: input should be greater than or equal to 0, got -0.5",
    ),
]


@pytest.mark.parametrize(
    ("name", "document", "message"),
    [("env.json", *row) for row in BAD_ENVIRONMENTS] + [("job.json", *row) for row in BAD_JOBS],
    ids=[message for _, message in BAD_ENVIRONMENTS + BAD_JOBS],
)
def test_a_mistake_in_a_file_is_one_line(tmp_path: Path, name: str, document: Any, message: str) -> None:
    environment = read_environment(write(tmp_path / "good.json", PRICED))
    file = write(tmp_path / name, document)
    with refused(model.BagError, message, str(file)):
        read_environment(file) if name == "env.json" else read_job(file, environment)


@pytest.mark.parametrize("name", TABLE_7_2)
def test_a_published_job_keeps_table_7_2(name: str) -> None:
    profile = TABLE_7_2[name]
    bag = published_job(name, model.TABLE_7_1, seed=3)
    runtime_s = np.array([task.runtime_s["c3.large"] for task in bag.tasks])
    memory_mb = np.array([task.memory_mb for task in bag.tasks])
    assert len(bag.tasks) == profile.tasks
    for values, spread, rounding in (
        (runtime_s, profile.runtime_s, 0.5),
        (memory_mb, profile.memory_mb, 0.01),
    ):
        assert values.min() == spread.least
        assert values.max() == spread.largest
        assert values.mean() == pytest.approx(spread.mean, abs=rounding)
    assert published_job(name, model.TABLE_7_1, seed=3) == bag
    assert published_job(name, model.TABLE_7_1, seed=4) != bag
    # 40.73 Gflops on two cores against 22.09.
    assert bag.tasks[0].runtime_s["c4.large"] == pytest.approx(runtime_s[0] * 22.09 / 40.73)


def test_jobs_need_published_speeds() -> None:
    bag = uniform_job(30, 5, 15, model.TABLE_9_1)
    assert {task.runtime_s["c3.large"] for task in bag.tasks} <= set(map(float, range(5, 16)))
    assert model.SPEEDS["t3.large"] == pytest.approx(167 / 119)
    with pytest.raises(model.BagError, match=r"the speed of 'c5\.xlarge' is not published"):
        uniform_job(3, 5, 15, model.TABLE_9_7[2:3])
    with pytest.raises(model.BagError, match="there is no job 'J61': use J60, J80, J100, ED200"):
        published_job("J61", model.TABLE_7_1)


TWO_CORES = model.VmType("slow", 2, 4.0, 0.9, 0.36)
ENVIRONMENT = model.Environment((TWO_CORES, SMALL_BURST), checkpoint_overhead=0.0)
SPOT = model.Vm(TWO_CORES, model.Market.SPOT, 1)


def plan_of(*placed: tuple[int, int, float, float], memory_mb: float = 1000.0) -> Plan:
    """(task, core, start, end) on one spot VM; D_spot is 100 s, D 200 s."""
    bag = bag_of(*[(memory_mb, end - start) for _, _, start, end in placed])
    tasks = tuple(PlannedTask(bag.tasks[task], core, start, end) for task, core, start, end in placed)
    return Plan(bag, (PlannedVm(SPOT, tasks),), 200.0, 100.0, 900.0)


def test_a_core_waits_for_memory_as_in_figure_4_1() -> None:
    # Tasks 1 and 4 run at once. Core 0 is free when 4 ends at 30 s, but 5 needs 2000 MB of which 4096 - 2500
    # are left: it waits for the end of 1.
    occupancy = Occupancy(TWO_CORES)
    occupancy.place(1, 2500, 0, 100)
    occupancy.place(0, 1000, 0, 30)
    assert occupancy.earliest(2000, 50) == (0, 100)
    assert occupancy.earliest(1500, 50) == (0, 30)
    occupancy.place(0, 2000, 100, 150)
    # Core 1 is free at 100 s, where 4096 - 2000 MB are left until 150 s.
    assert occupancy.earliest(2096, 50) == (1, 100)
    assert occupancy.earliest(2097, 50) == (1, 150)
    assert occupancy.earliest(4097, 1) is None


def test_memory_must_last_until_the_end_of_a_task() -> None:
    # Core 0 runs 3000 MB from 50 s on: 2000 MB fit before it, but not for longer than 50 s.
    occupancy = Occupancy(model.VmType("three", 3, 4.0, 1.0))
    occupancy.place(0, 3000, 50, 80)
    assert occupancy.earliest(2000, 50) == (1, 0)
    assert occupancy.earliest(2000, 51) == (1, 80)


def test_cost_makespan_and_slack() -> None:
    # A spot VM until 40 s at 0.36 USD/hour: 0.004 USD. One on standby for a cycle of 900 s at 0.8: 0.2 USD.
    plan = plan_of((0, 0, 0, 40), (1, 1, 0, 30))
    standby = PlannedVm(model.Vm(SMALL_BURST, model.Market.ON_DEMAND, 1), (), model.Mode.BASELINE)
    plan = replace(plan, vms=(*plan.vms, standby))
    assert plan.cost_usd == pytest.approx(0.204)
    assert (plan.makespan_s, plan.slack_s) == (40, 160)
    assert violations(plan, ENVIRONMENT) == []


def test_durations_with_checkpoints_and_in_baseline_mode() -> None:
    environment = model.Environment((TWO_CORES, SMALL_BURST))
    task = bag_of((10, 100)).tasks[0]
    assert environment.duration_s(task, SPOT) == pytest.approx(110)
    assert environment.duration_s(task, model.Vm(TWO_CORES, model.Market.ON_DEMAND, 1)) == 100
    # Half a vCPU takes twice as long.
    standby = model.Vm(SMALL_BURST, model.Market.ON_DEMAND, 1)
    assert environment.duration_s(task, standby, model.Mode.BASELINE) == 200


def test_the_sets_of_vms() -> None:
    environment = model.Environment((SLOW, SMALL_BURST), max_per_type_and_market=2)
    assert [vm.name for vm in environment.spot()] == ["slow spot 1", "slow spot 2"]
    assert [vm.name for vm in environment.on_demand()] == ["slow on-demand 1", "slow on-demand 2"]
    assert [vm.name for vm in environment.burstable()] == ["burst on-demand 1", "burst on-demand 2"]
    with pytest.raises(model.BagError, match="'burst' has no spot price"):
        model.Vm(SMALL_BURST, model.Market.SPOT, 1).usd_hour  # noqa: B018


@pytest.mark.parametrize(
    ("placed", "memory_mb", "found"),
    [
        (((0, 0, 0, 40), (1, 0, 39, 60)), 1000, "core 0 of slow spot 1 runs two tasks at 39 s"),
        (((0, 0, 0, 40), (1, 1, 10, 60)), 2100, "4200 MB in use at 10 s, it has 4096 MB"),
        (((0, 2, 0, 40),), 1000, "core 2, expected 0 to 1"),
        (((0, 0, 70, 101),), 1000, "ends at 101 s, expected 100 s at the latest"),
        (((0, 0, -1, 9),), 1000, "starts at -1 s"),
    ],
)
def test_an_impossible_place_is_found(
    placed: tuple[tuple[int, int, float, float], ...], memory_mb: float, found: str
) -> None:
    lines = violations(plan_of(*placed, memory_mb=memory_mb), ENVIRONMENT)
    assert len(lines) == 1
    assert found in lines[0]


def test_tasks_that_end_as_others_start_do_not_overlap() -> None:
    assert violations(plan_of((0, 0, 0, 40), (1, 0, 40, 60), memory_mb=2100), ENVIRONMENT) == []


def test_a_task_that_is_missing_or_runs_for_the_wrong_time_is_found() -> None:
    plan = plan_of((0, 0, 0, 40), (1, 1, 0, 30))
    (vm,) = plan.vms
    missing = replace(plan, vms=(replace(vm, tasks=vm.tasks[:1]),))
    assert violations(missing, ENVIRONMENT) == ["task 1 runs 0 times, expected once"]
    short = replace(plan, vms=(replace(vm, tasks=(vm.tasks[0], replace(vm.tasks[1], end_s=29))),))
    assert violations(short, ENVIRONMENT) == ["task 1 on slow spot 1: runs 29 s, expected 30 s"]
    with pytest.raises(model.BagError, match="cannot be carried out: task 1 runs 0 times"):
        require_possible(missing, ENVIRONMENT)


def test_too_many_vms_are_found() -> None:
    plan = plan_of((0, 0, 0, 40))
    idle = [PlannedVm(model.Vm(SMALL_BURST, model.Market.ON_DEMAND, number), ()) for number in (1, 2)]
    crowded = replace(plan, vms=(*plan.vms, *idle))
    few = replace(ENVIRONMENT, max_per_type_and_market=1)
    assert violations(crowded, few) == ["2 on-demand VMs of type burst, at most 1 may run"]
    few = replace(ENVIRONMENT, max_on_demand=1)
    assert violations(crowded, few) == ["2 on-demand VMs, at most 1 may run"]
    twice = replace(plan, vms=(*plan.vms, idle[0], idle[0]))
    assert violations(twice, ENVIRONMENT) == ["burst on-demand 1 is rented 2 times"]
