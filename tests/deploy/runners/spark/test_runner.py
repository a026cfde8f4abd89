"""The runner with real node agents, real detached processes and a Spark that starts at once."""

from __future__ import annotations

import json
import os
import signal
import time
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from spotweave.deploy.model.tasks import Assignment, Phase, TaskReport
from spotweave.deploy.node import procfs
from spotweave.deploy.runners.base import RunnerError, StartingError
from spotweave.deploy.runners.detached import Limits
from spotweave.deploy.runners.spark.application import Application, Applications
from spotweave.deploy.runners.spark.cluster import process_id
from spotweave.deploy.runners.spark.runner import SparkRunner
from tests.deploy.node.agents import AgentProcess, agents, wait_until
from tests.deploy.runners.patience import SLIPS_AWAY, alive, insist
from tests.deploy.runners.spark.cases import JOB, batch, streaming
from tests.deploy.runners.spark.conftest import FOREVER, World

pytestmark = pytest.mark.real
RUNS = "open('runs', 'a').write('x')\n"
UNTIL_GO = "import os, time\nwhile not os.path.exists('go'): time.sleep(0.01)\n"


def test_a_script_that_ends_well_has_succeeded_and_ran_once(world: World) -> None:
    code = RUNS + "import os, sys, json; json.dump([dict(os.environ), sys.argv], open('seen', 'w'))"
    assignment, workdir = world.attempt(code), world.workdir.resolve()
    world.runner.check(assignment.spec, assignment.workdir)
    world.runner.ensure(assignment)
    world.runner.ensure(assignment)
    found = world.ended(assignment)
    world.runner.ensure(assignment)
    assert (found.phase, found.progress, found.saved) == (Phase.SUCCEEDED, 1.0, 1.0)
    assert world.runs() == "x"
    env, argv = json.loads((workdir / "seen").read_text())
    assert argv == [str(workdir / "app.py")]
    assert env["SPOTWEAVE_CHECKPOINT_DIR"] == str(workdir / "checkpoint")
    assert env["SPOTWEAVE_ATTEMPT"] == "1"
    assert world.worker_state(assignment) == "running"


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("raise ValueError('no such column')", "ValueError: no such column"),
        ("raise SystemExit(7)", "the script exited with 7"),
    ],
)
def test_a_users_error_is_a_failure_with_its_reason(world: World, code: str, message: str) -> None:
    assert world.outcome(world.start(code)) == (Phase.FAILED, message)


def test_an_attempt_without_nodes_is_lost(world: World, tmp_path: Path) -> None:
    with agents(tmp_path, 2) as (one, two):
        assignment = world.start(FOREVER, nodes=[one, two])
        world.master_knows(assignment, {one.address: "ALIVE", two.address: "ALIVE"})
        one.destroy()
        # The job goes on on the other node.
        world.master_knows(assignment, {one.address: "DEAD", two.address: "ALIVE"})
        assert world.report(assignment).phase is Phase.STARTING
        two.destroy()
        world.master_knows(assignment, {one.address: "DEAD", two.address: "DEAD"})
        assert world.outcome(assignment) == (
            Phase.LOST,
            f"all its nodes are gone: {one.instance_id} does not answer; {two.instance_id} does not answer",
        )
        # It cannot complete any more.
        assert world.drivers() == []


def test_silence_alone_is_not_a_loss(world: World) -> None:
    patient = SparkRunner(replace(world.settings, lost_after_s=600.0))
    try:
        assignment = world.attempt(FOREVER)
        patient.ensure(assignment)
        world.agent.kill()
        assert patient.reports([assignment])[0].phase is Phase.STARTING
    finally:
        insist(patient.shutdown)


def test_a_worker_that_cannot_start_is_lost_with_its_reason(world: World) -> None:
    (world.home.path / "broken").touch()
    phase, message = world.outcome(world.start(FOREVER))
    assert phase is Phase.LOST
    assert message.endswith("ended: Error: this worker is broken")


def test_a_script_that_fails_with_its_nodes_is_lost(world: World) -> None:
    assignment = world.start(UNTIL_GO + "raise SystemExit(1)")
    world.agent.destroy()
    (world.workdir / "go").touch()
    assert world.ended(assignment).phase is Phase.LOST


def test_a_new_runner_finds_what_runs(world: World) -> None:
    assignment = world.start(RUNS + UNTIL_GO + "raise ValueError('after the restart')")
    wait_until((world.workdir / "runs").exists)
    before = world.report(assignment)
    world.restart()
    assert world.report(assignment) == before
    world.runner.ensure(assignment)
    (world.workdir / "go").touch()
    assert world.outcome(assignment) == (Phase.FAILED, "ValueError: after the restart")
    found = world.report(assignment)
    world.restart()
    assert world.report(assignment) == found
    assert world.runs() == "x"


