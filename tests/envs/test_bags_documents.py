"""job.json, env.json and map.json: the files of Figure 4.5, and one clear line for every mistake."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from envs.simulation.bags.cases import TABLE_7_2, published_job, uniform_job
from envs.simulation.bags.documents import (
    bag_document,
    environment_document,
    plan_document,
    read_environment,
    read_job,
    read_map,
)
from envs.simulation.bags.model import (
    SPEEDS,
    TABLE_7_1,
    TABLE_9_1,
    TABLE_9_7,
    BagError,
    Environment,
    Market,
    Vm,
    VmType,
)
from envs.simulation.bags.plan import Plan, PlannedTask, PlannedVm

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
PRICED = copy.deepcopy(ENV)
PRICED["instances"]["t3.xlarge"]["prices"] = {"on-demand": 0.1664}


def put(document: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """A copy with one field changed; `value` KeyError takes it away. The path is split at "/"."""
    changed = copy.deepcopy(document)
    *parents, last = path.split("/")
    entry = changed
    for key in parents:
        entry = entry[key]
    if value is KeyError:
        del entry[last]
    else:
        entry[last] = value
    return changed


def write(path: Path, document: Any) -> Path:
    path.write_text(document if isinstance(document, str) else json.dumps(document), encoding="utf-8")
    return path


def test_the_files_of_figure_4_5(tmp_path: Path) -> None:
    environment = read_environment(write(tmp_path / "env.json", PRICED))
    c3, t3 = environment.types
    # The prices of c3.large are those of Table 9.1.
    assert c3 == VmType("c3.large", 2, 3.75, 0.105, 0.0299)
    assert t3 == VmType("t3.xlarge", 4, 16.0, 0.1664, None, True, 96.0, 0.3)
    bag = read_job(write(tmp_path / "job.json", JOB), environment)
    assert (bag.id, bag.name, bag.description) == (10, "Test", "A synthetic job")
    assert [task.name for task in bag.tasks] == ["0", "1", "2"]
    assert bag.tasks[2].command == "sh exec.sh 400"
    assert bag.tasks[2].memory_mb == 10.060959
    assert bag.tasks[2].runtime_s == {"c3.large": 167.0, "t3.xlarge": 119.0}


def test_files_are_read_back_as_they_were_written(tmp_path: Path) -> None:
    for table in (TABLE_7_1, TABLE_9_1, TABLE_9_7):
        file = write(tmp_path / "env.json", environment_document(Environment(table)))
        assert read_environment(file).types == table
    environment = Environment(TABLE_9_1)
    bag = published_job("J60", TABLE_9_1)
    assert read_job(write(tmp_path / "job.json", bag_document(bag)), environment) == bag
    first = PlannedTask(bag.tasks[0], 1, 0.0, bag.tasks[0].runtime_s["c3.large"] * 1.1, 131.5)
    one = Plan(
        type(bag)(1, "one", "", bag.tasks[:1]),
        (PlannedVm(Vm(TABLE_9_1[0], Market.SPOT, 3), (first,)),),
        2700.0,
        1900.0,
        900.0,
    )
    document = plan_document(one, "hads")
    assert document["cost_usd"] == one.cost_usd
    assert read_map(write(tmp_path / "map.json", document), one.bag, environment) == one
    # An edited map is checked again.
    document["vms"][0]["tasks"][0]["end_s"] += 1
    with pytest.raises(BagError, match=r"map.json: the plan cannot be carried out: task 0 .* runs"):
        read_map(write(tmp_path / "map.json", document), one.bag, environment)
    with pytest.raises(BagError, match="job_id is 1, expected 7"):
        read_map(tmp_path / "map.json", type(bag)(7, "one", "", bag.tasks[:1]), environment)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ("{", "env.json is no JSON"),
        ('{"instances": {}, "instances": {}}', "'instances' is given twice"),
        ([], r"the environment is \[\], expected"),
        ({"instances": {}}, r"instances is \{\}, expected at least one entry"),
        ({}, "the environment lacks 'instances'"),
        (put(PRICED, "more", 1), "unknown key 'more': expected instances"),
        (ENV, 'instances.t3.xlarge.prices lacks "on-demand"'),
        (put(PRICED, "instances/c3.large/vcpu", 0), "c3.large.vcpu is 0, expected a whole number >= 1"),
        (put(PRICED, "instances/c3.large/vcpu", True), "vcpu is True"),
        (put(PRICED, "instances/c3.large/memory", -1), "memory is -1, expected a number > 0"),
        (put(PRICED, "instances/c3.large/memory", 10**400), "memory is 1000"),
        (put(PRICED, "instances/c3.large/markets/spot", "maybe"), "spot is 'maybe', expected one of yes, no"),
        (put(PRICED, "instances/c3.large/markets/spot", KeyError), "markets lacks 'spot'"),
        (put(PRICED, "instances/t3.xlarge/burstable/baseline", 0), "baseline is 0, expected a number > 0"),
        (put(PRICED, "instances/t3.xlarge/burstable/baseline", 101), "baseline is 101, expected percent"),
        (put(PRICED, "instances/t3.xlarge/prices/on-demand", 0), "prices.on-demand is 0, expected"),
    ],
)
def test_a_mistake_in_env_json_is_one_line(tmp_path: Path, document: Any, message: str) -> None:
    with pytest.raises(BagError, match=message) as caught:
        read_environment(write(tmp_path / "env.json", document))
    assert str(tmp_path / "env.json") in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ("[1, 2", "job.json is no JSON"),
        (put(JOB, "tasks", {}), r"tasks is \{\}, expected at least one entry"),
        (put(JOB, "tasks", KeyError), "the job lacks 'tasks'"),
        (put(JOB, "job_id", "10"), "job_id is '10', expected a whole number >= 0"),
        (
            put(JOB, "tasks/1/runtime/c3.large", -1.0),
            "tasks.1.runtime.c3.large is -1.0, expected a number > 0",
        ),
        (put(JOB, "tasks/1/runtime/c3.large", float("nan")), "c3.large is nan, expected a number > 0"),
        (put(JOB, "tasks/1/runtime/c3.large", float("inf")), "c3.large is inf"),
        (put(JOB, "tasks/1/runtime/c3.large", KeyError), "tasks.1.runtime lacks 'c3.large'"),
        (
            put(JOB, "tasks/1/runtime/c9.huge", 3.0),
            "tasks.1.runtime has the unknown key 'c9.huge': expected c3.large, t3.xlarge",
        ),
        # 3.75 GB are 3840 MB; the burstable VM has more, but takes only what others hand over.
        (put(JOB, "tasks/2/memory", 3840.5), "tasks.2.memory is 3840.5 MB, expected at most 3840 MB"),
        (put(JOB, "tasks/2/memory", -0.5), "tasks.2.memory is -0.5, expected a number >= 0"),
        (put(JOB, "tasks/2/command", 7), "tasks.2.command is 7, expected text"),
    ],
)
def test_a_mistake_in_job_json_is_one_line(tmp_path: Path, document: Any, message: str) -> None:
    environment = read_environment(write(tmp_path / "env.json", PRICED))
    with pytest.raises(BagError, match=message) as caught:
        read_job(write(tmp_path / "job.json", document), environment)
    assert str(tmp_path / "job.json") in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(BagError, match=r"cannot read .*none\.json: No such file or directory"):
        read_environment(tmp_path / "none.json")


@pytest.mark.parametrize("name", TABLE_7_2)
def test_a_published_job_keeps_table_7_2(name: str) -> None:
    profile = TABLE_7_2[name]
    bag = published_job(name, TABLE_7_1, seed=3)
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
    assert published_job(name, TABLE_7_1, seed=3) == bag
    assert published_job(name, TABLE_7_1, seed=4) != bag
    # 40.73 Gflops on two cores against 22.09.
    assert bag.tasks[0].runtime_s["c4.large"] == pytest.approx(runtime_s[0] * 22.09 / 40.73)


def test_jobs_need_published_speeds() -> None:
    bag = uniform_job(30, 5, 15, TABLE_9_1)
    assert {task.runtime_s["c3.large"] for task in bag.tasks} <= set(map(float, range(5, 16)))
    assert SPEEDS["t3.large"] == pytest.approx(167 / 119)
    with pytest.raises(BagError, match=r"the speed of 'c5\.xlarge' is not published"):
        uniform_job(3, 5, 15, TABLE_9_7[2:3])
    with pytest.raises(BagError, match="there is no job 'J61': use J60, J80, J100, ED200"):
        published_job("J61", TABLE_7_1)
