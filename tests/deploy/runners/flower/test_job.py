"""One job step by step against a SuperLink that a test plays."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from deploy.fl.checkpoints import Participation, Setup, Status
from deploy.model.jobs import TaskKey
from deploy.model.tasks import Assignment, Node, Phase
from deploy.node.api import NodeStatus, ProcessSpec, ProcessStatus
from deploy.node.client import NodeRefused, NodeUnreachable
from deploy.runners.base import RunnerError
from deploy.runners.flower import job as job_module
from deploy.runners.flower import liveness
from deploy.runners.flower import runner as runner_module
from deploy.runners.flower.job import FlowerJob
from deploy.runners.flower.runner import FlowerRunner, FlowerSettings
from deploy.runners.flower.status import MAX_FRUITLESS
from deploy.runners.flower.superlink import Run, SuperLinkDown
from tests.deploy.runners.flower.world import MEAN, job_spec
from tests.deploy.runners.patience import insist

SPEC = job_spec("mean", 4, {"a": {}, "b": {}})


class Played:
    """What the SuperLink and the nodes would say."""

    def __init__(self) -> None:
        self.starts = 0
        self.alive = False
        self.nodes: dict[str, int] = {}
        self.here: set[int] = set()
        self.list: list[Run] = []
        self.offline: list[str] = []
        self.refuse = ""
        self.said = ""
        """The last line of the SuperLink's log."""
        self.processes: dict[str, dict[str, ProcessStatus]] = {}
        self.unreachable: set[str] = set()
        self.slow = threading.Event()
        """Set: answers come at once; not set: they do not come."""
        self.slow.set()
        self.slow_nodes = threading.Event()
        self.slow_nodes.set()

    def finish(self, completed: bool, details: str = "") -> None:
        self.list[-1] = Run(self.list[-1].run_id, True, completed, details)


class PlayedSuperLink:
    """As `SuperLink`."""

    played: Played

    def __init__(self, *_: object) -> None:
        self.address = "127.0.0.1:1"
        self.log = Path("/nonexistent")

    def running(self) -> bool:
        return self.played.alive

    def start(
        self, workdir: Path, setup: Path, env: Mapping[str, str], *_: object, fresh: bool = False
    ) -> None:
        self.played.starts += 1
        self.played.alive = True

    def fault(self) -> str:
        return ""

    def last_line(self) -> str:
        return self.played.said or "no such option"

    def forgive(self) -> None:
        pass

    def end(self) -> None:
        self.played.alive = False

    def forget_connection(self) -> None:
        pass

    def _answer(self) -> Played:
        assert self.played.slow.wait(60)
        if not self.played.alive:
            raise SuperLinkDown("refused")
        return self.played

    def online(self) -> set[int]:
        return set(self._answer().here)

    def register(self, name: str) -> int:
        return self._answer().nodes.setdefault(name, 100 + len(self.played.nodes))

    def set_offline(self, name: str, node_id: int) -> None:
        self._answer().offline.append(name)
        self.played.here.discard(node_id)

    def runs(self) -> list[Run]:
        return list(self._answer().list)

    def stop_run(self, run_id: int) -> None:
        self._answer().list = [
            Run(run.run_id, True, False, "stopped") if run.run_id == run_id else run
            for run in self.played.list
        ]

    def trim_log(self) -> None:
        pass

    def start_run(self, name: str, content: bytes, config: Mapping[str, object]) -> int:
        if self._answer().refuse:
            raise ValueError(self.played.refuse)
        self.played.list.append(Run(1000 + len(self.played.list), False, False, ""))
        return self.played.list[-1].run_id


