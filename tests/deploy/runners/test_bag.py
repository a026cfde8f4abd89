"""The runner of bags against real node agents."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spotweave.deploy.model.jobs import JobSpec, TaskKey
from spotweave.deploy.model.tasks import Assignment, Phase, TaskReport
from spotweave.deploy.runners.bag.process import PLAN, Plan
from spotweave.deploy.runners.bag.runner import BagRunner
from spotweave.deploy.runners.bag.task import BagSettings
from spotweave.deploy.runners.base import RunnerError
from tests.deploy.node.agents import AgentProcess, agents, wait_until
from tests.deploy.runners.patience import Asked

pytestmark = [pytest.mark.real]


KEY = TaskKey("sums-1", "one")
# Counts to 5, a step each time the file `go` beside the job lets it; what it has counted is its checkpoint.
COUNT = """
import os, pathlib, sys, time
state = pathlib.Path(os.environ["SPOTWEAVE_CHECKPOINT_DIR"]) / "count"
count = int(state.read_text()) if state.exists() else 0
print("begins with", count, flush=True)
while count < 5:
    while int(pathlib.Path(sys.argv[1]).read_text()) <= count:
        time.sleep(0.02)
    count += 1
    pathlib.Path("here").write_text(str(count))
print("counted", count, "on attempt", os.environ["SPOTWEAVE_ATTEMPT"])
"""


def spec(command: list[str], checkpoint: list[str] | None = None, **changes: Any) -> JobSpec:
    task = {"name": "one", "command": command, "minutes": 1}
    work = {"kind": "bag", "tasks": [task], "checkpoint": checkpoint}
    return JobSpec.model_validate_json(json.dumps({"name": "sums", "work": work, **changes}))


class Story(Asked[BagRunner]):
    """One task, its job's folder and the runner of the moment."""

    def __init__(self, folder: Path, job: JobSpec) -> None:
        self.folder, self.job = folder, job
        self.workdir = folder / "job"
        self.workdir.mkdir()
        self.restart()

    def restart(self, **settings: Any) -> None:
        self.runner = BagRunner(BagSettings(state=self.folder / "state", reports_within_s=30.0, **settings))
        self.runner.start()

    def on(self, agent: AgentProcess, attempt: int = 1, **node: Any) -> Assignment:
        return Assignment(KEY, attempt, self.job, (replace(agent.node(), **node),), str(self.workdir))

    def start(self, agent: AgentProcess, attempt: int = 1, **node: Any) -> Assignment:
        return self.ensure(self.on(agent, attempt, **node))

    def until(self, assignment: Assignment, true: Callable[[TaskReport], bool]) -> TaskReport:
        told: list[TaskReport] = []

        def look() -> bool:
            told.append(self.report(assignment))
            return true(told[-1])

        wait_until(look)
        return told[-1]


def test_a_command_runs_once_to_its_end_with_the_jobs_files(tmp_path: Path) -> None:
    story = Story(tmp_path, spec(["sh", "run.sh", "data", "$HOME"], env={"GREETING": "hello"}))
    (story.workdir / "run.sh").write_text('cat "$1/words"; echo "$GREETING" "$2" "$SPOTWEAVE_TASK"\n')
    (story.workdir / "data").mkdir()
    (story.workdir / "data" / "words").write_text("a b c\n")
    (story.workdir / "other").write_text("not named")
    with AgentProcess(tmp_path) as agent:
        at = story.start(agent)
        story.start(agent)  # again: the same attempt
        report = story.ended(at)
        assert (report.phase, report.progress, report.saved) == (Phase.SUCCEEDED, 1.0, 1.0)
        # No shell reads the words of the command.
        assert (story.workdir / "logs" / "one-1.log").read_text() == "a b c\nhello $HOME one\n"
        assert len(agent.client.status().processes) == 1
        work = agent.workdir / "bag" / "sums-1.one.1" / "work"
        assert sorted(os.listdir(work)) == ["data", "run.sh"]
        # A later attempt does not do it again.
        assert story.report(story.start(agent, 2)).phase is Phase.SUCCEEDED
        assert len(agent.client.status().processes) == 1
        story.forget("sums-1")
    assert not (tmp_path / "state" / "jobs" / "sums-1").exists()


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["sh", "-c", "echo no such number >&2; exit 3"], "sh ended with exit code 3: no such number"),
        (["no-such"], "no-such ended with exit code 127: cannot start no-such: No such"),
        (["sh", "-c", "kill -9 $$"], "sh ended with exit code 137"),
    ],
)
def test_what_fails_is_told_in_one_line(tmp_path: Path, command: list[str], message: str) -> None:
    story = Story(tmp_path, spec(command))
    with AgentProcess(tmp_path) as agent:
        at = story.start(agent)
        report = story.ended(at)
        assert report.phase is Phase.FAILED
        assert report.message.startswith(f"task one: {message}")
        assert "\n" not in report.message


