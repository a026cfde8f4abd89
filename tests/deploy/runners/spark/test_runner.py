"""The runner with real node agents, real detached processes and a Spark that starts at once."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deploy.model.tasks import Assignment, Phase, TaskReport
from deploy.node import procfs
from deploy.runners.base import RunnerError
from deploy.runners.detached import TAG, Limits
from deploy.runners.spark import SparkRunner, SparkSettings
from deploy.runners.spark.application import Application, Applications
from deploy.runners.spark.settings import SparkHome
from deploy.runners.spark.worker import process_id
from tests.deploy.node.agents import AgentProcess, agents, loopback_address, wait_until
from tests.deploy.runners.patience import insist
from tests.deploy.runners.spark.cases import JOB, batch, streaming
from tests.deploy.runners.spark.fake_spark import install, master_knows

FOREVER = "import time; open('up', 'w').close(); time.sleep(600)"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SparkHome:
    found = install(tmp_path / "spark home")
    monkeypatch.setattr("deploy.runners.spark.runner.find_spark", lambda: found)
    return found


@pytest.fixture
def settings(tmp_path: Path) -> SparkSettings:
    return SparkSettings(state=tmp_path / "the state", address=loopback_address(), lost_after_s=0.0)


@pytest.fixture
def runner(home: SparkHome, settings: SparkSettings) -> Iterator[SparkRunner]:
    made = SparkRunner(settings)
    yield made
    insist(made.shutdown)
    assert not drivers(settings)


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[AgentProcess]:
    with AgentProcess(tmp_path) as made:
        yield made


@pytest.fixture
def workdir(tmp_path: Path) -> Path:
    return tmp_path / "a folder" / JOB


Start = Callable[..., Assignment]


@pytest.fixture
def start(runner: SparkRunner, agent: AgentProcess, workdir: Path) -> Start:
    """Starts an attempt of a script on the one node."""

    def started(code: str, attempt: int = 1) -> Assignment:
        assignment = batch(code, workdir, [agent.node()], attempt)
        runner.ensure(assignment)
        return assignment

    return started


def drivers(settings: SparkSettings) -> list[int]:
    """Everything alive that a runner with this state has started on this machine."""
    state = str(settings.state.resolve())
    return [
        process.pid
        for process in procfs.scan()
        if process.alive and procfs.environment(process.pid).get(TAG, "").startswith(state)
    ]


def report(runner: SparkRunner, assignment: Assignment) -> TaskReport:
    (found,) = runner.reports([assignment])
    return found


def ended(runner: SparkRunner, assignment: Assignment) -> TaskReport:
    wait_until(lambda: report(runner, assignment).phase.ended)
    return report(runner, assignment)


def driver_pid(settings: SparkSettings, attempt: int = 1) -> int:
    file = settings.state / "jobs" / JOB / f"main.{attempt}" / "driver" / "process.json"
    return int(json.loads(file.read_bytes())["pid"])


def _has_ended(runner: SparkRunner, assignment: Assignment) -> bool:
    return report(runner, assignment).phase.ended


@pytest.mark.real
def test_a_script_that_ends_well_has_succeeded(
    runner: SparkRunner, agent: AgentProcess, workdir: Path
) -> None:
    code = "import os, sys, json; json.dump([dict(os.environ), sys.argv], open('seen', 'w'))"
    assignment = batch(code, workdir, [agent.node()])
    runner.check(assignment.spec, assignment.workdir)
    runner.ensure(assignment)
    found = ended(runner, assignment)
    assert (found.phase, found.progress, found.saved) == (Phase.SUCCEEDED, 1.0, 1.0)
    env, argv = json.loads((workdir / "seen").read_text())
    assert argv == [str(workdir.resolve() / "app.py")]
    assert env["SPOTWEAVE_CHECKPOINT_DIR"] == str(workdir.resolve() / "checkpoint")
    assert env["SPOTWEAVE_ATTEMPT"] == "1"
    assert agent.client.process(process_id(assignment.attempt_id)).state == "running"


@pytest.mark.real
def test_ensuring_twice_runs_it_once(runner: SparkRunner, start: Start, workdir: Path) -> None:
    assignment = start("open('runs', 'a').write('x')")
    runner.ensure(assignment)
    ended(runner, assignment)
    runner.ensure(assignment)
    assert (workdir / "runs").read_text() == "x"


@pytest.mark.real
def test_a_users_error_is_a_failure_with_its_reason(runner: SparkRunner, start: Start) -> None:
    assignment = start("raise ValueError('no such column')")
    found = ended(runner, assignment)
    assert (found.phase, found.message) == (Phase.FAILED, "ValueError: no such column")


@pytest.mark.real
def test_an_exit_code_is_a_failure_too(runner: SparkRunner, start: Start) -> None:
    assignment = start("raise SystemExit(7)")
    found = ended(runner, assignment)
    assert (found.phase, found.message) == (Phase.FAILED, "the script exited with 7")


@pytest.mark.real
def test_a_script_that_vanished_is_a_failure(runner: SparkRunner, agent: AgentProcess, workdir: Path) -> None:
    assignment = batch("", workdir, [agent.node()])
    (workdir / "app.py").unlink()
    runner.ensure(assignment)
    found = ended(runner, assignment)
    assert found.phase is Phase.FAILED
    assert "No such file or directory" in found.message


@pytest.mark.real
def test_an_attempt_without_nodes_is_lost(
    runner: SparkRunner, home: SparkHome, tmp_path: Path, workdir: Path
) -> None:
    with agents(tmp_path, 2) as (one, two):
        assignment = batch(FOREVER, workdir, [one.node(), two.node()])
        runner.ensure(assignment)
        master_knows(home, assignment, {one.address: "ALIVE", two.address: "ALIVE"})
        one.destroy()
        # The job goes on on the other node.
        master_knows(home, assignment, {one.address: "DEAD", two.address: "ALIVE"})
        assert report(runner, assignment).phase is Phase.STARTING
        two.destroy()
        master_knows(home, assignment, {one.address: "DEAD", two.address: "DEAD"})
        found = ended(runner, assignment)
        assert found.phase is Phase.LOST
        assert found.message == (
            f"all its nodes are gone: {one.instance_id} does not answer; {two.instance_id} does not answer"
        )


@pytest.mark.real
def test_what_is_called_lost_cannot_complete_any_more(
    runner: SparkRunner,
    start: Start,
    settings: SparkSettings,
    home: SparkHome,
    agent: AgentProcess,
    workdir: Path,
) -> None:
    assignment = start(FOREVER)
    wait_until((workdir / "up").exists)
    agent.destroy()
    master_knows(home, assignment, {agent.address: "DEAD"})
    assert ended(runner, assignment).phase is Phase.LOST
    assert [pid for pid in drivers(settings) if JOB in procfs.environment(pid).get(TAG, "")] == []


@pytest.mark.real
def test_silence_alone_is_not_a_loss(
    home: SparkHome, settings: SparkSettings, agent: AgentProcess, workdir: Path
) -> None:
    patient = SparkRunner(SparkSettings(state=settings.state, address=settings.address, lost_after_s=600.0))
    try:
        assignment = batch(FOREVER, workdir, [agent.node()])
        patient.ensure(assignment)
        agent.kill()
        assert report(patient, assignment).phase is Phase.STARTING
    finally:
        insist(patient.shutdown)


@pytest.mark.real
def test_a_worker_that_cannot_start_is_lost_with_its_reason(
    runner: SparkRunner, start: Start, home: SparkHome
) -> None:
    (home.path / "broken").touch()
    assignment = start(FOREVER)
    found = ended(runner, assignment)
    assert found.phase is Phase.LOST
    assert found.message.endswith("ended: Error: this worker is broken")


@pytest.mark.real
def test_a_script_that_fails_with_its_nodes_is_lost(
    runner: SparkRunner, start: Start, agent: AgentProcess, workdir: Path
) -> None:
    code = "import os, time\nwhile not os.path.exists('go'): time.sleep(0.01)\nraise SystemExit(1)"
    assignment = start(code)
    agent.destroy()
    (workdir / "go").touch()
    assert ended(runner, assignment).phase is Phase.LOST


@pytest.mark.real
def test_a_new_runner_finds_what_runs(
    runner: SparkRunner, start: Start, settings: SparkSettings, workdir: Path
) -> None:
    code = (
        "import os, time\nopen('runs', 'a').write('x')\n"
        "while not os.path.exists('go'): time.sleep(0.01)\nraise ValueError('after the restart')"
    )
    assignment = start(code)
    wait_until((workdir / "runs").exists)
    again = SparkRunner(settings)
    assert report(again, assignment) == report(runner, assignment)
    again.ensure(assignment)
    (workdir / "go").touch()
    found = ended(again, assignment)
    assert (found.phase, found.message) == (Phase.FAILED, "ValueError: after the restart")
    assert report(SparkRunner(settings), assignment) == found
    assert (workdir / "runs").read_text() == "x"


@pytest.mark.real
def test_the_earlier_attempt_is_gone_before_the_next_one_runs(
    runner: SparkRunner, start: Start, settings: SparkSettings, agent: AgentProcess, workdir: Path
) -> None:
    first = start(FOREVER)
    pid = driver_pid(settings)
    second = batch(FOREVER, workdir, [agent.node()], attempt=2)
    # Even by a scheduler that knows nothing of the first.
    SparkRunner(settings).ensure(second)
    assert agent.client.process(process_id(first.attempt_id)).state == "exited"
    found = procfs.read(pid)
    assert found is None or not found.alive
    assert report(runner, first).phase is Phase.LOST
    assert report(runner, second).phase is Phase.STARTING
    with pytest.raises(RunnerError, match=r"job-1\.main\.0 is older than job-1\.main\.1"):
        runner.ensure(batch(FOREVER, workdir, [agent.node()], attempt=0))


@pytest.mark.real
def test_work_that_was_finished_is_not_done_again(runner: SparkRunner, start: Start, workdir: Path) -> None:
    first = start("open('runs', 'a').write('x')")
    # Nobody asked for a report before the scheduler decided to try again.
    result = Path(runner._attempts.get(first).driver.folder) / "result.json"
    wait_until(result.exists)
    second = start("open('runs', 'a').write('x')", 2)
    found = report(runner, second)
    assert (found.phase, found.message) == (Phase.SUCCEEDED, "attempt 1 had finished the work")
    assert (workdir / "runs").read_text() == "x"


@pytest.mark.real
def test_a_stopped_attempt_is_gone_and_stays_so(
    runner: SparkRunner, start: Start, settings: SparkSettings, agent: AgentProcess, workdir: Path
) -> None:
    assignment = start(FOREVER)
    wait_until((workdir / "up").exists)
    pid = driver_pid(settings)
    insist(lambda: runner.stop(assignment))
    assert agent.client.process(process_id(assignment.attempt_id)).state == "exited"
    found = procfs.read(pid)
    assert found is None or not found.alive
    insist(lambda: runner.stop(assignment))
    runner.ensure(assignment)
    found_report = report(runner, assignment)
    assert (found_report.phase, found_report.message) == (Phase.LOST, "it was stopped")


def test_an_attempt_that_was_stopped_before_it_was_started_never_starts(
    runner: SparkRunner, agent: AgentProcess, workdir: Path
) -> None:
    assignment = batch(FOREVER, workdir, [agent.node()])
    insist(lambda: runner.stop(assignment))
    runner.ensure(assignment)
    assert report(runner, assignment).phase is Phase.LOST
    assert not (workdir / "up").exists()


@pytest.mark.real
def test_stopping_what_has_ended_does_not_change_how_it_ended(runner: SparkRunner, start: Start) -> None:
    assignment = start("raise ValueError('mine')")
    wait_until(lambda: runner._attempts.get(assignment).driver.result() is not None)
    insist(lambda: runner.stop(assignment))
    assert report(runner, assignment).message == "ValueError: mine"


@pytest.mark.real
def test_a_killed_driver_is_lost_twice_and_then_has_failed(
    runner: SparkRunner, settings: SparkSettings, agent: AgentProcess, workdir: Path
) -> None:
    phases = []
    for attempt in (1, 2, 3):
        (workdir / "up").unlink(missing_ok=True)
        assignment = batch(
            "import os; open('up', 'w').close(); os.kill(os.getpid(), 9)", workdir, [agent.node()], attempt
        )
        runner.ensure(assignment)
        found = ended(runner, assignment)
        assert found.message.startswith("the driver was killed by signal 9")
        phases.append(found.phase)
    assert phases == [Phase.LOST, Phase.LOST, Phase.FAILED]


@pytest.mark.real
def test_a_driver_whose_launcher_is_killed_is_lost(
    runner: SparkRunner, start: Start, settings: SparkSettings, workdir: Path
) -> None:
    assignment = start(FOREVER)
    wait_until((workdir / "up").exists)
    os.kill(driver_pid(settings), signal.SIGKILL)
    found = ended(runner, assignment)
    assert (found.phase, found.message) == (Phase.LOST, "the driver and its launcher were killed")
    (workdir / "up").unlink()
    runner.ensure(assignment)
    assert not (workdir / "up").exists()


@pytest.mark.real
def test_a_killed_master_comes_back_where_it_was(
    runner: SparkRunner, start: Start, settings: SparkSettings
) -> None:
    assignment = start(FOREVER)
    master = runner._master
    url, pid = master.url, json.loads((settings.state / "master" / "process.json").read_bytes())["pid"]
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: master.state() is None)
    assert report(runner, assignment).phase is Phase.STARTING
    wait_until(lambda: master.state() == "ALIVE")
    assert master.url == url


@pytest.mark.real
def test_a_notice_decommissions_the_worker_only_there(
    runner: SparkRunner, tmp_path: Path, workdir: Path
) -> None:
    with agents(tmp_path, 2) as (one, two):
        assignment = batch(FOREVER, workdir, [one.node(), two.node()])
        runner.ensure(assignment)
        worker = process_id(assignment.attempt_id)
        wait_until(lambda: b"up" in one.client.log(worker) and b"up" in two.client.log(worker))
        runner.drain(assignment, [one.instance_id], within_s=30.0)
        wait_until(lambda: b"decommissioned" in one.client.log(worker))
        assert b"decommissioned" not in two.client.log(worker)
        two.kill()
        with pytest.raises(RunnerError, match="cannot be drained"):
            runner.drain(assignment, [two.instance_id], within_s=30.0)


@pytest.mark.real
def test_an_attempt_whose_nodes_are_all_drained_is_lost_once_its_tasks_have_ended(
    runner: SparkRunner, start: Start, home: SparkHome, agent: AgentProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    assignment = start(FOREVER)
    application = Application("url", "app-1", (agent.address,), 3, 4, 0)
    monkeypatch.setattr(Applications, "ask", lambda *_: application)
    master_knows(home, assignment, {agent.address: "DECOMMISSIONED"})
    assert report(runner, assignment).phase is Phase.RUNNING
    application = replace(application, executors=())
    found = ended(runner, assignment)
    assert (found.phase, found.message) == (Phase.LOST, "all its nodes are drained")


@pytest.mark.real
def test_progress_is_kept_while_the_driver_does_not_answer(
    runner: SparkRunner, start: Start, agent: AgentProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    assignment = start(FOREVER)
    answers = iter([Application("url", "app-1", (agent.address,), 3, 4, 0), None])
    monkeypatch.setattr(Applications, "ask", lambda *_: next(answers))
    found = report(runner, assignment)
    assert (found.phase, found.progress, found.saved) == (Phase.RUNNING, 0.75, 0.0)
    assert report(runner, assignment) == found


@pytest.mark.real
def test_a_node_that_cannot_be_asked_keeps_the_driver_from_starting(
    runner: SparkRunner, agent: AgentProcess, workdir: Path
) -> None:
    assignment = batch(FOREVER, workdir, [agent.node()])
    agent.destroy()
    with pytest.raises(RunnerError, match=f"no Spark worker on {agent.instance_id}"):
        runner.ensure(assignment)
    assert report(runner, assignment).phase is Phase.STARTING
    assert not (workdir / "up").exists()


@pytest.mark.real
def test_a_streaming_job_ends_after_its_batches_and_its_misses_are_kept(
    runner: SparkRunner, settings: SparkSettings, agent: AgentProcess, workdir: Path
) -> None:
    # Given a driver that writes batches as Spark does, and is lost after two of them,
    events = settings.state.resolve() / "jobs" / JOB / "events"
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
        progress = {{"id": "q", "batchId": batch, "durationMs": durations}}
        file.write(json.dumps({{"Event": event, "progress": progress}}) + "\\n")
time.sleep(600)
"""
    first = streaming(code, workdir, [agent.node()], batches=4)
    runner.ensure(first)
    wait_until(lambda: report(runner, first).executions_done == 2)
    found = report(runner, first)
    assert (found.misses, found.last_execution_s, found.progress, found.saved) == (1, 1.5, 0.5, 0.5)
    insist(lambda: runner.stop(first))
    # when another attempt under a new scheduler goes on,
    again = SparkRunner(settings)
    second = streaming(code, workdir, [agent.node()], attempt=2, batches=4)
    again.ensure(second)
    found = ended(again, second)
    # then the job ends by itself, and nothing was forgotten.
    assert (found.phase, found.executions_done, found.misses) == (Phase.SUCCEEDED, 4, 2)
    assert [pid for pid in drivers(settings) if JOB in procfs.environment(pid).get(TAG, "")] == []


