"""`spotweave plan bag` from files to map, table and picture, and its refusals."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from matplotlib.patches import Rectangle
from typer.testing import CliRunner

from agents.bags.planners import PLANNERS, plan_bag
from envs.documents.bags import read_environment, read_job, read_map
from spotweave import cli
from training.bags import plan_figure

RUNNER = CliRunner()
EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "bags"
JOB, ENVIRONMENT = str(EXAMPLES / "job.json"), str(EXAMPLES / "env.json")


@pytest.mark.parametrize("planner", [name for name in PLANNERS if name != "exact"])
def test_the_example_is_planned(planner: str, tmp_path: Path) -> None:
    out, picture = tmp_path / "map.json", tmp_path / "map.png"
    arguments = ["plan", "bag", JOB, ENVIRONMENT, "--planner", planner, "--deadline", "2700"]
    result = RUNNER.invoke(cli.app, [*arguments, "-o", str(out), "--picture", str(picture)])
    assert result.exit_code == 0, result.output
    environment = read_environment(EXAMPLES / "env.json")
    bag = read_job(EXAMPLES / "job.json", environment)
    found = read_map(out, bag, environment)
    assert found == plan_bag(planner, bag, environment, 2700)
    for planned in found.vms:
        assert f"{planned.vm.name} " in result.stdout
    assert f"{found.cost_usd:.4f} USD, makespan {found.makespan_s:.1f} s" in result.stdout
    assert f"slack {found.slack_s:.1f} s to the deadline 2700 s" in result.stdout
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_the_exact_planner_by_command(tmp_path: Path) -> None:
    document = json.loads(Path(JOB).read_text(encoding="utf-8"))
    document["tasks"] = {
        name: document["tasks"]["0"] | {"runtime": dict.fromkeys(document["tasks"]["0"]["runtime"], 10.0)}
        for name in "01"
    }
    job = tmp_path / "job.json"
    job.write_text(json.dumps(document), encoding="utf-8")
    out = tmp_path / "map.json"
    arguments = [
        "plan",
        "bag",
        str(job),
        ENVIRONMENT,
        "--planner",
        "exact",
        "--deadline",
        "300",
        "-o",
        str(out),
    ]
    result = RUNNER.invoke(cli.app, arguments)
    assert result.exit_code == 0, result.output
    # Both at once on the cheapest VM, 10 s and a tenth for checkpoints: 11 s at 0.0299 USD/hour.
    found = json.loads(out.read_text(encoding="utf-8"))
    assert [vm["type"] for vm in found["vms"]] == ["c3.large"]
    assert found["makespan_s"] == pytest.approx(11)
    assert found["cost_usd"] == pytest.approx(11 * 0.0299 / 3600)


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
    result = RUNNER.invoke(cli.app, ["plan", "bag", JOB, ENVIRONMENT, *arguments])
    assert result.exit_code == 2
    assert result.stderr.startswith("error: ")
    assert message in result.stderr
    assert result.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_mistake_in_a_file_is_one_line(tmp_path: Path) -> None:
    job = tmp_path / "job.json"
    shutil.copy(JOB, job)
    job.write_text(job.read_text(encoding="utf-8").replace('"c3.large"', '"c3.lerge"', 1), encoding="utf-8")
    result = RUNNER.invoke(cli.app, ["plan", "bag", str(job), ENVIRONMENT, "--deadline", "2700"])
    assert result.exit_code == 2
    assert (
        result.stderr
        == f"error: {job}: tasks.0.runtime has c3.lerge, c4.large, c3.xlarge, t3.large: expected seconds on "
        + ("each of c3.large, c4.large, c3.xlarge, t3.large\n")
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
