"""A server on an instance of its own: started, lost and replaced while its SuperLink and clients stay."""

from __future__ import annotations

import json
from functools import partial

import numpy as np
import pytest
from pydantic import ValidationError

from spotweave.deploy.fl import checkpoints
from spotweave.deploy.fl.checkpoints import Checkpoint, Setup, Status
from spotweave.deploy.model.jobs import Flower, TaskKey
from spotweave.deploy.model.tasks import Assignment, Node, Phase, TaskReport
from tests.deploy.runners.flower.stage import RUNNING, Stage
from tests.deploy.runners.flower.world import job_spec, placed
from tests.deploy.runners.patience import insist

BELOW = "flower/job.server"
ROUNDS = 20


class ServerStage:
    """A stage whose job has a placed server."""

    def __init__(self, stage: Stage) -> None:
        self.stage, self.played = stage, stage.played
        stage.spec = placed(job_spec("mean", ROUNDS, {"a": {}, "b": {}}))
        self.attempt = 0

    @property
    def assignment(self) -> Assignment:
        node = Node(f"i-s{self.attempt}", self.address, 1, "token", 1, 1.0)
        key = TaskKey("job", "server")
        return Assignment(key, self.attempt, self.stage.spec, (node,), str(self.stage.folder / "work"))

    @property
    def address(self) -> str:
        return f"127.1.0.{self.attempt}"

    def place(self) -> None:
        self.attempt += 1
        insist(partial(self.stage.runner.ensure, self.assignment))

    def replace(self) -> None:
        insist(partial(self.stage.runner.stop, self.assignment))
        self.place()

    def look(self) -> TaskReport:
        """The server's report after a step of the job."""
        return self.stage.due().reports([self.assignment, *self.stage.both()])[0]

    def made(self, name: str) -> bytes | None:
        return self.played.files.get((self.address, f"{BELOW}/{name}"))

    def make(self, run: int, completed: int, content: bytes | None = None) -> None:
        """As its ServerApp does after a round."""
        whole = checkpoints.encode(Checkpoint(completed, {"weights": np.full(2, float(completed))}))
        name = f"flower/checkpoints/{checkpoints.file_name(completed)}"
        self.played.files[self.address, f"{BELOW}/{name}"] = whole if content is None else content
        status = Status(run=run, completed=completed).model_dump_json().encode()
        self.played.files[self.address, f"{BELOW}/flower/status.json"] = status

    def setup(self) -> Setup:
        content = self.made("setup.json")
        assert content is not None
        return Setup.model_validate_json(content)

    @property
    def kept(self) -> list[int]:
        here = (self.stage.flower / "checkpoints").glob("*")
        return sorted(checkpoints.rounds_of(path.name for path in here))

    @property
    def live_runs(self) -> int:
        return sum(not run.finished for run in self.played.list)


@pytest.fixture
def awaited(fresh: Stage) -> ServerStage:
    """One whose clients are there, and its server is not."""
    made = ServerStage(fresh)
    insist(fresh.begin)
    return made


@pytest.fixture
def server(awaited: ServerStage) -> ServerStage:
    """One that runs."""
    awaited.place()
    awaited.look()
    assert awaited.look().phase is Phase.RUNNING
    return awaited


def test_no_run_begins_before_the_server_is_there(awaited: ServerStage) -> None:
    awaited.stage.phases()
    assert not awaited.played.list
    awaited.place()
    assert awaited.look().phase is Phase.RUNNING
    assert len(awaited.played.list) == 1
    assert (awaited.setup().run, awaited.setup().placed) == (1, True)
    assert awaited.setup().folder == f"/node/{BELOW}/flower"
    assert awaited.made("runtime.token")
    given = [path for address, path in awaited.played.files if address == awaited.address]
    assert not any("control" in path or "client" in path for path in given), "only what it needs"


def test_a_server_lost_ten_times_repeats_no_round_that_is_kept(server: ServerStage) -> None:
    """Each time after another round: what it made is here, and on its next instance before the run begins."""
    stage = server.stage
    for lost in range(1, 11):
        server.make(run=lost, completed=lost)
        server.look()
        assert server.kept == [lost - 1, lost][lost == 1 :]
        server.played.unreachable.add(server.address)
        server.look()
        if lost == 5:
            # The scheduler dies in between, and hears of the next attempt first.
            stage.restart()
        server.replace()
        server.look()
        assert server.look().executions_done == lost
        assert server.made(f"flower/checkpoints/{checkpoints.file_name(lost)}") is not None
        assert server.setup().run == lost + 1
        assert len(server.played.list) == lost + 1
        assert server.live_runs == 1
    assert stage.phases() == RUNNING
    assert server.played.starts == 1, "its SuperLink stays"
    assert not server.played.offline, "so do the clients' connections"


