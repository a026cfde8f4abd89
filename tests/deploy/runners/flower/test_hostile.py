"""Slow, hung, broken and hostile jobs next to a good one."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from deploy.fl import checkpoints
from deploy.fl.checkpoints import Checkpoint, Participation, Status
from deploy.model.jobs import TaskKey
from deploy.model.tasks import Assignment, Node, Phase, TaskReport
from deploy.objects.location import FolderObjects, ObjectsError
from deploy.runners.base import RunnerError
from deploy.runners.flower import checkpoint_sync
from deploy.runners.flower.runner import FlowerRunner, FlowerSettings
from deploy.runners.flower.superlink import SuperLinkDown
from deploy.runners.flower.training import IDLE_WITHIN_S
from tests.deploy.runners.flower.test_job import Played, PlayedSuperLink, Stage, played
from tests.deploy.runners.flower.world import MEAN, job_spec
from tests.deploy.runners.patience import insist

__all__ = ["played"]


class Clock:
    """The runner's, for what it waits for."""

    def __init__(self) -> None:
        self.ahead_s = 0.0

    def __call__(self) -> float:
        return time.perf_counter() + self.ahead_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(time, "monotonic", made)
    return made


@pytest.fixture
def stage(tmp_path: Path, played: Played) -> Iterator[Stage]:
    shutil.copytree(MEAN, tmp_path / "work/mean")
    made = Stage(tmp_path, played)
    yield made
    played.slow.set()
    played.slow_nodes.set()


def other(folder: Path) -> Assignment:
    """Of another job, which nobody disturbs."""
    work = folder / "other"
    if not work.exists():
        shutil.copytree(MEAN, work / "mean")
    node = Node("i-x", "127.9.9.9", 1, "token", 1, 1.0)
    return Assignment(TaskKey("other", "client-x"), 1, job_spec("mean", 4, {"x": {}}), (node,), str(work))


def hurry(stage: Stage, within_s: float) -> None:
    """From now on a look waits so long only."""
    stage.runner._settings = replace(stage.runner._settings, reports_within_s=within_s)


def pass_by(stage: Stage, clock: Clock, seconds: float, step_s: float = 5.0) -> dict[str, TaskReport]:
    """Looks, one after the other, while time passes."""
    found: dict[str, TaskReport] = {}
    for _ in range(int(seconds / step_s)):
        clock.ahead_s += step_s
        stage.phases()
        found = {r.key.task[-1]: r for r in stage.runner.reports([stage.assignment(n) for n in ("a", "b")])}
    return found


def terabyte(file: Path) -> None:
    file.touch()
    os.truncate(file, 1 << 40)


def no_folder(file: Path) -> None:
    file.parent.rmdir()
    file.parent.touch()


def link_to_folder(file: Path) -> None:
    file.parent.rmdir()
    file.parent.symlink_to("/etc")


POISON: dict[str, Callable[[Path], object]] = {
    "no JSON": lambda file: file.write_text("{"),
    "too many rounds": lambda file: file.write_text('{"run": 1, "completed": 1' + "0" * 30 + "}"),
    "more than there are": lambda file: file.write_text('{"run": 1, "completed": 5}'),
    "not a number": lambda file: file.write_text('{"run": 1, "clients": {"a": {"last_epoch_s": NaN}}}'),
    "a terabyte": terabyte,
    "a pipe": lambda file: os.mkfifo(file),
    "a folder": lambda file: file.mkdir(),
    "a link": lambda file: file.symlink_to("/etc/passwd"),
    "no folder": no_folder,
    "a link to a folder": link_to_folder,
}


@pytest.mark.parametrize("poison", POISON)
def test_a_job_whose_status_is_poison_fails_and_no_other(stage: Stage, poison: str) -> None:
    stage.until_running()
    stage.runner.ensure(other(stage.folder))
    POISON[poison](stage.folder / "work/flower/status.json")
    everyone = [stage.assignment("a"), other(stage.folder), stage.assignment("b")]
    a, x, b = stage.runner.reports(everyone)
    assert (a.phase, x.phase, b.phase) == (Phase.FAILED, Phase.STARTING, Phase.FAILED)
    assert a.message == b.message
    assert a.message.startswith("flower")
    assert "\n" not in a.message
    # Its nodes are stopped, it is tried again, and fails again; then it is over and forgotten.
    for name in ("a", "b"):
        stage.stop(name)
        stage.attempts[name] = 2
        stage.ensure(name)
    assert set(stage.phases().values()) == {Phase.FAILED}
    insist(lambda: stage.runner.forget("job"))
    assert not stage.played.alive
    assert not (stage.folder / "state/job").exists()


