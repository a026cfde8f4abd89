"""`spotweave plan workflow` and `split`: files, tables, pictures, and one line for a mistake."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.envs.test_workflow_families import SINCE_1_5
from tests.training.federated.commands import mistake, printed
from tests.workflow_cases import GIS, changed

EXAMPLES = Path(__file__).parents[2] / "examples" / "workflows"


def test_the_example_is_planned_as_file_table_and_picture(tmp_path: Path) -> None:
    out, picture = tmp_path / "plan.json", tmp_path / "plan.png"
    said = printed("plan", "workflow", EXAMPLES / "gis.yaml", "-o", out, "--picture", picture)
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
    split = ("plan", "split", EXAMPLES / "wordcount.yaml", "--clusters", 3, "-o", divided)
    assert "count-collect" in printed(*split)
    printed("plan", "workflow", divided, "--planner", "heft", "-o", out)
    # 261 tasks of 7.1 s on 6 executors and 34 s of shuffle: 342.85 s; 20.02 s of moving 2 MB; 49 s
    assert json.loads(out.read_text())["finish_s"] == pytest.approx(342.85 + 20.02 + 49)


def test_an_instance_is_planned_on_the_clusters_of_another_file(tmp_path: Path) -> None:
    instance, out = tmp_path / "instance.json", tmp_path / "plan.json"
    instance.write_text(json.dumps(SINCE_1_5))
    asked = ("plan", "workflow", instance, "-o", out)
    assert "has no clusters: give --clusters FILE" in mistake(*asked)
    printed(*asked, "--clusters", EXAMPLES / "gis.yaml")
    # a 5 s, then b and c beside each other (3 and 4 s), then d 1 s; moving a file takes 20 s
    assert json.loads(out.read_text())["finish_s"] == 10


def test_a_late_plan_says_so(tmp_path: Path) -> None:
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
def test_a_mistake_is_one_line(tmp_path: Path, content: str, options: list[str], said: str) -> None:
    file = tmp_path / "workflow.yaml"
    file.write_text(content)
    assert said in mistake("plan", "workflow", file, "-o", tmp_path / "plan.json", *options)
    assert not (tmp_path / "plan.json").exists()


@pytest.mark.parametrize(("option", "value"), [("--clusters", 0), ("--block-mb", 0), ("--most-blocks", -1)])
def test_a_bad_option_of_split_is_one_line(option: str, value: int, tmp_path: Path) -> None:
    asked = ("plan", "split", EXAMPLES / "wordcount.yaml", "-o", tmp_path / "s.json")
    assert f"{option} is {value}, expected" in mistake(*asked, option, value)