class PlayedNode:
    """As `NodeClient`."""

    played: Played

    def __init__(self, address: str, *_: object) -> None:
        self.address = address

    def __enter__(self) -> PlayedNode:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def _mine(self) -> dict[str, ProcessStatus]:
        assert self.played.slow_nodes.wait(60)
        if self.address in self.played.unreachable:
            raise NodeUnreachable("refused")
        return self.played.processes.setdefault(self.address, {})

    def status(self) -> NodeStatus:
        return NodeStatus(
            instance_id=self.address,
            address=self.address,
            workdir="/node",
            now_s=0.0,
            processes=tuple(self._mine().values()),
        )

    def put_file(self, path: str, content: Path) -> None:
        assert content.exists()

    def start_process(self, spec: ProcessSpec) -> ProcessStatus:
        return self._mine().setdefault(
            spec.process_id, ProcessStatus(process_id=spec.process_id, pid=1, state="running", started_s=0.0)
        )

    def process(self, process_id: str) -> ProcessStatus:
        try:
            return self._mine()[process_id]
        except KeyError:
            raise NodeRefused(404, "unknown") from None

    def _end(self, process_id: str, code: int) -> ProcessStatus:
        ended = self.process(process_id).model_copy(update={"state": "exited", "exit_code": code})
        self._mine()[process_id] = ended
        return ended

    def signal(self, process_id: str, name: str) -> ProcessStatus:
        return self._end(process_id, 0)

    def stop_process(self, process_id: str, wait_s: float) -> ProcessStatus:
        return self._end(process_id, 0)

    def last_log(self, process_id: str) -> bytes:
        return b"Traceback (most recent call last):\n  x\nImportError: no module\n"


class Stage:
    """A runner, its two clients, and what it thinks runs."""

    def __init__(self, folder: Path, played: Played) -> None:
        self.folder = folder
        self.played = played
        self.runner = FlowerRunner(FlowerSettings(folder / "state"))
        self.runner.start()
        self.attempts = {"a": 1, "b": 1}
        self.spec = SPEC

    def assignment(self, name: str) -> Assignment:
        attempt = self.attempts[name]
        node = Node(f"i-{name}{attempt}", f"127.0.{attempt}.{ord(name)}", 1, "token", 1, 1.0)
        return Assignment(
            TaskKey("job", f"client-{name}"), attempt, self.spec, (node,), str(self.folder / "work")
        )

    def ensure(self, name: str) -> None:
        self.runner.ensure(self.assignment(name))

    def phases(self) -> dict[str, Phase]:
        # A look that is due: a test does not wait between two steps.
        for held in self.runner._jobs.values():
            if held.job is not None:
                held.job._next_look_s = held.job._next_start_s = 0.0
        reports = self.runner.reports([self.assignment(name) for name in ("a", "b")])
        return {report.key.task[-1]: report.phase for report in reports}

    def stop(self, name: str) -> None:
        insist(lambda: self.runner.stop(self.assignment(name)))

    def job(self) -> FlowerJob:
        job = self.runner._jobs["job"].job
        assert job is not None
        return job

    def messages(self) -> list[str]:
        return [r.message for r in self.runner.reports([self.assignment(name) for name in ("a", "b")])]

    def say(self, **status: object) -> None:
        (self.folder / "work/flower").mkdir(exist_ok=True)
        Status.model_validate(status).save(self.folder / "work/flower/status.json")

    def until_running(self) -> None:
        for name in ("a", "b"):
            self.ensure(name)
        self.phases()
        self.played.here = set(self.played.nodes.values())
        self.phases()
        assert self.phases() == {"a": Phase.RUNNING, "b": Phase.RUNNING}


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> Played:
    played = Played()
    PlayedSuperLink.played = PlayedNode.played = played
    monkeypatch.setattr(job_module, "SuperLink", PlayedSuperLink)
    monkeypatch.setattr(job_module, "NodeClient", PlayedNode)
    monkeypatch.setattr(runner_module, "NodeClient", PlayedNode)
    monkeypatch.setattr(liveness, "NodeClient", PlayedNode)
    return played


@pytest.fixture
def stage(tmp_path: Path, played: Played) -> Stage:
    shutil.copytree(MEAN, tmp_path / "work/mean")
    return Stage(tmp_path, played)


def test_the_run_starts_when_all_clients_are_there(stage: Stage, played: Played) -> None:
    stage.ensure("a")
    assert stage.phases()["a"] is Phase.STARTING
    played.here = {played.nodes["a"]}
    stage.phases()
    assert not played.list
    stage.ensure("b")
    played.here = set(played.nodes.values())
    stage.phases()
    assert len(played.list) == 1
    setup = Setup.load(stage.folder / "state/job/superlink/setup.json")
    assert setup is not None
    assert (setup.rounds, setup.run) == (4, 1)
    assert {name: client.attempt for name, client in setup.clients.items()} == {"a": 1, "b": 1}