@pytest.mark.real
def test_a_job_that_is_over_is_forgotten_but_its_log_stays(
    runner: SparkRunner, start: Start, settings: SparkSettings, agent: AgentProcess, workdir: Path
) -> None:
    assignment = start("print('a result')")
    ended(runner, assignment)
    insist(lambda: runner.forget(JOB))
    insist(lambda: runner.forget(JOB))
    assert agent.client.process(process_id(assignment.attempt_id)).state == "exited"
    assert not (settings.state / "jobs" / JOB).exists()
    assert (workdir / "logs" / "driver-1.log").read_text() == "a result\n"


def test_what_was_never_started_is_lost(runner: SparkRunner, agent: AgentProcess, workdir: Path) -> None:
    assert report(runner, batch("", workdir, [agent.node()])).phase is Phase.LOST
    assert runner.reports([]) == ()


@pytest.mark.real
def test_secrets_are_in_no_argument_and_no_readable_file(
    runner: SparkRunner, start: Start, settings: SparkSettings, agent: AgentProcess, workdir: Path
) -> None:
    start(FOREVER)
    wait_until((workdir / "up").exists)
    secrets = [runner._master.secret.encode(), agent.token.encode()]
    for process in procfs.scan():
        try:
            arguments = Path(f"/proc/{process.pid}/cmdline").read_bytes()
        except OSError:
            continue
        assert not any(secret in arguments for secret in secrets)
    for file in [*settings.state.rglob("*"), *workdir.rglob("*")]:
        if file.is_file() and any(secret in file.read_bytes() for secret in secrets):
            assert file.stat().st_mode & 0o077 == 0, file


