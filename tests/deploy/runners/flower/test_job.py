"""One job step by step against a SuperLink that a test plays."""

from __future__ import annotations

import hashlib
import time
from dataclasses import replace
from pathlib import Path

import pytest

from spotweave.deploy.fl.checkpoints import Participation
from spotweave.deploy.fl.epoch import SAVED, Saved
from spotweave.deploy.model.jobs import Resources
from spotweave.deploy.model.tasks import Phase
from spotweave.deploy.runners.base import RunnerError
from spotweave.deploy.runners.flower.training import MAX_FRUITLESS
from tests.deploy.node.agents import wait_until
from tests.deploy.runners.flower.stage import FAILED, LOST, RUNNING, SUCCEEDED, PlayedNode, Stage
from tests.deploy.runners.flower.world import job_spec


def test_the_run_starts_when_all_clients_are_there(fresh: Stage) -> None:
    fresh.ensure("a")
    assert fresh.phases()["a"] is Phase.STARTING
    wait_until(lambda: bool(fresh.phases()) and "a" in fresh.played.nodes)
    fresh.played.here = {fresh.played.nodes["a"]}
    fresh.phases()
    assert not fresh.played.list
    fresh.ensure("b")
    fresh.all_come()
    fresh.phases()
    assert len(fresh.played.list) == 1
    setup = fresh.setup()
    assert (setup.rounds, setup.run) == (4, 1)
    assert {name: client.attempt for name, client in setup.clients.items()} == {"a": 1, "b": 1}


def test_who_has_delivered_waits_and_all_succeed_together(stage: Stage) -> None:
    clients = {
        "a": Participation(owes=False, delivered=2, last_epoch_s=7.0),
        "b": Participation(owes=True, asked_s=time.time(), last_epoch_s=9000.0),
    }
    stage.say(run=1, completed=1, clients=clients)
    assert stage.phases() == {"a": Phase.WAITING, "b": Phase.RUNNING}
    a, b = stage.reports().values()
    assert (a.progress, a.saved, a.executions_done, a.last_execution_s) == (0.25, 0.25, 1, 7.0)
    assert a.execution_since_s is None, "it has delivered"
    assert b.execution_since_s == clients["b"].asked_s
    stage.played.finish(True)
    assert stage.phases() == SUCCEEDED
    # Never twice: neither a new attempt nor a restart of the scheduler starts it again.
    stage.attempts["a"] = 2
    stage.ensure("a")
    stage.restart()
    assert stage.phases() == SUCCEEDED
    assert len(stage.played.list) == 1


def test_a_released_client_is_told_of_the_job_without_a_node(stage: Stage) -> None:
    clients = {"a": Participation(owes=False), "b": Participation(owes=True, last_epoch_s=9.0)}
    stage.say(run=1, completed=1, clients=clients)
    stage.stop("a")
    released = replace(stage.assignment("a"), nodes=())

    def phase() -> Phase:
        return stage.runner.reports([released])[0].phase

    assert phase() is Phase.WAITING
    stage.say(run=1, completed=1, clients=clients | {"a": Participation(owes=True)})
    assert phase() is Phase.STARTING
    stage.played.finish(True)
    stage.phases()
    assert phase() is Phase.SUCCEEDED


def test_a_client_that_leaves_is_not_among_those_who_take_part(stage: Stage) -> None:
    stage.stop("a")
    stage.runner.leave(stage.assignment("a"))
    assert set(stage.setup().clients) == {"b"}


def test_a_dead_superlink_is_started_again_and_the_run_too_and_the_user_is_not_blamed(stage: Stage) -> None:
    stage.say(run=1, completed=2)
    for count in range(2, 2 * MAX_FRUITLESS):
        stage.played.alive = False
        assert stage.phases() == RUNNING
        assert stage.phases() == RUNNING
        assert (stage.played.starts, stage.job().record.runs) == (count, count)
        # The old run still counts as running there, and is not taken for a new one.
        assert [run.finished for run in stage.played.list] == [True] * (count - 1) + [False]
        assert stage.reports()["a"].executions_done == 2


def test_a_run_that_was_started_when_the_scheduler_died_is_adopted(stage: Stage) -> None:
    record = stage.job().record
    record.run_id = 0
    record.save(stage.state / "job.json")
    stage.restart()
    stage.phases()
    stage.phases()
    assert (stage.job().record.run_id, len(stage.played.list), stage.played.starts) == (1000, 1, 1)