def test_who_has_delivered_waits_and_all_succeed_together(stage: Stage, played: Played) -> None:
    stage.until_running()
    clients = {
        "a": Participation(owes=False, delivered=2, last_epoch_s=7.0),
        "b": Participation(owes=True, asked_s=time.time(), last_epoch_s=9000.0),
    }
    stage.say(run=1, completed=1, clients=clients)
    assert stage.phases() == {"a": Phase.WAITING, "b": Phase.RUNNING}
    report = stage.runner.reports([stage.assignment("a")])[0]
    assert (report.progress, report.saved, report.executions_done) == (0.25, 0.25, 1)
    assert report.last_execution_s == 7.0
    assert report.execution_since_s is None  # it has delivered
    (other,) = stage.runner.reports([stage.assignment("b")])
    assert other.execution_since_s == clients["b"].asked_s
    played.finish(True)
    assert stage.phases() == {"a": Phase.SUCCEEDED, "b": Phase.SUCCEEDED}
    # Never twice: neither a new attempt nor a restart of the scheduler starts it again.
    stage.attempts["a"] = 2
    stage.ensure("a")
    stage.runner = FlowerRunner(FlowerSettings(stage.folder / "state"))
    assert stage.phases() == {"a": Phase.SUCCEEDED, "b": Phase.SUCCEEDED}
    assert len(played.list) == 1


def test_a_released_client_is_told_of_the_job_without_a_node(stage: Stage, played: Played) -> None:
    stage.until_running()
    clients = {"a": Participation(owes=False), "b": Participation(owes=True, last_epoch_s=9.0)}
    stage.say(run=1, completed=1, clients=clients)
    insist(lambda: stage.runner.stop(stage.assignment("a")))
    released = Assignment(TaskKey("job", "client-a"), 1, SPEC, (), str(stage.folder / "work"))
    report = stage.runner.reports([released])[0]
    assert report.phase is Phase.WAITING
    stage.say(run=1, completed=1, clients=clients | {"a": Participation(owes=True)})
    assert stage.runner.reports([released])[0].phase is Phase.STARTING
    played.finish(True)
    stage.phases()
    assert stage.runner.reports([released])[0].phase is Phase.SUCCEEDED


def test_a_client_that_leaves_is_not_among_those_who_take_part(stage: Stage, played: Played) -> None:
    stage.until_running()
    insist(lambda: stage.runner.stop(stage.assignment("a")))
    stage.runner.leave(stage.assignment("a"))
    setup = Setup.load(next((stage.folder / "state").rglob("setup.json")))
    assert setup is not None
    assert set(setup.clients) == {"b"}


def test_a_dead_superlink_is_started_again_and_the_run_too(stage: Stage, played: Played) -> None:
    stage.until_running()
    stage.say(run=1, completed=2)
    played.alive = False
    assert stage.phases() == {"a": Phase.RUNNING, "b": Phase.RUNNING}
    assert played.starts == 2
    # The old run still counts as running there, and is not taken for a new one.
    stage.phases()
    assert [run.finished for run in played.list] == [True, False]
    assert stage.job().record.runs == 2
    assert stage.runner.reports([stage.assignment("a")])[0].executions_done == 2


def test_superlinks_that_die_are_not_the_users_fault(stage: Stage, played: Played) -> None:
    stage.until_running()
    for count in range(2, 2 * MAX_FRUITLESS):
        played.alive = False
        stage.phases()
        assert stage.phases() == {"a": Phase.RUNNING, "b": Phase.RUNNING}
        assert (played.starts, len(played.list)) == (count, count)


def test_a_run_that_was_started_when_the_scheduler_died_is_adopted(stage: Stage, played: Played) -> None:
    stage.until_running()
    record = stage.job().record
    record.run_id = 0
    record.save(stage.folder / "state/job/job.json")
    stage.runner = FlowerRunner(FlowerSettings(stage.folder / "state"))
    stage.phases()
    stage.phases()
    assert stage.job().record.run_id == 1000
    assert len(played.list) == 1
    assert played.starts == 1


def test_a_server_that_dies_again_and_again_is_the_users_fault(stage: Stage, played: Played) -> None:
    stage.until_running()
    for count in range(1, MAX_FRUITLESS + 1):
        assert len(played.list) == count
        played.finish(False, "Task failed with unknown error.")
        stage.phases()
    assert stage.phases() == {"a": Phase.FAILED, "b": Phase.FAILED}
    assert "out of memory" in stage.messages()[0]
    assert len(played.list) == MAX_FRUITLESS