@pytest.mark.real
def test_an_attempt_that_died_unseen_is_never_started_again(
    runner: SparkRunner, start: Start, settings: SparkSettings, workdir: Path
) -> None:
    assignment = start("open('runs', 'a').write('x')\n" + FOREVER)
    wait_until((workdir / "up").exists)
    pid = driver_pid(settings)
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not runner._attempts.get(assignment).driver.running())
    # Nobody has asked for a report meanwhile: neither this scheduler nor the next one.
    runner.ensure(assignment)
    SparkRunner(settings).ensure(assignment)
    assert driver_pid(settings) == pid
    assert report(runner, assignment).phase is Phase.LOST
    assert (workdir / "runs").read_text() == "x"


STUBBORN = """
import os, signal, subprocess, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
subprocess.run(['env', '-i', 'setsid', '--fork', '/bin/sh', '-c',
    'trap "" TERM HUP; while :; do date +%N > alive; sleep 0.1; done'])
while not os.path.exists('alive'): time.sleep(0.01)
open('up', 'w').close()
while True: time.sleep(600)
"""


@pytest.mark.real
@pytest.mark.parametrize("over", [False, True])
def test_a_driver_that_will_not_end_ends_with_all_that_slipped_away(
    runner: SparkRunner, start: Start, workdir: Path, over: bool
) -> None:
    assignment = start(STUBBORN)
    wait_until((workdir / "up").exists)
    if over:
        insist(lambda: runner.forget(JOB))
    else:
        with pytest.raises(RunnerError, match="still ends"):
            runner.stop(assignment)
        # Until it is gone nothing is decided: the next attempt must not run next to it.
        assert report(runner, assignment).phase is Phase.STARTING
        insist(lambda: runner.stop(assignment))
        assert report(runner, assignment).message == "it was stopped"
    (workdir / "alive").unlink()
    time.sleep(0.5)
    assert not (workdir / "alive").exists()


