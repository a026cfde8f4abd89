"""Slow, hung, broken and hostile jobs next to a good one."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from spotweave.deploy.fl import checkpoints
from spotweave.deploy.fl.checkpoints import Checkpoint, Participation
from spotweave.deploy.model.jobs import SERVER, TaskKey
from spotweave.deploy.model.tasks import Assignment, Node, Phase, TaskReport
from spotweave.deploy.runners.base import RunnerError
from spotweave.deploy.runners.flower.superlink import SuperLinkDown
from spotweave.deploy.runners.flower.training import IDLE_WITHIN_S
from tests.deploy.hostile import TRICKS, Trick, terabyte
from tests.deploy.node.agents import wait_until
from tests.deploy.runners.flower.stage import (
    AWS_FAILED,
    FAILED,
    LOST,
    RUNNING,
    SUCCEEDED,
    PlayedSuperLink,
    Stage,
    Store,
)
from tests.deploy.runners.flower.world import MEAN, job_spec
from tests.deploy.runners.patience import insist


def other(stage: Stage) -> Assignment:
    """Of another job, which nobody disturbs."""
    work = stage.folder / "other"
    if not work.exists():
        shutil.copytree(MEAN, work / "mean")
    node = Node("i-x", "127.9.9.9", 1, "token", 1, 1.0)
    return Assignment(TaskKey("other", "client-x"), 1, job_spec("mean", 4, {"x": {}}), (node,), str(work))


def look(stage: Stage) -> list[TaskReport]:
    """At client a, at that of the other job, and at client b."""
    a, b = stage.both()
    return list(stage.runner.reports([a, other(stage), b]))


def given_up(
    stage: Stage, until_s: float, within_s: float, words: str, phase: Phase = Phase.RUNNING
) -> dict[str, TaskReport]:
    """Client a goes on until then, and is lost within some time more."""
    assert stage.pass_by(until_s)["a"].phase is phase
    found = stage.pass_by(within_s)
    assert found["a"].phase is Phase.LOST
    assert words in found["a"].message
    return found


def no_folder(file: Path, _: Path) -> None:
    file.parent.rmdir()
    file.parent.touch()


def link_to_folder(file: Path, _: Path) -> None:
    file.parent.rmdir()
    file.parent.symlink_to("/etc")


# Of files and their contents only some: `test_detached.py` and `test_status.py` have all.
POISON: dict[str, Trick] = {
    "no JSON": lambda file, _: file.write_text("{"),
    "a terabyte": terabyte,
    **{name: TRICKS[name] for name in ("a pipe", "a folder", "a link")},
    "no folder": no_folder,
    "a link to a folder": link_to_folder,
}


@pytest.mark.parametrize("poison", POISON)
def test_a_job_whose_status_is_poison_fails_and_no_other(stage: Stage, poison: str) -> None:
    stage.runner.ensure(other(stage))
    POISON[poison](stage.flower / "status.json", Path("/etc/passwd"))
    a, x, b = look(stage)
    assert (a.phase, x.phase, b.phase) == (Phase.FAILED, Phase.STARTING, Phase.FAILED)
    assert a.message == b.message
    assert a.message.startswith("flower")
    assert "\n" not in a.message
    # Its nodes are stopped, it is tried again, and fails again; then it is over and forgotten.
    stage.try_again("a", "b")
    assert stage.phases() == FAILED
    stage.forget()
    assert not stage.played.alive
    assert not stage.state.exists()


def test_reports_are_bounded_whatever_a_serverapp_says(stage: Stage) -> None:
    stage.say(
        run=1,
        metrics={f"{number}" * 100: 1e308 for number in range(1000)} | {"node_id": 7.0, "run": 7.0},
        resumed_from="x" * 1000,
        clients={"a": Participation(error="x\n" * 500, error_attempt=1)},
    )
    stage.phases()
    report = stage.reports()["a"]
    assert len(report.message) <= 300
    assert "\n" not in report.message
    assert len(report.details) < 50
    assert max(len(text) for pair in report.details.items() for text in pair) <= 100
    assert report.details["node_id"] == str(stage.job().record.clients["a"].node_id)
    assert report.details["run"] == "1"


@pytest.mark.parametrize("broken", ["{", '{"port": 1}', "\0"])
def test_a_job_whose_record_is_broken_is_lost_alone_and_can_be_forgotten(stage: Stage, broken: str) -> None:
    stage.runner.ensure(other(stage))
    stage.runner.close()
    (stage.state / "job.json").write_text(broken)
    stage.restart()
    a, x, _ = look(stage)
    assert (a.phase, x.phase) == (Phase.LOST, Phase.STARTING)
    assert a.message
    assert "\n" not in a.message
    with pytest.raises(RunnerError):
        stage.ensure("a")
    stage.forget()
    assert not stage.state.exists()


def test_an_exception_of_the_runner_is_that_jobs_loss(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.runner.ensure(other(stage))

    def fail(*_: object) -> None:
        raise ZeroDivisionError("a bug\nof ours")

    monkeypatch.setattr(stage.job(), "step", fail)
    a, x, b = look(stage)
    assert (a.phase, x.phase, b.phase) == (Phase.LOST, Phase.STARTING, Phase.LOST)
    assert a.message == "ZeroDivisionError: a bug of ours"
    monkeypatch.undo()
    monkeypatch.setattr(stage.job(), "client", fail)
    assert stage.reports()["a"].phase is Phase.LOST


def test_a_superlink_that_hangs_delays_its_own_reports_only(stage: Stage) -> None:
    stage.hurry(0.5)
    stage.runner.ensure(other(stage))
    stage.played.slow.clear()
    # The other job has it from here on: it is not the played one.
    held = stage.runner._jobs["other"]
    assert held.job is not None
    held.job.step = lambda assignments: None  # type: ignore[method-assign]
    for job in stage.runner._jobs.values():
        assert job.job is not None
        job.job._next_look_s = 0.0
    began_s = time.perf_counter()
    phases = [[report.phase for report in look(stage)] for _ in range(20)]
    # Only the first look waits; 20 that wait would take 10 s.
    assert time.perf_counter() - began_s < 5
    assert phases == [[Phase.RUNNING, Phase.STARTING, Phase.RUNNING]] * 20
    with pytest.raises(RunnerError, match="slow to answer"):
        stage.ensure("a")
    stage.played.slow.set()
    insist(lambda: stage.ensure("a"))
    assert stage.phases() == RUNNING


def test_a_job_that_keeps_the_runner_waiting_is_given_up(stage: Stage) -> None:
    stage.hurry(0.1)
    stage.played.slow.clear()
    given_up(stage, 110, 30, "have kept the runner waiting")


@pytest.mark.real
def test_sixty_ends_that_hang_do_not_hold_the_loop(stage: Stage) -> None:
    stage.played.slow_nodes.clear()
    began_s = time.perf_counter()
    attempts = [replace(stage.assignment("a"), attempt=number) for number in range(1, 61)]
    for one in attempts:
        with pytest.raises(RunnerError, match="still ends"):
            stage.runner.stop(one)
    assert time.perf_counter() - began_s < 15
    # One that never answers leaves nothing open.
    stage.clock.ahead_s += 60
    stage.stop("a")
    stage.played.slow_nodes.set()
    for one in attempts[1:]:
        insist(partial(stage.runner.stop, one))
    assert stage.phases()["a"] is Phase.LOST


@pytest.mark.real
def test_a_job_can_be_ended_while_its_superlink_hangs(stage: Stage) -> None:
    stage.hurry(0.1)
    stage.played.slow.clear()
    stage.phases()

    def forget() -> None:
        try:
            stage.runner.forget("job")
        finally:
            # What its end does to the one that hangs.
            stage.played.slow.set()

    insist(forget)
    assert not stage.state.exists()
    assert stage.reports()["a"].phase is Phase.LOST
    assert not stage.played.alive


@pytest.mark.parametrize("phase", [Phase.STARTING, Phase.RUNNING, Phase.WAITING])
def test_a_node_that_does_not_answer_is_given_up_in_every_phase(fresh: Stage, phase: Phase) -> None:
    if phase is Phase.STARTING:
        fresh.ensure("a", "b")
        fresh.phases()
    else:
        fresh.until_running()
        waits = Participation(owes=phase is Phase.RUNNING)
        fresh.say(run=1, completed=1, clients={"a": waits, "b": Participation()})
    assert fresh.phases()["a"] is phase
    fresh.played.unreachable = {fresh.address("a")}
    found = given_up(fresh, 50, 30, "its node has not answered for", phase)
    assert found["b"].phase in (Phase.STARTING, Phase.RUNNING)
    # For good, though it should come back: its instance is being ended.
    fresh.played.unreachable = set()
    assert fresh.phases()["a"] is Phase.LOST
    fresh.try_again("a")
    fresh.played.here.add(fresh.played.nodes["a"])
    fresh.phases()
    assert fresh.phases()["a"] is not Phase.LOST


def test_a_supernode_that_is_offline_is_given_up(stage: Stage) -> None:
    """Its agent answers and its process runs: it was stopped with SIGSTOP."""
    stage.played.here.discard(stage.played.nodes["a"])
    assert stage.pass_by(50)["a"].phase is Phase.RUNNING
    # One that was away for a moment is not.
    stage.played.here.add(stage.played.nodes["a"])
    stage.phases()
    stage.played.here.discard(stage.played.nodes["a"])
    found = given_up(stage, 50, 30, "its SuperNode has been offline for")
    assert found["b"].phase is Phase.RUNNING
    assert stage.played.offline == ["a"]


def test_nodes_that_find_a_new_superlink_are_not_given_up(stage: Stage) -> None:
    stage.played.here.clear()
    stage.pass_by(50)
    stage.played.alive = False
    assert stage.pass_by(50)["a"].phase is Phase.RUNNING


def test_a_supernode_that_never_comes_online_is_given_up(fresh: Stage) -> None:
    fresh.ensure("a")
    fresh.phases()
    given_up(fresh, 290, 30, "has not come online within", Phase.STARTING)


def owe(stage: Stage, asked_s: float = 5.0, last_epoch_s: float | None = 10.0, delivered: int = 1) -> None:
    a = Participation(owes=True, asked_s=asked_s, last_epoch_s=last_epoch_s, delivered=delivered)
    stage.say(run=1, completed=1, clients={"a": a, "b": Participation(owes=False, delivered=2)})


def test_a_client_that_hangs_in_a_round_is_given_up(stage: Stage) -> None:
    # 120 s and 5 times the 10 s that it took before.
    owe(stage)
    found = given_up(stage, 165, 15, "it hangs: it has owed a result for 17")
    assert found["b"].phase is Phase.WAITING
    # A machine may simply be slower than the last: the next one is given twice the time.
    stage.try_again("a")
    stage.phases()
    stage.all_come()
    owe(stage, asked_s=200.0)
    given_up(stage, 330, 30, "it hangs")


def test_each_question_has_its_own_time(stage: Stage) -> None:
    for asked_s in range(4):
        owe(stage, asked_s=float(asked_s), delivered=asked_s)
        assert stage.pass_by(150)["a"].phase is Phase.RUNNING


def test_a_client_of_which_nothing_is_known_has_all_the_time(stage: Stage) -> None:
    owe(stage, last_epoch_s=None)
    assert stage.pass_by(2000, step_s=14.0)["a"].phase is Phase.RUNNING


def test_what_the_job_says_of_an_epoch_counts_before_one_is_measured(fresh: Stage) -> None:
    work = fresh.spec.work.model_copy(update={"epoch_s": 20.0})
    fresh.spec = fresh.spec.model_copy(update={"work": work})
    fresh.until_running()
    owe(fresh, last_epoch_s=None)
    given_up(fresh, 210, 20, "it hangs")


def test_a_superlink_that_runs_and_does_not_answer_is_started_again(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: object) -> None:
        raise SuperLinkDown("no whole answer within 10 s")

    monkeypatch.setattr(PlayedSuperLink, "_answer", refuse)
    stage.pass_by(50)
    assert (stage.played.starts, stage.played.alive) == (1, True)
    stage.pass_by(40)
    assert stage.played.starts == 2
    # Again and again in vain: then it is said so, and nobody pays for waiting nodes.
    report = stage.pass_by(600)["a"]
    assert (report.phase, report.message) == (Phase.LOST, "the SuperLink does not start: no such option")


def test_a_superlink_that_always_dies_loses_its_clients(stage: Stage) -> None:
    for _ in range(5):
        stage.played.alive = False
        stage.job().record.starts += 1
        stage.phases()
    stage.played.alive = False
    assert stage.phases() == LOST
    assert stage.messages() == ["the SuperLink does not start: no such option"] * 2
    # A new attempt has a new chance.
    stage.try_again("a", "b")
    stage.all_come()
    stage.phases()
    assert stage.phases() == RUNNING


def test_the_app_is_the_one_that_came_with_the_job(fresh: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its ServerApp may write into its own folder: what a later run is made of must not be what it likes."""
    given: list[bytes] = []

    start = PlayedSuperLink.start_run

    def start_run(self: PlayedSuperLink, name: str, content: bytes, config: Mapping[str, object]) -> int:
        given.append(content)
        return start(self, name, content, config)

    monkeypatch.setattr(PlayedSuperLink, "start_run", start_run)
    fresh.until_running()
    app = fresh.folder / "work/mean"
    (fresh.folder / "secret.py").write_text("SECRET")
    (app / "pyproject.toml").unlink()
    (app / "pyproject.toml").symlink_to(fresh.folder / "secret.py")
    (app / "mean/more.py").write_text("MORE")
    for _ in range(2):
        fresh.played.finish(False, "Task failed with unknown error.")
        fresh.phases()
        fresh.restart()
    assert len(given) == 3
    assert len(set(given)) == 1