def test_the_earlier_attempt_is_gone_before_the_next_one_runs(world: World) -> None:
    first = world.start(FOREVER)
    pid = world.driver_pid()
    second = world.attempt(FOREVER, 2)
    # Even by a scheduler that knows nothing of the first.
    SparkRunner(world.settings).ensure(second)
    assert world.worker_state(first) == "exited"
    assert not alive(pid)
    assert world.report(first).phase is Phase.LOST
    assert world.report(second).phase is Phase.STARTING
    with pytest.raises(RunnerError, match=r"job-1\.main\.0 is older than job-1\.main\.1"):
        world.start(FOREVER, 0)


def test_work_that_was_finished_is_not_done_again(world: World) -> None:
    first = world.start(RUNS)
    # Nobody asked for a report before the scheduler decided to try again.
    wait_until((Path(world.runner._attempts.get(first).driver.folder) / "result.json").exists)
    found = world.report(world.start(RUNS, 2))
    assert (found.phase, found.message) == (Phase.SUCCEEDED, "attempt 1 had finished the work")
    assert world.runs() == "x"


def test_stopping_what_has_ended_does_not_change_how_it_ended(world: World) -> None:
    assignment = world.start("raise ValueError('mine')")
    wait_until(lambda: world.runner._attempts.get(assignment).driver.result() is not None)
    world.stop(assignment)
    assert world.report(assignment).message == "ValueError: mine"


def test_a_killed_driver_is_lost_twice_and_then_has_failed(world: World) -> None:
    outcomes = [world.outcome(world.start("import os; os.kill(os.getpid(), 9)", at)) for at in (1, 2, 3)]
    assert [phase for phase, _ in outcomes] == [Phase.LOST, Phase.LOST, Phase.FAILED]
    assert all(message.startswith("the driver was killed by signal 9") for _, message in outcomes)


@pytest.mark.parametrize("seen", [True, False])
def test_a_driver_whose_launcher_is_killed_is_lost_and_never_started_again(world: World, seen: bool) -> None:
    assignment = world.start_and_wait(RUNS + FOREVER)
    pid = world.driver_pid()
    os.kill(pid, signal.SIGKILL)
    if seen:
        world.ended(assignment)
    else:
        # Neither this scheduler nor the next one is asked for a report meanwhile.
        wait_until(lambda: not world.runner._attempts.get(assignment).driver.running())
    world.runner.ensure(assignment)
    SparkRunner(world.settings).ensure(assignment)
    assert world.driver_pid() == pid
    assert world.outcome(assignment) == (Phase.LOST, "the driver and its launcher were killed")
    assert world.runs() == "x"


def test_an_unresponsive_master_blocks_no_caller(world: World) -> None:
    silent = world.home.path / "silent"
    silent.touch()
    hurried = SparkRunner(world.settings, patience_s=0.2)
    assignment = world.attempt(RUNS)
    for ask in (hurried.start, lambda: hurried.ensure(assignment)):
        began_s = time.monotonic()
        with pytest.raises(StartingError, match="the Spark master is starting"):
            ask()
        assert time.monotonic() - began_s < 5.0
    silent.unlink()
    wait_until(lambda: hurried._master.state() == "ALIVE")
    master = world.settings.state / "master" / "process.json"
    os.kill(json.loads(master.read_bytes())["pid"], signal.SIGKILL)
    wait_until(lambda: hurried._master.state() is None)
    # A start that succeeded before the master died must not count.
    insist(lambda: hurried.ensure(assignment))
    assert hurried._master.state() == "ALIVE"
    assert world.outcome(assignment) == (Phase.SUCCEEDED, "")
    assert world.runs() == "x"


def test_a_killed_master_comes_back_where_it_was(world: World) -> None:
    assignment, master = world.start(FOREVER), world.runner._master
    url, record = master.url, world.settings.state / "master" / "process.json"
    os.kill(json.loads(record.read_bytes())["pid"], signal.SIGKILL)
    wait_until(lambda: master.state() is None)
    assert world.report(assignment).phase is Phase.STARTING
    wait_until(lambda: master.state() == "ALIVE")
    assert master.url == url


def test_a_notice_decommissions_the_worker_only_there(world: World, tmp_path: Path) -> None:
    with agents(tmp_path, 2) as (one, two):
        assignment = world.start(FOREVER, nodes=[one, two])

        def says(node: AgentProcess, word: bytes) -> bool:
            return word in node.client.log(process_id(assignment.attempt_id))

        wait_until(lambda: says(one, b"up") and says(two, b"up"))
        world.runner.drain(assignment, [one.instance_id], within_s=30.0)
        wait_until(lambda: says(one, b"decommissioned"))
        assert not says(two, b"decommissioned")
        two.kill()
        with pytest.raises(RunnerError, match="cannot be drained"):
            world.runner.drain(assignment, [two.instance_id], within_s=30.0)