@pytest.mark.real
def test_what_is_stopped_is_no_kill_of_its_own(runner: SparkRunner, start: Start, workdir: Path) -> None:
    for attempt in range(1, 5):
        (workdir / "up").unlink(missing_ok=True)
        assignment = start(FOREVER, attempt)
        wait_until((workdir / "up").exists)
        # Its end is seen between two calls of stop.
        with suppress(RunnerError):
            runner.stop(assignment)
        found = ended(runner, assignment)
        assert (found.phase, found.message) == (Phase.LOST, "it was stopped")


@pytest.mark.real
def test_nothing_secret_is_left_of_a_job_that_is_over(
    runner: SparkRunner, start: Start, settings: SparkSettings, agent: AgentProcess
) -> None:
    # Given a driver that makes its own folder hard to remove,
    code = (
        "import os\nlocal = os.environ['SPARK_LOCAL_DIRS']\nos.makedirs(local + '/a/b')\nos.chmod(local, 0)"
    )
    assignment = start(code)
    ended(runner, assignment)
    insist(lambda: runner.forget(JOB))
    secrets = [runner._master.secret.encode(), agent.token.encode()]
    master = settings.state / "master"
    for file in settings.state.rglob("*"):
        if file.is_file() and not file.is_relative_to(master):
            assert not any(secret in file.read_bytes() for secret in secrets), file
    assert list((settings.state / "jobs").iterdir()) == []


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"env": {"BIG": "x" * 140_000}}, "'env BIG' has 140004 bytes: a program can be given 131071"),
        ({"env": {"NULL": "a\0b"}}, "'env NULL' holds a zero byte"),
        ({"args": ["fine", "a\0b"]}, r"'args\[1\]' holds a zero byte"),
        ({"conf": {"spark.x": "a\0b"}}, "'conf spark.x' holds a zero byte"),
        ({"script": "app\0.py"}, "'script' holds a zero byte"),
        ({"env": {"HALF": "\ud800"}}, "'env HALF' holds half a character"),
        ({"env": {f"V{at}": "x" * 100_000 for at in range(12)}}, "bytes together: a program can be given"),
    ],
)
def test_what_no_program_can_be_given_is_refused_at_once(
    runner: SparkRunner, workdir: Path, values: dict[str, Any], reason: str
) -> None:
    spec = batch("", workdir, []).spec
    env = {"env": values.pop("env")} if "env" in values else {}
    if "args" in values:
        values["args"] = tuple(values["args"])
    # Not validated: bounds of the model may refuse some of them first.
    changed = spec.model_copy(update={"work": spec.work.model_copy(update=values), **env})
    with pytest.raises(ValueError, match=reason) as refused:
        runner.check(changed, str(workdir))
    assert "\n" not in str(refused.value)