def test_what_a_superlink_sees_is_one_folder_without_clients_keys(stage: Stage) -> None:
    assert set(os.listdir(stage.state)) == {"app.fab", "app.json", "job.json", "keys", "superlink"}
    assert set(os.listdir(stage.state / "keys")) >= {"authority.pem", "control.token"}
    assert os.listdir(stage.state / "superlink") == ["setup.json"]


@pytest.mark.real
def test_a_checkpoint_that_cannot_be_kept_holds_up_no_end(
    fresh: Stage, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    fresh.restart(checkpoints=store, keep_within_s=2.0)
    fresh.until_started()
    store.down = AWS_FAILED
    checkpoints.save(fresh.flower / "checkpoints", Checkpoint(4, {}))
    fresh.say(run=1, completed=4)
    fresh.played.finish(True)
    assert fresh.phases() == SUCCEEDED
    with pytest.raises(RunnerError, match="kept"):
        fresh.runner.forget("job")
    # The processes and the secrets are gone, and only what is needed for the checkpoint is there.
    assert not fresh.played.alive
    assert os.listdir(fresh.state) == ["job.json"]
    # By the wall clock, so that a scheduler that is started again and again gives up too.
    fresh.restart()
    fresh.forget()
    assert not fresh.state.exists()
    assert f"job job: given up after 2 s: checkpoints are not kept: {AWS_FAILED}" in caplog.text


def test_a_store_that_is_down_does_not_keep_nodes(fresh: Stage, store: Store) -> None:
    store.down = AWS_FAILED
    fresh.restart(checkpoints=store)
    fresh.begin()
    fresh.phases()
    given_up(fresh, 550, 60, f"checkpoints cannot be fetched: {AWS_FAILED}", Phase.STARTING)
    assert not fresh.played.list


def test_checkpoints_that_are_a_link_fail_the_job(fresh: Stage, store: Store) -> None:
    """They would be fetched into the folder that it leads to."""
    (fresh.folder / "elsewhere").mkdir()
    fresh.flower.mkdir()
    (fresh.flower / "checkpoints").symlink_to(fresh.folder / "elsewhere")
    store.put("job/run-000001/round-000002.npz", checkpoints.encode(Checkpoint(2, {})))
    fresh.restart(checkpoints=store)
    fresh.begin()
    wait_until(lambda: fresh.phases() == FAILED)
    assert "flower/checkpoints is a link" in fresh.messages()[0]
    assert not list((fresh.folder / "elsewhere").iterdir())


@pytest.mark.parametrize("poison", ["a pipe", "a folder", "a link", "a terabyte", "no folder"])
def test_a_poisoned_status_holds_up_no_end_either(fresh: Stage, store: Store, poison: str) -> None:
    fresh.restart(checkpoints=store)
    fresh.until_started()
    store.down = AWS_FAILED
    fresh.played.finish(True)
    assert fresh.phases() == SUCCEEDED
    POISON[poison](fresh.flower / "status.json", Path("/etc/passwd"))
    fresh.forget()
    assert not fresh.state.exists()


def test_the_log_is_not_written_through_a_link(stage: Stage) -> None:
    (stage.folder / "store.db").write_text("the scheduler's")
    (stage.flower / "superlink.log").symlink_to(stage.folder / "store.db")
    server = replace(stage.assignment("a"), key=TaskKey("job", SERVER), nodes=())
    with pytest.raises(RunnerError, match="has put something else there"):
        stage.runner.log(server, 0, 100)
    (stage.state / "superlink.log").write_text("a line\n")
    assert stage.runner.log(server, 2, 100) == (b"line\n", 7)
    stage.forget()
    assert stage.runner.log(server, -5, 100) == (b"line\n", 7)
    assert (stage.folder / "store.db").read_text() == "the scheduler's"
    assert (stage.flower / "superlink.log").read_text() == "a line\n"
    assert not (stage.flower / "superlink.log").is_symlink()


def test_a_job_that_is_over_leaves_no_secrets_and_a_later_stop_still_stops_its_node(stage: Stage) -> None:
    stage.forget()
    assert not stage.played.alive
    assert not stage.state.exists()
    assert stage.phases() == LOST
    assert stage.played.starts == 1
    stage.stop("a")
    (process,) = stage.played.processes[stage.address("a")].values()
    assert process.state == "exited"
    assert "job" not in stage.runner._jobs


def test_an_earlier_attempt_on_the_same_instance_is_ended_first(stage: Stage) -> None:
    stage.runner.ensure(replace(stage.assignment("a"), attempt=2))
    stage.phases()
    processes = stage.played.processes[stage.address("a")]
    assert {name: one.state for name, one in processes.items()} == {
        "flower.job.client-a.1": "exited",
        "flower.job.client-a.2": "running",
    }


@pytest.mark.real
def test_threads_do_not_pile_up_behind_nodes_that_hang(stage: Stage) -> None:
    stage.hurry(0.05)
    stage.played.slow_nodes.clear()
    stage.phases()
    before = threading.active_count()
    for _ in range(20):
        stage.phases()
    assert threading.active_count() == before


def test_a_server_app_that_waits_for_more_clients_than_there_are_fails_the_job(stage: Stage) -> None:
    line = "INFO :      Waiting for nodes to connect: 2 connected (minimum required: {})"
    stage.played.said = line.format(2)
    assert stage.phases() == RUNNING
    stage.played.said = line.format(5)
    stage.phases()
    assert stage.messages() == ["its ServerApp waits for 5 clients, and the job has 2 left"] * 2


def test_a_server_app_without_progress_fails_the_job_unless_a_client_owes_a_result(stage: Stage) -> None:
    delivered = {"a": {"owes": False}, "b": {"owes": False}}
    stage.say(run=1, completed=1, clients={**delivered, "a": {"owes": True}})
    stage.pass_by(1.2 * IDLE_WITHIN_S, 14.0)
    assert stage.phases() == {"a": Phase.RUNNING, "b": Phase.WAITING}
    stage.say(run=1, completed=2, clients=delivered)
    stage.pass_by(1.2 * IDLE_WITHIN_S, 14.0)
    assert stage.phases() == FAILED
    assert "has made no progress for 3600 s" in stage.messages()[0]
