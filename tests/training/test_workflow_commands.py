"""`spotweave plan workflow` and `split`: files, tables, pictures, and one line for a mistake."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from spotweave.cli import app
from tests.envs.test_workflow_families import SINCE_1_5
from tests.workflow_cases import GIS, changed

EXAMPLES = Path(__file__).parents[2] / "examples" / "workflows"


def run(*args: object) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of a command."""
    result = CliRunner().invoke(app, [str(arg) for arg in args])
    return result.exit_code, result.stdout, result.stderr


def test_the_example_is_planned_as_file_table_and_picture(tmp_path: Path) -> None:
    out, picture = tmp_path / "plan.json", tmp_path / "plan.png"
    code, said, _ = run("plan", "workflow", EXAMPLES / "gis.yaml", "-o", out, "--picture", picture)
    assert code == 0
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
    code, said, _ = run("plan", "split", EXAMPLES / "wordcount.yaml", "--clusters", 3, "-o", divided)
    assert code == 0
    assert "count-collect" in said
    assert run("plan", "workflow", divided, "--planner", "heft", "-o", out)[0] == 0
    # 261 tasks of 7.1 s on 6 executors and 34 s of shuffle: 342.85 s; 20.02 s of moving 2 MB; 49 s
    assert json.loads(out.read_text())["finish_s"] == pytest.approx(342.85 + 20.02 + 49)


def test_an_instance_is_planned_on_the_clusters_of_another_file(tmp_path: Path) -> None:
    instance, out = tmp_path / "instance.json", tmp_path / "plan.json"
    instance.write_text(json.dumps(SINCE_1_5))
    code, _, said = run("plan", "workflow", instance, "-o", out)
    assert code == 2
    assert "has no clusters: give --clusters FILE" in said
    assert run("plan", "workflow", instance, "--clusters", EXAMPLES / "gis.yaml", "-o", out)[0] == 0
    # a 5 s, then b and c beside each other (3 and 4 s), then d 1 s; moving a file takes 20 s
    assert json.loads(out.read_text())["finish_s"] == 10


def test_a_late_plan_says_so(tmp_path: Path) -> None:
    file = tmp_path / "late.json"
    file.write_text(json.dumps(changed("deadline_s", 10)))
    code, said, _ = run("plan", "workflow", file, "-o", tmp_path / "plan.json")
    assert code == 0
    assert "s after the deadline 10 s" in said


@pytest.mark.parametrize(
    ("content", "options", "said"),
    [
        (json.dumps(GIS), ["--planner", "best"], "there is no planner 'best': use greedy, annealing"),
        (json.dumps(GIS), ["--seed", "-1"], "the seed is -1, expected a whole number >= 0"),
        (
            json.dumps(changed("files.sums-1.gb", -1)),
            [],
            "files.sums-1.gb: input should be greater",
        ),
        ("{", [], "is not YAML"),
        ("a: 1\na: 2", [], "the key 'a' is given twice (line 2)"),
        ("- 1", [], "the whole: input should be an object, got [1]"),
    ],
)
def test_a_mistake_is_one_line(tmp_path: Path, content: str, options: list[str], said: str) -> None:
    file = tmp_path / "workflow.yaml"
    file.write_text(content)
    code, _, error = run("plan", "workflow", file, "-o", tmp_path / "plan.json", *options)
    assert code == 2
    assert said in error
    assert error.startswith("error: ")
    assert error.count("\n") == 1
    assert not (tmp_path / "plan.json").exists()


def test_a_missing_file_and_bad_options_of_split_are_one_line(tmp_path: Path) -> None:
    code, _, error = run("plan", "workflow", tmp_path / "none.yaml")
    assert (code, "cannot read" in error) == (2, True)
    for option, value in (("--clusters", 0), ("--block-mb", 0), ("--most-blocks", -1)):
        code, _, error = run(
            "plan", "split", EXAMPLES / "wordcount.yaml", option, value, "-o", tmp_path / "s.json"
        )
        assert code == 2
        assert f"{option} is {value}, expected" in error