@pytest.mark.real
def test_a_start_that_cannot_succeed_has_failed_with_its_reason(
    runner: SparkRunner, agent: AgentProcess, workdir: Path
) -> None:
    assignment = batch("", workdir, [agent.node()])
    spec = assignment.spec.model_copy(update={"env": {"BIG": "x" * 140_000}})
    assignment = replace(assignment, spec=spec)
    runner.ensure(assignment)
    found = ended(runner, assignment)
    assert found.phase is Phase.FAILED
    assert "Argument list too long" in found.message


@pytest.mark.real
def test_a_driver_over_a_limit_has_failed_with_its_reason(
    home: SparkHome, settings: SparkSettings, agent: AgentProcess, workdir: Path
) -> None:
    narrow = SparkRunner(replace(settings, limits=Limits(processes=20)))
    try:
        code = "import subprocess as s\nall = [s.Popen(['sleep', '9']) for _ in range(30)]\nall[0].wait()"
        assignment = batch(code, workdir, [agent.node()])
        narrow.ensure(assignment)
        found = ended(narrow, assignment)
        assert (found.phase, found.message) == (
            Phase.FAILED,
            "it had more than 20 processes (runners.driver_processes_most)",
        )
    finally:
        insist(narrow.shutdown)


@pytest.mark.real
@pytest.mark.parametrize(
    "name", ["attempt.json", "verdict.json", "driver/result.json", "driver/process.json"]
)
@pytest.mark.parametrize("content", ["", "{", "[]", '{"phase": "no such"}'])
def test_damaged_records_are_one_jobs_matter_and_it_can_be_ended(
    runner: SparkRunner,
    settings: SparkSettings,
    agent: AgentProcess,
    workdir: Path,
    tmp_path: Path,
    name: str,
    content: str,
) -> None:
    broken = batch("pass", workdir, [agent.node()])
    healthy = batch("pass", tmp_path / "a folder" / "job-2", [agent.node()])
    for assignment in (broken, healthy):
        runner.ensure(assignment)
        ended(runner, assignment)
    (settings.state / "jobs" / JOB / "main.1" / name).write_text(content)
    first, second = SparkRunner(settings).reports([broken, healthy])
    assert first.phase.ended
    assert second.phase is Phase.SUCCEEDED
    insist(lambda: runner.stop(broken))
    insist(lambda: runner.forget(JOB))
    assert not (settings.state / "jobs" / JOB).exists()