def test_clients_owe_again_what_was_lost_with_the_server(server: ServerStage) -> None:
    stage = server.stage
    clients = {"a": {"owes": False}, "b": {"owes": True}}
    status = Status.model_validate({"run": 1, "clients": clients}).model_dump_json().encode()
    server.played.files[server.address, f"{BELOW}/flower/status.json"] = status
    server.look()
    assert stage.phases() == {"a": Phase.WAITING, "b": Phase.RUNNING}
    insist(partial(stage.runner.stop, server.assignment))
    assert stage.phases() == RUNNING
    assert not any(report.delivered for report in stage.reports().values())


def test_a_checkpoint_that_is_not_whole_is_not_taken(server: ServerStage) -> None:
    server.make(run=1, completed=1, content=b"half of it")
    assert server.look().executions_done == 0
    assert server.kept == []
    server.make(run=1, completed=1)
    server.look()
    assert server.look().executions_done == 1


def test_what_no_server_could_say_fails_the_job(server: ServerStage) -> None:
    server.played.files[server.address, f"{BELOW}/flower/status.json"] = b'{"run": 1, "completed": 99}'
    server.look()
    report = server.look()
    assert report.phase is Phase.FAILED
    assert report.message == "flower/status.json says that 99 of 20 rounds are completed"


def test_a_training_succeeds_only_once_its_last_checkpoint_is_here(server: ServerStage) -> None:
    server.make(run=1, completed=ROUNDS)
    server.played.finish(True)
    server.played.unreachable.add(server.address)
    assert server.look().phase is Phase.RUNNING
    assert server.kept == []
    server.played.unreachable.clear()
    server.look()
    assert server.look().phase is Phase.SUCCEEDED
    assert server.kept == [ROUNDS]


def test_a_server_whose_process_ends_is_lost(server: ServerStage) -> None:
    server.make(run=1, completed=2)
    server.stage.runner.drain(server.assignment, [server.assignment.nodes[0].instance_id], 30.0)
    report = server.look()
    while report.phase is Phase.RUNNING:
        report = server.look()
    assert (report.phase, report.message.split(":")[0]) == (Phase.LOST, "left on notice")
    assert server.kept == [2], "its instance still answered"


def test_a_job_says_what_its_server_must_have() -> None:
    spec = placed(job_spec("mean", 2, {"a": {}}), region="near", memory_gib=16.0)
    assert spec.tasks == ("server", "client-a")
    assert (spec.resources_of("server").memory_gib, spec.resources_of("client-a").memory_gib) == (16.0, 1.0)
    assert spec.places_of("server").regions == ("near",)
    assert spec.places_of("client-a").regions is None
    clash = json.dumps({"app": "mean", "rounds": 2, "clients": [{"name": "server"}], "server": {}})
    with pytest.raises(ValidationError, match="a client is called 'server'"):
        Flower.model_validate_json(clash)


def states(server: ServerStage) -> list[str]:
    return [one.state for one in server.played.processes[server.address].values()]


def test_a_start_that_was_not_written_down_leaves_the_server_running(server: ServerStage) -> None:
    job = server.stage.job()
    job.record.server.seen = False
    job.save()
    server.stage.restart()
    insist(server.stage.begin)
    insist(partial(server.stage.runner.ensure, server.assignment))
    server.look()
    assert server.look().phase is Phase.RUNNING
    assert states(server) == ["running"]
    assert len(server.played.list) == 1


def test_a_client_may_be_called_server_where_none_is_placed(fresh: Stage) -> None:
    """While its node is starting, looks leave its process alone."""
    fresh.spec = job_spec("mean", 4, {"server": {}})
    node = Node("i-1", "127.1.0.1", 1, "token", 1, 1.0)
    key = TaskKey("job", "client-server")
    assignment = Assignment(key, 1, fresh.spec, (node,), str(fresh.folder / "work"))
    insist(partial(fresh.runner.ensure, assignment))
    for _ in range(3):
        assert fresh.due().reports([assignment])[0].phase is Phase.STARTING
    assert [one.state for one in fresh.played.processes[node.address].values()] == ["running"]