def test_a_server_that_dies_again_and_again_is_the_users_fault(stage: Stage) -> None:
    for count in range(1, MAX_FRUITLESS + 1):
        assert len(stage.played.list) == count
        stage.played.finish(False, "Task failed with unknown error.")
        stage.phases()
    assert stage.phases() == FAILED
    assert "out of memory" in stage.messages()[0]
    assert len(stage.played.list) == MAX_FRUITLESS


def test_runs_that_are_lost_after_a_round_do_not_count(fresh: Stage) -> None:
    fresh.spec = job_spec("mean", 2 * MAX_FRUITLESS, {"a": {}, "b": {}})
    fresh.until_running()
    for count in range(1, 2 * MAX_FRUITLESS):
        fresh.say(run=count, completed=count)
        fresh.played.finish(False, "Task failed with unknown error.")
        assert fresh.phases()["a"] is not Phase.FAILED
    assert len(fresh.played.list) == 2 * MAX_FRUITLESS


def test_a_servers_error_fails_all_until_a_new_attempt(stage: Stage) -> None:
    stage.say(run=1, completed=1, error="KeyError: 'x'")
    stage.played.finish(False, "ServerApp failed with exception: 'x'")
    assert stage.phases() == FAILED
    assert stage.messages() == ["KeyError: 'x'"] * 2
    stage.try_again("a", "b")
    stage.all_come()
    assert stage.phases() == RUNNING
    assert len(stage.played.list) == 2


def test_an_app_that_flower_refuses_fails(fresh: Stage) -> None:
    fresh.played.refuse = "app 'mean': no"
    fresh.begin()
    fresh.phases()
    assert fresh.phases() == FAILED
    assert fresh.messages() == ["app 'mean': no"] * 2


def test_a_clients_error_is_its_own(stage: Stage) -> None:
    reason = "An exception was raised when attempting to load `ClientApp`"
    stage.say(run=1, clients={"a": Participation(error=reason, error_attempt=1), "b": Participation()})
    assert stage.phases() == {"a": Phase.FAILED, "b": Phase.RUNNING}
    assert stage.messages()[0] == "the ClientApp cannot be loaded: ImportError: no module"


def test_a_drained_client_is_lost_and_its_place_at_the_superlink_free(stage: Stage) -> None:
    assignment = stage.assignment("a")
    stage.runner.drain(assignment, ["another"], 30.0)
    assert stage.phases()["a"] is Phase.RUNNING
    stage.runner.drain(assignment, [assignment.nodes[0].instance_id], 30.0)
    assert stage.phases()["a"] is Phase.LOST
    assert "left on notice" in stage.messages()[0]
    stage.runner.stop(assignment)
    stage.attempts["a"] = 2
    stage.ensure("a")
    assert "a" in stage.played.offline
    assert stage.setup().clients["a"].attempt == 2
    with pytest.raises(RunnerError, match="only a new attempt"):
        stage.runner.ensure(assignment)


@pytest.mark.parametrize(("asked", "reached"), [(1, ["nvidia1", "nvidiactl"]), (0, [])])
def test_a_server_app_reaches_gpus_where_its_job_asks_for_some(
    fresh: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: int, reached: list[str]
) -> None:
    for name in ("nvidia0", "nvidia1", "nvidiactl"):
        (tmp_path / name).touch()
    monkeypatch.setattr("spotweave.deploy.node.gpus._DEV", tmp_path)
    fresh.runner._settings = replace(fresh.settings, server_gpus=(1,))
    fresh.spec = fresh.spec.model_copy(update={"resources": Resources(gpus=asked)})
    fresh.ensure("a")
    wait_until(lambda: fresh.phases() and fresh.played.starts)
    assert [path.name for path in fresh.played.devices] == reached


def test_a_node_that_does_not_answer_is_not_lost_until_it_is_stopped(stage: Stage) -> None:
    stage.played.unreachable = {stage.address("a")}
    assert stage.phases()["a"] is Phase.RUNNING
    stage.runner.stop(stage.assignment("a"))
    assert stage.phases()["a"] is Phase.LOST
    # Its place at the SuperLink is free for the next attempt.
    assert stage.played.offline == ["a"]