def test_reports_are_bounded_whatever_a_serverapp_says(stage: Stage) -> None:
    stage.until_running()
    stage.say(
        run=1,
        metrics={f"{number}" * 100: 1e308 for number in range(1000)} | {"node_id": 7.0, "run": 7.0},
        resumed_from="x" * 1000,
        clients={"a": Participation(error="x\n" * 500, error_attempt=1)},
    )
    stage.phases()
    report = stage.runner.reports([stage.assignment("a")])[0]
    assert len(report.message) <= 300
    assert "\n" not in report.message
    assert len(report.details) < 50
    assert max(len(text) for pair in report.details.items() for text in pair) <= 100
    assert report.details["node_id"] == str(stage.job().record.clients["a"].node_id)
    assert report.details["run"] == "1"


@pytest.mark.parametrize("broken", ["{", '{"port": 1}', "\0"])
def test_a_job_whose_record_is_broken_is_lost_alone_and_can_be_forgotten(stage: Stage, broken: str) -> None:
    stage.until_running()
    stage.runner.ensure(other(stage.folder))
    stage.runner.close()
    (stage.folder / "state/job/job.json").write_text(broken)
    stage.runner = FlowerRunner(FlowerSettings(stage.folder / "state"))
    a, x = stage.runner.reports([stage.assignment("a"), other(stage.folder)])
    assert (a.phase, x.phase) == (Phase.LOST, Phase.STARTING)
    assert a.message
    assert "\n" not in a.message
    with pytest.raises(RunnerError):
        stage.ensure("a")
    insist(lambda: stage.runner.forget("job"))
    assert not (stage.folder / "state/job").exists()