def test_an_attempt_whose_nodes_are_all_drained_is_lost_once_its_tasks_have_ended(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    assignment = world.start(FOREVER)
    application = Application("url", "app-1", (world.agent.address,), 3, 4, 0)
    monkeypatch.setattr(Applications, "ask", lambda *_: application)
    world.master_knows(assignment, {world.agent.address: "DECOMMISSIONED"})
    assert world.report(assignment).phase is Phase.RUNNING
    application = replace(application, executors=())
    assert world.outcome(assignment) == (Phase.LOST, "all its nodes are drained")


def test_progress_is_kept_while_the_driver_is_silent(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    assignment = world.start(FOREVER)
    answers = iter([Application("url", "app-1", (world.agent.address,), 3, 4, 0), None])
    monkeypatch.setattr(Applications, "ask", lambda *_: next(answers))
    found = world.report(assignment)
    assert (found.phase, found.progress, found.saved) == (Phase.RUNNING, 0.75, 0.0)
    assert world.report(assignment) == found


def test_a_node_that_cannot_be_asked_keeps_the_driver_from_starting(world: World) -> None:
    assignment = world.attempt(FOREVER)
    world.agent.destroy()
    with pytest.raises(RunnerError, match=f"no Spark worker on {world.agent.instance_id}"):
        world.runner.ensure(assignment)
    assert world.report(assignment).phase is Phase.STARTING
    assert not (world.workdir / "up").exists()


def test_a_streaming_job_ends_after_its_batches_and_its_misses_are_kept(world: World) -> None:
    # Given a driver that writes batches as Spark does, and is lost after two of them,
    events = world.settings.state.resolve() / "jobs" / JOB / "events"
    code = f"""
import json, os, time
attempt = os.environ["SPOTWEAVE_ATTEMPT"]
folder = os.path.join({str(events)!r}, attempt, "eventlog_v2_app")
os.makedirs(folder)
first = 0 if attempt == "1" else 2
with open(os.path.join(folder, "events_1_app"), "w") as file:
    for batch in range(first, first + 2):
        durations = {{"addBatch": 1, "triggerExecution": 1500 if batch % 2 else 500}}
        event = "org.apache.spark.sql.streaming.StreamingQueryListener$QueryProgressEvent"
        at = f"2026-11-28T10:0{{batch}}:00.000Z"
        progress = {{"id": "q", "batchId": batch, "durationMs": durations, "timestamp": at}}
        file.write(json.dumps({{"Event": event, "progress": progress}}) + "\\n")
time.sleep(600)
"""
    first = streaming(code, world.workdir, [world.agent.node()], batches=4)
    world.runner.ensure(first)
    wait_until(lambda: world.report(first).executions_done == 2)
    found = world.report(first)
    assert (found.misses, found.last_execution_s, found.progress, found.saved) == (1, 1.5, 0.5, 0.5)
    # The third was to be triggered a period after the second, at 10:01.
    assert found.next_due_s == datetime(2026, 11, 28, 10, 1, 1, tzinfo=UTC).timestamp()
    world.stop(first)
    # when another attempt under a new scheduler goes on,
    world.restart()
    second = streaming(code, world.workdir, [world.agent.node()], attempt=2, batches=4)
    world.runner.ensure(second)
    found = world.ended(second)
    # then the job ends by itself, and nothing was forgotten.
    assert (found.phase, found.executions_done, found.misses) == (Phase.SUCCEEDED, 4, 2)
    assert world.drivers() == []


def test_secrets_are_in_no_argument_and_no_readable_file(world: World) -> None:
    world.start_and_wait()
    for process in procfs.scan():
        with suppress(OSError):
            arguments = Path(f"/proc/{process.pid}/cmdline").read_bytes()
            assert not any(secret in arguments for secret in world.secrets)
    for file in [*world.settings.state.rglob("*"), *world.workdir.rglob("*")]:
        if file.is_file() and any(secret in file.read_bytes() for secret in world.secrets):
            assert file.stat().st_mode & 0o077 == 0, file


DEAF = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
STUBBORN = f"{DEAF}{SLIPS_AWAY}open('up', 'w').close()\nwhile True: time.sleep(600)"


@pytest.mark.parametrize("over", [False, True])
def test_a_driver_that_will_not_end_ends_with_all_that_slipped_away(world: World, over: bool) -> None:
    assignment = world.start_and_wait(STUBBORN)
    if over:
        world.forget(JOB)
    else:
        with pytest.raises(RunnerError, match="still ends"):
            world.runner.stop(assignment)
        # Until it is gone nothing is decided: the next attempt must not run next to it.
        assert world.report(assignment).phase is Phase.STARTING
        world.stop(assignment)
        assert world.report(assignment).message == "it was stopped"
    (world.workdir / "alive").unlink()
    time.sleep(0.5)
    assert not (world.workdir / "alive").exists()


def test_what_is_stopped_is_no_kill_of_its_own(world: World) -> None:
    for attempt in range(1, 5):
        assignment = world.start_and_wait(FOREVER, attempt)
        # Its end is seen between two calls of stop.
        with suppress(RunnerError):
            world.runner.stop(assignment)
        assert world.outcome(assignment) == (Phase.LOST, "it was stopped")


def test_nothing_but_its_log_is_left_of_a_job_that_is_over(world: World) -> None:
    # Given a driver that makes its own folder hard to remove,
    code = (
        "import os\nat = os.environ['SPARK_LOCAL_DIRS']\nos.makedirs(at + '/a/b')\nos.chmod(at, 0)\nprint(7)"
    )
    assignment = world.start(code)
    world.ended(assignment)
    world.forget(JOB)
    world.forget(JOB)
    assert world.worker_state(assignment) == "exited"
    assert (world.workdir / "logs" / "driver-1.log").read_text() == "7\n"
    for file in world.settings.state.rglob("*"):
        if file.is_file() and not file.is_relative_to(world.settings.state / "master"):
            assert not any(secret in file.read_bytes() for secret in world.secrets), file
    assert list((world.settings.state / "jobs").iterdir()) == []


def test_a_driver_over_a_limit_has_failed_with_its_reason(world: World) -> None:
    world.runner = SparkRunner(replace(world.settings, limits=Limits(processes=20)))
    try:
        code = "import subprocess as s\nall = [s.Popen(['sleep', '9']) for _ in range(30)]\nall[0].wait()"
        message = "it had more than 20 processes (runners.driver_processes_most)"
        assert world.outcome(world.start(code)) == (Phase.FAILED, message)
    finally:
        insist(world.runner.shutdown)


@pytest.fixture
def two_jobs(world: World, tmp_path: Path) -> list[Assignment]:
    """The world's and another, both at their end."""
    both = [batch("pass", tmp_path / "a folder" / job, [world.agent.node()]) for job in (JOB, "job-2")]
    for assignment in both:
        world.runner.ensure(assignment)
        world.ended(assignment)
    return both


@pytest.mark.parametrize(
    "name", ["attempt.json", "verdict.json", "driver/result.json", "driver/process.json"]
)
@pytest.mark.parametrize("content", ["{", '{"phase": "no such"}'])
def test_damaged_records_are_one_jobs_matter_and_it_can_be_ended(
    world: World, two_jobs: list[Assignment], name: str, content: str
) -> None:
    (world.settings.state / "jobs" / JOB / "main.1" / name).write_text(content)
    first, second = SparkRunner(world.settings).reports(two_jobs)
    assert first.phase.ended
    assert second.phase is Phase.SUCCEEDED
    world.stop(two_jobs[0])
    world.forget(JOB)
    assert not (world.settings.state / "jobs" / JOB).exists()


def test_a_job_that_cannot_be_looked_at_hides_no_other(
    world: World, two_jobs: list[Assignment], monkeypatch: pytest.MonkeyPatch
) -> None:
    look = SparkRunner._look

    def looked(self: SparkRunner, assignment: Assignment, *rest: Any) -> TaskReport:
        if assignment == two_jobs[0]:
            raise ZeroDivisionError("poison\nof two lines")
        return look(self, assignment, *rest)

    monkeypatch.setattr(SparkRunner, "_look", looked)
    first, second = world.runner.reports(two_jobs)
    assert (first.key, second.phase) == (two_jobs[0].key, Phase.SUCCEEDED)
    assert first.message == "cannot be looked at: ZeroDivisionError: poison of two lines"


def test_what_a_job_makes_of_its_folder_leads_nowhere(world: World, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "driver-2.log").write_text("Error: the key")
    first = world.start(f"import os\nos.rename('logs', 'x')\nos.symlink({str(precious)!r}, 'logs')")
    world.ended(first)
    # The first succeeded; as if it had not.
    (world.runner._attempts.get(first).folder / "verdict.json").write_text('{"phase": "lost", "message": ""}')
    phase, message = world.outcome(world.start("raise SystemExit(3)", 2))
    assert phase is Phase.FAILED
    assert "the key" not in message
    assert (precious / "driver-2.log").read_text() == "Error: the key"