def test_runs_that_are_lost_after_a_round_do_not_count(stage: Stage, played: Played) -> None:
    stage.spec = job_spec("mean", 2 * MAX_FRUITLESS, {"a": {}, "b": {}})
    stage.until_running()
    for count in range(1, 2 * MAX_FRUITLESS):
        stage.say(run=count, completed=count)
        played.finish(False, "Task failed with unknown error.")
        assert stage.phases()["a"] is not Phase.FAILED
    assert len(played.list) == 2 * MAX_FRUITLESS


def test_a_servers_error_fails_all_until_a_new_attempt(stage: Stage, played: Played) -> None:
    stage.until_running()
    stage.say(run=1, completed=1, error="KeyError: 'x'")
    played.finish(False, "ServerApp failed with exception: 'x'")
    assert stage.phases() == {"a": Phase.FAILED, "b": Phase.FAILED}
    assert stage.messages() == ["KeyError: 'x'"] * 2
    for name in ("a", "b"):
        stage.stop(name)
        stage.attempts[name] = 2
        stage.ensure(name)
    played.here = set(played.nodes.values())
    assert stage.phases() == {"a": Phase.RUNNING, "b": Phase.RUNNING}
    assert len(played.list) == 2


def test_an_app_that_flower_refuses_fails(stage: Stage, played: Played) -> None:
    played.refuse = "app 'mean': no"
    stage.ensure("a")
    stage.ensure("b")
    stage.phases()
    played.here = set(played.nodes.values())
    stage.phases()
    assert stage.phases() == {"a": Phase.FAILED, "b": Phase.FAILED}
    assert stage.messages() == ["app 'mean': no"] * 2


def test_a_clients_error_is_its_own(stage: Stage) -> None:
    stage.until_running()
    reason = "An exception was raised when attempting to load `ClientApp`"
    clients = {"a": Participation(error=reason, error_attempt=1), "b": Participation()}
    stage.say(run=1, clients=clients)
    assert stage.phases() == {"a": Phase.FAILED, "b": Phase.RUNNING}
    assert stage.messages()[0] == "the ClientApp cannot be loaded: ImportError: no module"


def test_a_drained_client_is_lost_and_its_place_at_the_superlink_free(stage: Stage, played: Played) -> None:
    stage.until_running()
    assignment = stage.assignment("a")
    stage.runner.drain(assignment, ["another"], 30.0)
    assert stage.phases()["a"] is Phase.RUNNING
    stage.runner.drain(assignment, [assignment.nodes[0].instance_id], 30.0)
    assert stage.phases()["a"] is Phase.LOST
    assert "left on notice" in stage.messages()[0]
    stage.runner.stop(assignment)
    stage.attempts["a"] = 2
    stage.ensure("a")
    assert "a" in played.offline
    setup = Setup.load(stage.folder / "state/job/superlink/setup.json")
    assert setup is not None
    assert setup.clients["a"].attempt == 2
    with pytest.raises(RunnerError, match="only a new attempt"):
        stage.runner.ensure(assignment)


def test_a_node_that_does_not_answer_is_not_lost_until_it_is_stopped(stage: Stage, played: Played) -> None:
    stage.until_running()
    assignment = stage.assignment("a")
    played.unreachable = {assignment.nodes[0].address}
    assert stage.phases()["a"] is Phase.RUNNING
    stage.runner.stop(assignment)
    assert stage.phases()["a"] is Phase.LOST
    # Its place at the SuperLink is free for the next attempt.
    assert played.offline == ["a"]


def test_a_process_that_ended_by_itself_is_lost_with_its_last_words(stage: Stage, played: Played) -> None:
    stage.until_running()
    PlayedNode(stage.assignment("a").nodes[0].address)._end("flower.job.client-a.1", -9)
    assert stage.phases()["a"] is Phase.LOST
    assert stage.messages()[0] == "the SuperNode ended with -9: ImportError: no module"


def test_what_was_never_started_can_be_stopped_and_forgotten(stage: Stage, played: Played) -> None:
    assert stage.phases() == {"a": Phase.LOST, "b": Phase.LOST}
    insist(lambda: stage.runner.stop(stage.assignment("a")))
    insist(lambda: stage.runner.forget("job"))
    assert played.starts == 0


def test_a_forgotten_job_leaves_no_secrets(stage: Stage, played: Played) -> None:
    stage.until_running()
    insist(lambda: stage.runner.forget("job"))
    assert not played.alive
    assert not (stage.folder / "state/job").exists()
    assert stage.phases() == {"a": Phase.LOST, "b": Phase.LOST}
    assert played.starts == 1