def test_a_process_that_ended_by_itself_is_lost_with_its_last_words(stage: Stage) -> None:
    assert stage.runner.log(stage.assignment("a"), 6, 100) == (b"1\n", 8)
    with pytest.raises(RunnerError, match="on its instance only"):
        stage.runner.log(replace(stage.assignment("a"), nodes=()), 0, 100)
    PlayedNode(stage.address("a"))._end("flower.job.client-a.1", -9)
    assert stage.phases()["a"] is Phase.LOST
    assert stage.messages()[0] == "the SuperNode ended with -9: ImportError: no module"


def test_what_was_never_started_can_be_stopped_and_forgotten(fresh: Stage) -> None:
    assert fresh.phases() == LOST
    fresh.stop("a")
    fresh.forget()
    assert fresh.played.starts == 0


def save_weights(stage: Stage, name: str, content: bytes, share: float = 0.5, digest: str = "") -> bytes:
    """The first of the two files of a checkpoint. Returns the second."""
    saved = Saved(sha256=digest or hashlib.sha256(content).hexdigest(), round=1, share=share)
    stage.played.files[stage.address(name), f"flower/job.{name}/state/{saved.weights}"] = content
    return saved.model_dump_json().encode()


def save_epoch(stage: Stage, name: str, content: bytes, share: float = 0.5, digest: str = "") -> None:
    """As its ClientApp does in the first round."""
    saved = save_weights(stage, name, content, share, digest)
    stage.played.files[stage.address(name), f"flower/job.{name}/state/{SAVED}"] = saved


def given_epoch(stage: Stage, name: str) -> bytes | None:
    """The weights that the client's next instance gets."""
    stage.try_again(name)
    stage.phases()
    here, state = stage.address(name), f"flower/job.{name}/state"
    told = stage.played.files.get((here, f"{state}/{SAVED}"))
    return told and stage.played.files[here, f"{state}/{Saved.model_validate_json(told).weights}"]


def test_a_clients_checkpoint_is_on_its_next_instance(stage: Stage) -> None:
    stage.say(run=1, clients={"a": Participation(), "b": Participation()})
    save_epoch(stage, "a", b"after step 7", share=0.7)
    assert stage.pass_by(5)["a"].execution_saved == 0.7
    # It saves once more between two looks, and its process ends in the middle of yet another.
    save_epoch(stage, "a", b"after step 8", share=0.8)
    save_weights(stage, "a", b"after step 9")
    PlayedNode(stage.address("a")).stop_process("flower.job.client-a.1", 0.0)
    assert stage.phases()["a"] is Phase.LOST
    stage.restart()
    assert {name: one.execution_saved for name, one in stage.reports().items()} == {"a": 0.8, "b": 0.0}
    assert given_epoch(stage, "a") == b"after step 8"
    assert given_epoch(stage, "b") is None
    stage.say(run=1, completed=1, clients={"a": Participation(), "b": Participation()})
    assert stage.reports()["a"].execution_saved == 0.0, "it is of the round before"


@pytest.mark.parametrize("told", [b"", b"{}", b'{"sha256": "../x", "round": 1, "share": 0.5}', b"\xff"])
def test_a_damaged_or_too_large_checkpoint_is_not_kept(fresh: Stage, told: bytes) -> None:
    fresh.restart(epoch_most_bytes=10)
    fresh.until_running()
    save_epoch(fresh, "a", b"0123456789-")
    save_epoch(fresh, "b", b"01234", digest=hashlib.sha256(b"later").hexdigest())
    fresh.pass_by(5)
    fresh.played.files[fresh.address("b"), f"flower/job.b/state/{SAVED}"] = told
    assert {report.phase for report in fresh.pass_by(5).values()} == {Phase.RUNNING}
    assert given_epoch(fresh, "a") is given_epoch(fresh, "b") is None


def test_a_client_that_has_delivered_gets_no_checkpoint(stage: Stage) -> None:
    save_epoch(stage, "a", b"after step 7")
    stage.pass_by(5)
    stage.say(run=1, completed=0, clients={"a": Participation(owes=False), "b": Participation()})
    stage.phases()
    assert given_epoch(stage, "a") is None