def test_an_exception_of_the_runner_itself_is_that_jobs_loss(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.until_running()
    stage.runner.ensure(other(stage.folder))

    def fail(*_: object) -> None:
        raise ZeroDivisionError("a bug\nof ours")

    monkeypatch.setattr(stage.job(), "step", fail)
    a, x, b = stage.runner.reports([stage.assignment("a"), other(stage.folder), stage.assignment("b")])
    assert (a.phase, x.phase, b.phase) == (Phase.LOST, Phase.STARTING, Phase.LOST)
    assert a.message == "ZeroDivisionError: a bug of ours"
    monkeypatch.undo()
    monkeypatch.setattr(stage.job(), "client", fail)
    assert [r.phase for r in stage.runner.reports([stage.assignment("a")])] == [Phase.LOST]


def test_a_superlink_that_hangs_delays_its_own_reports_only(stage: Stage, played: Played) -> None:
    stage.until_running()
    hurry(stage, 0.5)
    stage.runner.ensure(other(stage.folder))
    played.slow.clear()
    # The other job has it from here on: it is not the played one.
    held = stage.runner._jobs["other"]
    assert held.job is not None
    held.job.step = lambda assignments: None  # type: ignore[method-assign]
    everyone = [stage.assignment("a"), other(stage.folder), stage.assignment("b")]
    for job in stage.runner._jobs.values():
        assert job.job is not None
        job.job._next_look_s = 0.0
    began_s = time.perf_counter()
    phases = [[r.phase for r in stage.runner.reports(everyone)] for _ in range(20)]
    took_s = time.perf_counter() - began_s
    assert phases == [[Phase.RUNNING, Phase.STARTING, Phase.RUNNING]] * 20
    # Only the first look waits; 20 that wait would take 10 s.
    assert took_s < 5
    with pytest.raises(RunnerError, match="slow to answer"):
        stage.runner.ensure(stage.assignment("a"))
    played.slow.set()
    insist(lambda: stage.runner.ensure(stage.assignment("a")))
    assert set(stage.phases().values()) == {Phase.RUNNING}


def test_a_job_that_keeps_the_runner_waiting_is_given_up(stage: Stage, played: Played, clock: Clock) -> None:
    stage.until_running()
    hurry(stage, 0.1)
    played.slow.clear()
    assert pass_by(stage, clock, 110)["a"].phase is Phase.RUNNING
    report = pass_by(stage, clock, 30)["a"]
    assert report.phase is Phase.LOST
    assert "have kept the runner waiting" in report.message


@pytest.mark.real
def test_sixty_ends_that_hang_do_not_hold_the_loop(stage: Stage, played: Played) -> None:
    stage.until_running()
    played.slow_nodes.clear()
    began_s = time.perf_counter()
    for number in range(60):
        one = replace(stage.assignment("a"), attempt=number + 1)
        with pytest.raises(RunnerError, match="still ends"):
            stage.runner.stop(one)
    assert time.perf_counter() - began_s < 15
    played.slow_nodes.set()
    for number in range(60):
        insist(lambda: stage.runner.stop(replace(stage.assignment("a"), attempt=number + 1)))  # noqa: B023
    assert stage.phases()["a"] is Phase.LOST


@pytest.mark.real
def test_a_node_that_never_answers_its_stop_leaves_nothing_open(
    stage: Stage, played: Played, clock: Clock
) -> None:
    stage.until_running()
    played.slow_nodes.clear()
    with pytest.raises(RunnerError, match="still ends"):
        stage.runner.stop(stage.assignment("a"))
    clock.ahead_s += 60
    insist(lambda: stage.runner.stop(stage.assignment("a")))


@pytest.mark.real
def test_a_job_can_be_ended_while_its_superlink_hangs(stage: Stage, played: Played) -> None:
    stage.until_running()
    hurry(stage, 0.1)
    played.slow.clear()
    stage.phases()
    folder = stage.folder / "state/job"

    def forget() -> None:
        try:
            stage.runner.forget("job")
        finally:
            # What its end does to the one that hangs.
            played.slow.set()

    insist(forget)
    assert not folder.exists()
    assert [r.phase for r in stage.runner.reports([stage.assignment("a")])] == [Phase.LOST]
    assert not played.alive


@pytest.mark.parametrize("phase", [Phase.STARTING, Phase.RUNNING, Phase.WAITING])
def test_a_node_that_does_not_answer_is_given_up_in_every_phase(
    stage: Stage, played: Played, clock: Clock, phase: Phase
) -> None:
    if phase is Phase.STARTING:
        stage.ensure("a")
        stage.ensure("b")
        stage.phases()
    else:
        stage.until_running()
        waits = Participation(owes=phase is Phase.RUNNING)
        stage.say(run=1, completed=1, clients={"a": waits, "b": Participation()})
    assert stage.phases()["a"] is phase
    played.unreachable = {stage.assignment("a").nodes[0].address}
    found = pass_by(stage, clock, 50)
    assert found["a"].phase is phase
    found = pass_by(stage, clock, 30)
    assert found["a"].phase is Phase.LOST
    assert "its node has not answered for" in found["a"].message
    assert found["b"].phase in (Phase.STARTING, Phase.RUNNING)
    # For good, though it should come back: its instance is being ended.
    played.unreachable = set()
    assert stage.phases()["a"] is Phase.LOST
    insist(lambda: stage.runner.stop(stage.assignment("a")))
    stage.attempts["a"] = 2
    stage.ensure("a")
    played.here.add(played.nodes["a"])
    stage.phases()
    assert stage.phases()["a"] is not Phase.LOST


def test_a_supernode_that_is_offline_is_given_up(stage: Stage, played: Played, clock: Clock) -> None:
    """Its agent answers and its process runs: it was stopped with SIGSTOP."""
    stage.until_running()
    played.here.discard(played.nodes["a"])
    assert pass_by(stage, clock, 50)["a"].phase is Phase.RUNNING
    # One that was away for a moment is not.
    played.here.add(played.nodes["a"])
    stage.phases()
    played.here.discard(played.nodes["a"])
    assert pass_by(stage, clock, 50)["a"].phase is Phase.RUNNING
    found = pass_by(stage, clock, 30)
    assert found["a"].phase is Phase.LOST
    assert "its SuperNode has been offline for" in found["a"].message
    assert found["b"].phase is Phase.RUNNING
    assert played.offline == ["a"]


def test_nodes_that_find_a_new_superlink_are_not_given_up(stage: Stage, played: Played, clock: Clock) -> None:
    stage.until_running()
    played.here.clear()
    pass_by(stage, clock, 50)
    played.alive = False
    assert pass_by(stage, clock, 50)["a"].phase is Phase.RUNNING


def test_a_supernode_that_never_comes_online_is_given_up(stage: Stage, played: Played, clock: Clock) -> None:
    stage.ensure("a")
    stage.phases()
    assert pass_by(stage, clock, 290)["a"].phase is Phase.STARTING
    found = pass_by(stage, clock, 30)
    assert found["a"].phase is Phase.LOST
    assert "has not come online within" in found["a"].message


def owe(stage: Stage, asked_s: float = 5.0, last_epoch_s: float | None = 10.0, delivered: int = 1) -> None:
    clients = {
        "a": Participation(owes=True, asked_s=asked_s, last_epoch_s=last_epoch_s, delivered=delivered),
        "b": Participation(owes=False, delivered=2),
    }
    stage.say(run=1, completed=1, clients=clients)


def test_a_client_that_hangs_in_a_round_is_given_up(stage: Stage, clock: Clock) -> None:
    stage.until_running()
    # 120 s and 5 times the 10 s that it took before.
    owe(stage)
    assert pass_by(stage, clock, 165)["a"].phase is Phase.RUNNING
    found = pass_by(stage, clock, 15)
    assert found["a"].phase is Phase.LOST
    assert found["a"].message.startswith("it hangs: it has owed a result for 17")
    assert found["b"].phase is Phase.WAITING
    # A machine may simply be slower than the last: the next one is given twice the time.
    insist(lambda: stage.runner.stop(stage.assignment("a")))
    stage.attempts["a"] = 2
    stage.ensure("a")
    stage.phases()
    stage.played.here = set(stage.played.nodes.values())
    owe(stage, asked_s=200.0)
    assert pass_by(stage, clock, 330)["a"].phase is Phase.RUNNING
    assert pass_by(stage, clock, 30)["a"].phase is Phase.LOST


def test_each_question_has_its_own_time(stage: Stage, clock: Clock) -> None:
    stage.until_running()
    for asked_s in range(4):
        owe(stage, asked_s=float(asked_s), delivered=asked_s)
        assert pass_by(stage, clock, 150)["a"].phase is Phase.RUNNING


def test_a_client_of_which_nothing_is_known_has_all_the_time(stage: Stage, clock: Clock) -> None:
    stage.until_running()
    owe(stage, last_epoch_s=None)
    assert pass_by(stage, clock, 2000, step_s=14.0)["a"].phase is Phase.RUNNING


def test_what_the_job_says_of_an_epoch_counts_before_one_is_measured(stage: Stage, clock: Clock) -> None:
    work = stage.spec.work.model_copy(update={"epoch_s": 20.0})
    stage.spec = stage.spec.model_copy(update={"work": work})
    stage.until_running()
    owe(stage, last_epoch_s=None)
    assert pass_by(stage, clock, 210)["a"].phase is Phase.RUNNING
    assert pass_by(stage, clock, 20)["a"].phase is Phase.LOST


def test_a_superlink_that_runs_and_does_not_answer_is_started_again(
    stage: Stage, played: Played, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.until_running()

    def refuse(self: object) -> Played:
        raise SuperLinkDown("no whole answer within 10 s")

    monkeypatch.setattr(PlayedSuperLink, "_answer", refuse)
    pass_by(stage, clock, 50)
    assert (played.starts, played.alive) == (1, True)
    pass_by(stage, clock, 40)
    assert played.starts == 2
    # Again and again in vain: then it is said so, and nobody pays for waiting nodes.
    found = pass_by(stage, clock, 600)
    assert found["a"].phase is Phase.LOST
    assert found["a"].message == "the SuperLink does not start: no such option"


def test_a_superlink_that_always_dies_loses_its_clients(stage: Stage, played: Played) -> None:
    stage.until_running()
    for _ in range(5):
        played.alive = False
        stage.job().record.starts += 1
        stage.phases()
    played.alive = False
    assert stage.phases() == {"a": Phase.LOST, "b": Phase.LOST}
    assert stage.messages() == ["the SuperLink does not start: no such option"] * 2
    # A new attempt has a new chance.
    for name in ("a", "b"):
        stage.stop(name)
        stage.attempts[name] = 2
        stage.ensure(name)
    played.here = set(played.nodes.values())
    stage.phases()
    assert stage.phases() == {"a": Phase.RUNNING, "b": Phase.RUNNING}


def test_the_app_is_the_one_that_came_with_the_job(
    stage: Stage, played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its ServerApp may write into its own folder: what a later run is made of must not be what it likes."""
    given: list[bytes] = []

    def start_run(self: PlayedSuperLink, name: str, content: bytes, config: Mapping[str, object]) -> int:
        given.append(content)
        return start(self, name, content, config)

    start = PlayedSuperLink.start_run
    monkeypatch.setattr(PlayedSuperLink, "start_run", start_run)
    stage.until_running()
    (stage.folder / "secret.py").write_text("SECRET")
    (stage.folder / "work/mean/pyproject.toml").unlink()
    (stage.folder / "work/mean/pyproject.toml").symlink_to(stage.folder / "secret.py")
    (stage.folder / "work/mean/mean/more.py").write_text("MORE")
    played.finish(False, "Task failed with unknown error.")
    stage.phases()
    stage.runner.close()
    stage.runner = FlowerRunner(FlowerSettings(stage.folder / "state"))
    played.finish(False, "Task failed with unknown error.")
    stage.phases()
    assert len(given) == 3
    assert len(set(given)) == 1


def test_what_a_superlink_sees_is_one_folder_without_clients_keys(stage: Stage) -> None:
    stage.until_running()
    state = stage.folder / "state/job"
    assert {path.name for path in state.iterdir()} == {"app.fab", "app.json", "job.json", "keys", "superlink"}
    assert {path.name for path in (state / "keys").iterdir()} >= {"authority.pem", "control.token"}
    assert {path.name for path in (state / "superlink").iterdir()} == {"setup.json"}


class Down(FolderObjects):
    """A store that cannot be reached."""

    def put(self, name: str, content: bytes) -> None:
        raise ObjectsError("s3://b/a: AWS failed")


@pytest.mark.real
def test_a_checkpoint_that_cannot_be_kept_holds_up_no_end(
    stage: Stage, played: Played, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(checkpoint_sync, "_BACK_OFF_S", 0.001)
    store = Down(stage.folder / "store")
    stage.runner = FlowerRunner(FlowerSettings(stage.folder / "state", checkpoints=store, keep_within_s=2.0))
    for name in ("a", "b"):
        stage.ensure(name)
    stage.phases()
    played.here = set(played.nodes.values())
    insist(lambda: _started(stage))
    checkpoints.save(stage.folder / "work/flower/checkpoints", Checkpoint(4, {}))
    Status(run=1, completed=4).save(stage.folder / "work/flower/status.json")
    played.finish(True)
    assert set(stage.phases().values()) == {Phase.SUCCEEDED}
    with pytest.raises(RunnerError, match="kept"):
        stage.runner.forget("job")
    # The processes and the secrets are gone, and only what is needed for the checkpoint is there.
    assert not played.alive
    assert [path.name for path in (stage.folder / "state/job").iterdir()] == ["job.json"]
    # By the wall clock, so that a scheduler that is started again and again gives up too.
    stage.runner.close()
    stage.runner = FlowerRunner(FlowerSettings(stage.folder / "state", checkpoints=store, keep_within_s=2.0))
    insist(lambda: stage.runner.forget("job"))
    assert not (stage.folder / "state/job").exists()
    assert "job job: given up after 2 s: checkpoints are not kept: s3://b/a: AWS failed" in caplog.text


def test_a_store_that_is_down_does_not_keep_nodes_for_ever(
    stage: Stage, played: Played, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Unlisted(FolderObjects):
        def names(self, start: str) -> list[str]:
            raise ObjectsError("s3://b/a: AWS failed")

    monkeypatch.setattr(checkpoint_sync, "_BACK_OFF_S", 0.001)
    store = Unlisted(stage.folder / "store")
    stage.runner = FlowerRunner(FlowerSettings(stage.folder / "state", checkpoints=store))
    for name in ("a", "b"):
        stage.ensure(name)
    stage.phases()
    played.here = set(played.nodes.values())
    stage.phases()
    report = pass_by(stage, clock, 550)["a"]
    assert report.phase is Phase.STARTING
    assert "checkpoints cannot be fetched: s3://b/a: AWS failed" in report.message
    report = pass_by(stage, clock, 60)["a"]
    assert (report.phase, report.message) == (
        Phase.LOST,
        "checkpoints cannot be fetched: s3://b/a: AWS failed",
    )
    assert not played.list


def test_checkpoints_that_are_a_link_fail_the_job(stage: Stage, played: Played) -> None:
    """They would be fetched into the folder that it leads to."""
    (stage.folder / "elsewhere").mkdir()
    (stage.folder / "work/flower").mkdir()
    (stage.folder / "work/flower/checkpoints").symlink_to(stage.folder / "elsewhere")
    store = FolderObjects(stage.folder / "store")
    store.put("job/run-000001/round-000002.npz", checkpoints.encode(Checkpoint(2, {})))
    stage.runner = FlowerRunner(FlowerSettings(stage.folder / "state", checkpoints=store))
    for name in ("a", "b"):
        stage.ensure(name)
    stage.phases()
    played.here = set(played.nodes.values())

    def failed() -> None:
        if set(stage.phases().values()) != {Phase.FAILED}:
            raise RunnerError("not yet")

    insist(failed)
    assert "flower/checkpoints is a link" in stage.messages()[0]
    assert not list((stage.folder / "elsewhere").iterdir())


def _started(stage: Stage) -> None:
    stage.phases()
    if not stage.played.list:
        raise RunnerError("not yet")


@pytest.mark.parametrize("poison", ["a pipe", "a folder", "a link", "a terabyte", "no folder"])
def test_a_poisoned_status_holds_up_no_end_either(stage: Stage, played: Played, poison: str) -> None:
    store = Down(stage.folder / "store")
    stage.runner = FlowerRunner(FlowerSettings(stage.folder / "state", checkpoints=store))
    for name in ("a", "b"):
        stage.ensure(name)
    stage.phases()
    played.here = set(played.nodes.values())
    insist(lambda: _started(stage))
    played.finish(True)
    assert set(stage.phases().values()) == {Phase.SUCCEEDED}
    POISON[poison](stage.folder / "work/flower/status.json")
    insist(lambda: stage.runner.forget("job"))
    assert not (stage.folder / "state/job").exists()


def test_the_log_is_not_written_through_a_link(stage: Stage) -> None:
    stage.until_running()
    (stage.folder / "store.db").write_text("the scheduler's")
    (stage.folder / "work/flower/superlink.log").symlink_to(stage.folder / "store.db")
    (stage.folder / "state/job/superlink.log").write_text("a line\n")
    insist(lambda: stage.runner.forget("job"))
    assert (stage.folder / "store.db").read_text() == "the scheduler's"
    assert (stage.folder / "work/flower/superlink.log").read_text() == "a line\n"
    assert not (stage.folder / "work/flower/superlink.log").is_symlink()


def test_a_stop_that_comes_after_the_end_of_the_job_still_stops_the_node(
    stage: Stage, played: Played
) -> None:
    stage.until_running()
    insist(lambda: stage.runner.forget("job"))
    insist(lambda: stage.runner.stop(stage.assignment("a")))
    (process,) = played.processes[stage.assignment("a").nodes[0].address].values()
    assert process.state == "exited"
    assert "job" not in stage.runner._jobs


def test_an_earlier_attempt_on_the_same_instance_is_ended_first(stage: Stage, played: Played) -> None:
    stage.until_running()
    first = stage.assignment("a")
    again = replace(first, attempt=2)
    stage.runner.ensure(again)
    stage.phases()
    processes = played.processes[first.nodes[0].address]
    assert {name: one.state for name, one in processes.items()} == {
        "flower.job.client-a.1": "exited",
        "flower.job.client-a.2": "running",
    }


@pytest.mark.real
def test_threads_do_not_pile_up_behind_nodes_that_hang(stage: Stage, played: Played) -> None:
    stage.until_running()
    hurry(stage, 0.05)
    played.slow_nodes.clear()
    stage.phases()
    before = threading.active_count()
    for _ in range(20):
        stage.phases()
    assert threading.active_count() == before


def test_a_server_app_that_waits_for_more_clients_than_there_are_fails_the_job(stage: Stage) -> None:
    stage.until_running()
    line = "INFO :      Waiting for nodes to connect: 2 connected (minimum required: {})"
    stage.played.said = line.format(2)
    assert stage.phases() == {"a": Phase.RUNNING, "b": Phase.RUNNING}
    stage.played.said = line.format(5)
    stage.phases()
    assert stage.messages() == ["its ServerApp waits for 5 clients, and the job has 2 left"] * 2


def test_a_server_app_that_makes_no_progress_fails_the_job_unless_a_client_owes_a_result(
    stage: Stage, clock: Clock
) -> None:
    stage.until_running()
    delivered = {"a": {"owes": False}, "b": {"owes": False}}
    stage.say(run=1, completed=1, clients={**delivered, "a": {"owes": True}})
    hours = 1.2 * IDLE_WITHIN_S
    found = pass_by(stage, clock, hours, 14.0)
    assert {report.phase for report in found.values()} == {Phase.RUNNING, Phase.WAITING}
    stage.say(run=1, completed=2, clients=delivered)
    found = pass_by(stage, clock, hours, 14.0)
    assert {report.phase for report in found.values()} == {Phase.FAILED}
    assert "has made no progress for 3600 s" in found["a"].message