@pytest.mark.real
def test_a_job_that_cannot_be_looked_at_hides_no_other(
    runner: SparkRunner,
    agent: AgentProcess,
    workdir: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broken = batch("pass", workdir, [agent.node()])
    healthy = batch("pass", tmp_path / "a folder" / "job-2", [agent.node()])
    for assignment in (broken, healthy):
        runner.ensure(assignment)
        ended(runner, assignment)
    look = SparkRunner._look

    def looked(self: SparkRunner, assignment: Assignment, *rest: Any) -> TaskReport:
        if assignment == broken:
            raise ZeroDivisionError("poison\nof two lines")
        return look(self, assignment, *rest)

    monkeypatch.setattr(SparkRunner, "_look", looked)
    first, second = runner.reports([broken, healthy])
    assert (first.key, second.phase) == (broken.key, Phase.SUCCEEDED)
    assert first.message == "cannot be looked at: ZeroDivisionError: poison of two lines"


@pytest.mark.real
def test_what_a_job_makes_of_its_folder_leads_nowhere(
    runner: SparkRunner, agent: AgentProcess, workdir: Path, tmp_path: Path
) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "driver-2.log").write_text("Error: the key")
    first = batch(
        f"import os\nos.rename('logs', 'x')\nos.symlink({str(precious)!r}, 'logs')", workdir, [agent.node()]
    )
    runner.ensure(first)
    ended(runner, first)
    second = batch("raise SystemExit(3)", workdir, [agent.node()], attempt=2)
    # The first succeeded; as if it had not.
    (runner._attempts.get(first).folder / "verdict.json").write_text('{"phase": "lost", "message": ""}')
    runner.ensure(second)
    found = ended(runner, second)
    assert found.phase is Phase.FAILED
    assert "the key" not in found.message
    assert (precious / "driver-2.log").read_text() == "Error: the key"
