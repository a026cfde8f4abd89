"""Bags of tasks: what a job file may say, and one line for each mistake."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.jobfile import read_files, read_job
from deploy.model.jobs import JobSpec
from deploy.runners.bag.check import check
from deploy.yamlfile import ConfigError

TASK: dict[str, Any] = {"name": "one", "command": ["run.sh", "1"], "minutes": 2}


def job(folder: Path, tasks: list[dict[str, Any]], work: dict[str, Any] | None = None, **parts: Any) -> Path:
    path = folder / "bag.yaml"
    content = {"name": "sums", "work": {"kind": "bag", "tasks": tasks, **(work or {})}, **parts}
    path.write_text(yaml.safe_dump(content))
    return path


def test_a_task_asks_for_what_it_says_and_else_for_what_the_job_says(tmp_path: Path) -> None:
    tasks = [TASK, {**TASK, "name": "two", "vcpus": 4, "minutes": 0.5}]
    spec = read_job(job(tmp_path, tasks, resources={"vcpus": 2, "memory_gib": 3.0}))
    assert spec.tasks == ("one", "two")
    found = [(spec.resources_of(name).vcpus, spec.resources_of(name).memory_gib) for name in spec.tasks]
    assert found == [(2, 3.0), (4, 3.0)]
    assert spec.work.kind == "bag"
    assert [spec.work.standard_s_of(name) for name in spec.tasks] == [120.0, 30.0]


def test_the_files_that_commands_name_go_with_the_job(tmp_path: Path) -> None:
    for name in ("run.sh", "save.sh", "other.sh"):
        (tmp_path / name).write_text(name)
    spec = read_job(job(tmp_path, [TASK], {"checkpoint": ["sh", "save.sh"]}))
    assert set(read_files(spec, tmp_path)) == {"run.sh", "save.sh"}


@pytest.mark.parametrize(
    ("tasks", "work", "message"),
    [
        ([], {}, "work.bag.tasks: tuple should have at least 1 item"),
        ([{**TASK, "minutes": -1}], {}, "work.bag.tasks.0.minutes: input should be greater than 0, got -1"),
        ([TASK, TASK], {}, "work.bag: two tasks are called 'one': names must differ"),
        ([{**TASK, "cores": 2}], {}, "work.bag.tasks.0.cores: extra inputs are not permitted, got 2"),
        ([{**TASK, "command": "run.sh 1"}], {}, "work.bag.tasks.0.command: input should be a valid"),
        ([{**TASK, "command": [""]}], {}, "work.bag.tasks.0.command: its first word is empty"),
        ([{**TASK, "vcpus": 0}], {}, "work.bag.tasks.0.vcpus: input should be greater than 0, got 0"),
        ([{"name": "one", "command": ["a"]}], {}, "work.bag.tasks.0.minutes: field required"),
        ([TASK], {"deadline_s": -5}, "work.bag.deadline_s: input should be greater than or equal to 0.01"),
        ([TASK], {"checkpoint": []}, "work.bag.checkpoint: tuple should have at least 1 item"),
        ([{**TASK, "name": "../x"}], {}, "work.bag.tasks.0.name: string should match pattern"),
        ([{**TASK, "command": ["a\0"]}], {}, "work.bag.tasks.0.command.0: it holds a zero byte"),
    ],
)
def test_a_mistake_is_one_line_with_file_key_and_value(
    tmp_path: Path, tasks: list[dict[str, Any]], work: dict[str, Any], message: str
) -> None:
    path = job(tmp_path, tasks, work)
    with pytest.raises(ConfigError) as refused:
        read_job(path)
    assert str(refused.value).startswith(f"{path}: {message}")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"resources": {"instances": 2}}, "resources.instances is 2: each task of a bag runs on one"),
        ({"env": {"SPOTWEAVE_X": "1"}}, "env has 'SPOTWEAVE_X'"),
        (
            {"profile": {"checkpoint_interval_s": 60}},
            "profile.checkpoint_interval_s is 60, and work.checkpoint names no command",
        ),
    ],
)
def test_what_cannot_run_is_refused_before_anything_is_rented(
    tmp_path: Path, parts: dict[str, Any], message: str
) -> None:
    spec: JobSpec = read_job(job(tmp_path, [TASK], **parts))
    with pytest.raises(ValueError, match=message.replace("(", r"\(")):
        check(spec)
