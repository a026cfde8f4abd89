"""`spotweave plan` of bags and workflows, `simulate bag`: files, tables, pictures, one line per mistake."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib.patches import Rectangle

from spotweave.agents.bags.cost import BagCost
from spotweave.agents.bags.planners import PLANNERS, plan_bag
from spotweave.envs.documents.bags import read_environment, read_job, read_map
from spotweave.envs.simulation.bags.cases import SCENARIOS
from spotweave.envs.simulation.bags.fleet import Outcome
from spotweave.envs.simulation.bags.rented import VmState
from spotweave.training.bags import OnePlan, execute, plan_figure, play
from spotweave.training.studies.bags.chapter_7 import ENVIRONMENT, starting_plan
from tests.envs.test_workflow_families import SINCE_1_5
from tests.training.federated.commands import mistake, printed, table
from tests.workflow_cases import GIS, changed

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES, WORKFLOWS = ROOT / "examples" / "bags", ROOT / "examples" / "workflows"
EXAMPLE_JOB, EXAMPLE_ENVIRONMENT = str(EXAMPLES / "job.json"), str(EXAMPLES / "env.json")


@pytest.mark.parametrize("planner", [name for name in PLANNERS if name != "exact"])
def test_the_example_is_planned(planner: str, tmp_path: Path) -> None:
    out = tmp_path / "map.json"
    options = ("--planner", planner, "--deadline", 2700, "-o", out)
    said = printed("plan", "bag", EXAMPLE_JOB, EXAMPLE_ENVIRONMENT, *options)
    environment = read_environment(EXAMPLES / "env.json")
    bag = read_job(EXAMPLES / "job.json", environment)
    found = read_map(out, bag, environment)
    assert found == plan_bag(planner, bag, environment, 2700)
    for planned in found.vms:
        assert f"{planned.vm.name} " in said
    assert f"{found.cost_usd:.4f} USD, makespan {found.makespan_s:.1f} s" in said
    assert f"slack {found.slack_s:.1f} s to the deadline 2700 s" in said


def test_the_exact_planner_by_command(tmp_path: Path) -> None:
    document = json.loads(Path(EXAMPLE_JOB).read_text(encoding="utf-8"))
    document["tasks"] = {
        name: document["tasks"]["0"] | {"runtime": dict.fromkeys(document["tasks"]["0"]["runtime"], 10.0)}
        for name in "01"
    }
    job = tmp_path / "job.json"
    job.write_text(json.dumps(document), encoding="utf-8")
    out, picture = tmp_path / "map.json", tmp_path / "map.png"
    options = ("--planner", "exact", "--deadline", 300, "-o", out, "--picture", picture)
    printed("plan", "bag", job, EXAMPLE_ENVIRONMENT, *options)
    # Both at once on the cheapest VM, 10 s and a tenth for checkpoints: 11 s at 0.0299 USD/hour.
    found = json.loads(out.read_text(encoding="utf-8"))
    assert [vm["type"] for vm in found["vms"]] == ["c3.large"]
    assert found["makespan_s"] == pytest.approx(11)
    assert found["cost_usd"] == pytest.approx(11 * 0.0299 / 3600)
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--deadline", "100"], "the deadline 100 s is impossible for hads: no VM is left that ends task"),
        (["--deadline", "-5"], "the deadline is -5.0, expected a number of seconds > 0"),
        (["--deadline", "2700", "--planner", "best"], "there is no planner 'best': use hads, burst-hads"),
        (["--deadline", "2700", "-o", "/nowhere/map.json"], "cannot write /nowhere/map.json"),
    ],
)
def test_a_refusal_is_one_line_and_leaves_no_map(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert message in mistake("plan", "bag", EXAMPLE_JOB, EXAMPLE_ENVIRONMENT, *arguments)
    assert list(tmp_path.iterdir()) == []


def test_a_mistake_in_a_file_is_one_line(tmp_path: Path) -> None:
    job = tmp_path / "job.json"
    shutil.copy(EXAMPLE_JOB, job)
    job.write_text(job.read_text(encoding="utf-8").replace('"c3.large"', '"c3.lerge"', 1), encoding="utf-8")
    assert mistake("plan", "bag", job, EXAMPLE_ENVIRONMENT, "--deadline", 2700) == (
        f"error: {job}: tasks.0.runtime has c3.lerge, c4.large, c3.xlarge, t3.large: "
        "expected seconds on each of c3.large, c4.large, c3.xlarge, t3.large\n"
    )


def test_the_picture_has_a_bar_for_each_task_and_lines_at_its_limits() -> None:
    environment = read_environment(EXAMPLES / "env.json")
    bag = read_job(EXAMPLES / "job.json", environment)
    plan = plan_bag("hads", bag, environment, 2700)
    (axis,) = plan_figure(plan, "J60").axes
    bars = [bar for bar in axis.patches if isinstance(bar, Rectangle)]
    spans = {(round(bar.get_x(), 6), round(bar.get_x() + bar.get_width(), 6)) for bar in bars}
    assert len(bars) == 60
    assert spans == {(round(p.start_s, 6), round(p.end_s, 6)) for vm in plan.vms for p in vm.tasks}
    assert [np.asarray(line.get_xdata())[0] for line in axis.lines] == [plan.d_spot_s, 2700]
    assert [label.get_text() for label in axis.get_yticklabels()] == [vm.vm.name for vm in plan.vms]
    # Limits far behind the last task are told in words.
    (axis,) = plan_figure(plan_bag("ils", bag, environment, 2700), "J60").axes
    assert list(axis.lines) == []
    assert "deadline 2700 s: further right" in axis.get_title()


# `spotweave simulate bag`: its table, its picture, and one line with exit code 2 for every mistake.


TYPES = {
    name: {
        "vcpu": 1,
        "memory": 1.0,
        "markets": {"on-demand": "yes", "spot": "yes"},
        "burstable": {"burstable": "no", "cpu_credit_rate": 0, "baseline": 0},
        "prices": {"on-demand": 0.36, "spot": 0.036},
    }
    for name in ("one", "other")
}
JOB = {
    "job_id": 7,
    "job_name": "two",
    "description": "200 s and 100 s",
    "tasks": {
        str(number): {"command": "run", "memory": 10.0, "runtime": {"one": runtime_s, "other": runtime_s}}
        for number, runtime_s in enumerate((200.0, 100.0))
    },
}


@pytest.fixture
def map_file(tmp_path: Path) -> Path:
    """Both tasks on one spot VM, beside their job.json and env.json."""
    (tmp_path / "env.json").write_text(json.dumps({"instances": TYPES}))
    (tmp_path / "job.json").write_text(json.dumps(JOB))
    job, environment, out = (tmp_path / f"{name}.json" for name in ("job", "env", "map"))
    printed("plan", "bag", job, environment, "--deadline", 2000, "-o", out)
    return out


def test_without_hibernation_the_bill_is_the_work(map_file: Path) -> None:
    rows = table(printed("simulate", "bag", map_file, "--scenario", "none", "--seeds", 2))
    # Checkpoints of 12.99 + 0.22 s after every 132.1 s of work: one in 200 s, none in 100 s. 313.21 s at
    # 0.00001 USD; 300 s at 0.0001 USD on demand.
    assert rows["hads"] == ["0", "of", "2", "0.0031", "313", *["0.00"] * 5]
    assert rows["burst-hads"] == rows["hads"]
    assert rows["on-demand"] == ["0", "of", "2", "0.0300", "300", *["0.00"] * 5]


def test_one_scheduler_with_ranges_and_a_picture(map_file: Path, tmp_path: Path) -> None:
    picture = tmp_path / "out.png"
    words = ("--scenario", "sc_4", "--seeds", 20, "--scheduler", "hads", "--picture", picture)
    output = printed("simulate", "bag", map_file, *words)
    assert set(table(output)) >= {"hads"}
    assert "burst-hads" not in output
    assert "0 of 20" in output
    assert "to" in table(output)["hads"]
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("--scenario", "sc_8"), "there is no scenario 'sc_8': expected one of none, sc_1"),
        (
            ("--scheduler", "fifo"),
            "there is no scheduler 'fifo': expected one of hads, burst-hads, on-demand",
        ),
        (("--seeds", "0"), "seeds is 0, expected at least 1"),
        (("--job", "missing.json"), "cannot read missing.json: No such file or directory"),
    ],
)
def test_a_mistake_is_one_line(map_file: Path, words: tuple[str, ...], line: str) -> None:
    assert line in mistake("simulate", "bag", map_file, *words)


# Policies that carry out bags: in the worlds of the schedulers, in the command, and in our table.


def hibernated_s(outcome: Outcome) -> set[tuple[str, float]]:
    """(VM type, second) of the hibernations of the first 600 s."""
    return {
        (vm.vm_type.name, span.start_s)
        for vm, spans in zip(outcome.vms, outcome.states, strict=True)
        for span in spans
        if span.state == VmState.HIBERNATED and span.start_s < 600
    }


def test_a_policy_meets_the_worlds_of_the_schedulers() -> None:
    plan, scenario = starting_plan("J60"), SCENARIOS["sc_2"]
    hads = execute(plan, ENVIRONMENT, scenario, "hads", 4, 180.0, first_seed=7)
    mine = play(BagCost(), OnePlan(plan, ENVIRONMENT, scenario, 180.0, 7), 4)
    common = 0
    for one, other in zip(hads, mine, strict=True):
        assert other.scheduler == "bag_cost"
        assert not other.missed
        types = {name for name, _ in hibernated_s(one)} & {name for name, _ in hibernated_s(other)}
        for name in types:
            first = [min(s for kind, s in hibernated_s(each) if kind == name) for each in (one, other)]
            assert first[0] == first[1]
            common += 1
    assert common > 3
    # Without a plan it places the tasks itself, on other VMs.
    own = play(BagCost(), OnePlan(replace(plan, vms=()), ENVIRONMENT, scenario, 180.0, 7), 1)[0]
    assert not own.missed
    assert {span.task for span in own.tasks} == set(range(60))
    assert own.vms[: len(plan.vms)] != tuple(planned.vm for planned in plan.vms)


def test_simulate_carries_out_a_map_by_a_policy(map_file: Path) -> None:
    words = ("--scenario", "none", "--seeds", 1, "--scheduler", "bag_cost")
    rows = table(printed("simulate", "bag", map_file, *words))
    # As for HADS: one VM, nothing hibernates, both tasks end on it.
    assert rows["bag_cost"][:5] == ["0", "of", "1", "0.0031", "313"]


# Workflows over several clusters.


def test_a_workflow_is_planned_as_file_table_and_picture(tmp_path: Path) -> None:
    out, picture = tmp_path / "plan.json", tmp_path / "plan.png"
    said = printed("plan", "workflow", WORKFLOWS / "gis.yaml", "-o", out, "--picture", picture)
    plan = json.loads(out.read_text())
    assert plan["planner"] == "annealing"
    # median 8 * 90 / 8 = 90 s, then mean 4 * 23 / 8 = 11.5 s and join 45 s: the sums have arrived by 79 s
    assert plan["finish_s"] == 146.5
    assert {step["step"]: step["cluster"] for step in plan["steps"]}["accumulate-1"] == "first"
    assert not {"half-1", "whole"} & {move["file"] for move in plan["moves"]}
    assert "finish 146.5 s, 33.5 s before the deadline 180 s" in said
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_what_split_writes_can_be_planned(tmp_path: Path) -> None:
    divided, out = tmp_path / "split.json", tmp_path / "plan.json"
    split = ("plan", "split", WORKFLOWS / "wordcount.yaml", "--clusters", 3, "-o", divided)
    assert "count-collect" in printed(*split)
    printed("plan", "workflow", divided, "--planner", "heft", "-o", out)
    # 261 tasks of 7.1 s on 6 executors and 34 s of shuffle: 342.85 s; 20.02 s of moving 2 MB; 49 s
    assert json.loads(out.read_text())["finish_s"] == pytest.approx(342.85 + 20.02 + 49)


def test_an_instance_is_planned_on_the_clusters_of_another_file(tmp_path: Path) -> None:
    instance, out = tmp_path / "instance.json", tmp_path / "plan.json"
    instance.write_text(json.dumps(SINCE_1_5))
    asked = ("plan", "workflow", instance, "-o", out)
    assert "has no clusters: give --clusters FILE" in mistake(*asked)
    printed(*asked, "--clusters", WORKFLOWS / "gis.yaml")
    # a 5 s, then b and c beside each other (3 and 4 s), then d 1 s; moving a file takes 20 s
    assert json.loads(out.read_text())["finish_s"] == 10


def test_a_late_plan_of_a_workflow_says_so(tmp_path: Path) -> None:
    file = tmp_path / "late.json"
    file.write_text(json.dumps(changed("deadline_s", 10)))
    said = printed("plan", "workflow", file, "-o", tmp_path / "plan.json")
    assert "s after the deadline 10 s" in said


@pytest.mark.parametrize(
    ("content", "options", "said"),
    [
        (json.dumps(GIS), ["--planner", "best"], "there is no planner 'best': use greedy, annealing"),
        (json.dumps(GIS), ["--seed", "-1"], "the seed is -1, expected a whole number >= 0"),
        (json.dumps(changed("files.sums-1.gb", -1)), [], "files.sums-1.gb: input should be greater"),
        ("- 1", [], "the whole: input should be an object, got [1]"),
    ],
)
def test_a_mistake_in_a_workflow_is_one_line(
    tmp_path: Path, content: str, options: list[str], said: str
) -> None:
    file = tmp_path / "workflow.yaml"
    file.write_text(content)
    assert said in mistake("plan", "workflow", file, "-o", tmp_path / "plan.json", *options)
    assert not (tmp_path / "plan.json").exists()


@pytest.mark.parametrize(("option", "value"), [("--clusters", 0), ("--block-mb", 0), ("--most-blocks", -1)])
def test_a_bad_option_of_split_is_one_line(option: str, value: int, tmp_path: Path) -> None:
    asked = ("plan", "split", WORKFLOWS / "wordcount.yaml", "-o", tmp_path / "s.json")
    assert f"{option} is {value}, expected" in mistake(*asked, option, value)