def test_a_log_is_read_from_its_node_and_after_that_where_its_end_was_kept(tmp_path: Path) -> None:
    size = 3_000_000
    story = Story(tmp_path, spec(["sh", "-c", f"head -c {size} /dev/zero | tr '\\0' x; echo; echo end"]))
    with AgentProcess(tmp_path) as agent:
        at = story.start(agent)
        story.ended(at)
        assert story.runner.log(at, 0, 10) == (b"x" * 10, 10)
        assert story.runner.log(at, -4, 1 << 20) == (b"end\n", size + 5)
        assert story.runner.log(at, size, 1 << 20) == (b"\nend\n", size + 5)
        (story.workdir / "logs/one-1.log").rename(tmp_path / "kept")
        agent.destroy()
        with pytest.raises(RunnerError, match="does not answer"):
            story.runner.log(at, 0, 10)
    gone = replace(at, nodes=())
    assert story.runner.log(gone, 0, 10) == (b"", 0)
    (story.workdir / "logs/one-1.log").symlink_to(tmp_path / "kept")
    with pytest.raises(RunnerError, match="has put something else there"):
        story.runner.log(gone, 0, 10)
    (story.workdir / "logs/one-1.log").unlink()
    (tmp_path / "kept").rename(story.workdir / "logs/one-1.log")
    assert story.runner.log(gone, -4, 1 << 20) == (b"end\n", 1 << 20)


def test_an_interrupted_task_goes_on_from_its_checkpoint_under_a_new_scheduler(tmp_path: Path) -> None:
    go = tmp_path / "go"
    go.write_text("2")
    copy = ["sh", "-c", 'cp here "$SPOTWEAVE_CHECKPOINT_DIR/count" && kill -0 "$SPOTWEAVE_PID"']
    story = Story(tmp_path, spec(["python", "count.py", str(go)], copy))
    (story.workdir / "count.py").write_text(COUNT)
    with agents(tmp_path, 2) as (first, second):
        at = story.start(first)
        here = first.workdir / "bag" / "sums-1.one.1" / "work" / "here"
        wait_until(lambda: here.exists() and here.read_text() == "2")
        story.runner.drain(at, [first.instance_id], 30.0)
        report = story.until(at, lambda report: report.saved > 0)
        # It runs on.
        assert report.phase is Phase.RUNNING
        assert report.details == {"checkpoints": "1"}
        assert 0 < report.saved <= report.progress < 1
        first.destroy()
        story.restart()
        # A node that does not answer decides nothing: the scheduler knows what has ended.
        assert story.report(at).phase in (Phase.STARTING, Phase.RUNNING)
        go.write_text("9")
        later = story.start(second, 2)
        assert story.ended(later).phase is Phase.SUCCEEDED
        log = (story.workdir / "logs" / "one-2.log").read_text().splitlines()
        assert log == ["begins with 2", "counted 5 on attempt 2"]
        objects = tmp_path / "state" / "checkpoints" / "sums-1" / "one"
        assert os.listdir(objects) == ["000001-000001.tar"]
        story.forget("sums-1")
        assert os.listdir(objects) == []


def test_every_interval_a_checkpoint_and_a_failing_one_is_told_and_does_not_count(tmp_path: Path) -> None:
    flag = tmp_path / "broken"
    check = ["sh", "-c", f'test ! -e {flag} && echo saved > "$SPOTWEAVE_CHECKPOINT_DIR/x"']
    story = Story(tmp_path, spec(["sleep", "600"], check, profile={"checkpoint_interval_s": 1}))
    with AgentProcess(tmp_path) as agent:
        # Twice as fast as the reference: each second of it is two of the expected 60.
        at = story.start(agent, speed=2.0)
        report = story.until(at, lambda report: report.details["checkpoints"] == "2")
        # The second was begun after 2 s at the earliest: 4 s of work of 60.
        assert report.saved >= 4 / 60
        flag.touch()
        failing = story.until(at, lambda report: bool(report.message))
        assert failing.message == "the checkpoint command failed: it ended with exit code 1"
        assert failing.phase is Phase.RUNNING
        story.stop(at)
        assert [one.state for one in agent.client.status().processes] == ["exited"]
        stopped = story.report(at)
        assert (stopped.phase, stopped.message) == (Phase.LOST, "it was stopped")
        assert stopped.saved >= report.saved


def test_a_checkpoint_that_is_too_large_is_not_kept_and_said_so(tmp_path: Path) -> None:
    check = ["sh", "-c", 'head -c 3000000 /dev/zero > "$SPOTWEAVE_CHECKPOINT_DIR/x"']
    story = Story(tmp_path, spec(["sleep", "600"], check))
    story.restart(checkpoint_most_bytes=1 << 20)
    with AgentProcess(tmp_path) as agent:
        at = story.start(agent)
        story.until(at, lambda report: report.phase is Phase.RUNNING)
        wait_until(lambda: (agent.workdir / "bag" / "sums-1.one.1" / "saved").exists())
        story.runner.drain(at, [agent.instance_id], 30.0)
        report = story.until(at, lambda report: bool(report.message))
        assert report.message == "checkpoint 1 is not kept: it has 3 MiB, at most 1 are kept"
        assert report.saved == 0.0


def test_a_notice_while_the_files_are_unpacked_takes_a_checkpoint(tmp_path: Path) -> None:
    plan = Plan(command=("sleep", "1"), checkpoint=("touch", str(tmp_path / "taken")))
    (tmp_path / PLAN).write_text(plan.model_dump_json())
    script = """
import os, signal, sys
from pathlib import Path
from spotweave.deploy.runners.bag.process import TaskProcess
class Noticed(TaskProcess):
    def _unpack(self, name, to):
        super()._unpack(name, to)
        os.kill(os.getpid(), signal.SIGPWR)
sys.exit(Noticed(Path(sys.argv[1])).run())
"""
    assert subprocess.run([sys.executable, "-c", script, str(tmp_path)]).returncode == 0
    assert (tmp_path / "taken").exists()
