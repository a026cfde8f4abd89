"""Asynchronous trainings with real SuperLinks, SuperNodes, apps and brokers over real node agents."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spotweave.agents.federated.asynchronous.aggregator import UpdateError
from spotweave.deploy.fl import broker, checkpoints
from spotweave.deploy.fl.broker import Memory, Places
from spotweave.deploy.jobfile import read_job
from spotweave.deploy.model.jobs import Flower, FlowerClient, JobSpec
from spotweave.deploy.model.strategies import HaleFed
from spotweave.deploy.model.tasks import Phase
from spotweave.deploy.node import procfs
from spotweave.deploy.runners.detached import Limits
from spotweave.deploy.runners.flower import brokers as under_test
from spotweave.deploy.runners.flower.brokers import Brokers, end_brokers
from spotweave.deploy.runners.flower.settings import JobFiles
from spotweave.deploy.runners.flower.superlink import free_ports
from tests.deploy.node.agents import ROOT, command
from tests.deploy.runners.flower.world import APPS, EXAMPLE, World, job_spec, world
from tests.deploy.runners.patience import left_behind

COUNT = APPS / "count"
NAMES = ("a", "b", "c")


def counting(rounds: int, strategy: dict[str, Any]) -> JobSpec:
    """Each update adds one to its client's weight: two to a version, whose mean is taken twice."""
    clients = {name: {"place": str(place)} for place, name in enumerate(NAMES)}
    whole = json.loads(job_spec("count", rounds, clients, epoch_s="1.0").model_dump_json())
    whole["work"]["strategy"] = strategy | {"updates_per_round": 2, "server_rate": 2.0}
    return JobSpec.model_validate_json(json.dumps(whole))


@pytest.mark.real
@pytest.mark.nightly
def test_three_clients_and_two_brokers_learn_to_read_digits(tmp_path: Path) -> None:
    spec = read_job(ROOT / "examples/fed_suda.yaml")
    # Which clients a version is made of depends on their speed here: in ten, each has been in several.
    versions = 10
    spec = spec.model_copy(update={"work": spec.work.model_copy(update={"rounds": versions})})
    with world(tmp_path, spec, EXAMPLE) as here:
        here.runner.check(spec, str(here.workdir))
        here.place_all()
        reports = here.wait_for_phase(Phase.SUCCEEDED)
        status = here.status()
        assert status.finished
        assert status.history[versions]["accuracy"] > max(0.6, status.history[1]["accuracy"])
        assert {found["updates"] for found in status.history.values()} == {3.0}
        assert {report.executions_done for report in reports.values()} == {versions}
        # No update has come to the server.
        assert not (here.workdir / "flower/updates").exists()
        for task in here.assignments:
            here.stop(task)
        here.forget()
        assert not left_behind(tmp_path / "state")


def used_weights(here: World) -> list[float]:
    """Of the newest checkpoint: how many updates of each client were used."""
    found = checkpoints.load(here.workdir / "flower/checkpoints")
    assert found is not None
    return [float(value) for value in np.asarray(found.arrays["weights"], dtype=float)]


def trained(folder: Path, name: str) -> int:
    """How often a client has trained, on all its nodes."""
    return sum(len(path.read_text()) for path in folder.glob(f"**/story.{name}/state/trained"))


def kill(here: World, program: str) -> None:
    """End one of the scheduler's processes of the job, without a warning."""
    lines = {pid: command(pid) for pid in left_behind(here.folder / "state")}
    (pid,) = [pid for pid, line in lines.items() if program in line and "launcher" not in line]
    os.kill(pid, signal.SIGKILL)


def wait_for_versions(here: World, count: int) -> None:
    """Until there are so many more."""
    before = here.status().completed
    here.wait_for(lambda reports: reports["client-b"].executions_done >= before + count)


@pytest.mark.real
@pytest.mark.nightly
def test_no_update_is_lost_or_used_twice_whatever_is_killed(tmp_path: Path) -> None:
    """A client's instance, each broker, the ServerApp and the scheduler are killed."""
    spec = counting(14, {"kind": "hale_fed", "brokers": 2, "staleness_most": 1000})
    with world(tmp_path, spec, COUNT) as here:
        here.place_all()
        here.wait_for(lambda reports: reports["client-b"].executions_done >= 1)
        here.agents["client-a"].destroy()
        here.place("client-a")
        kill(here, "brokers/1/settings.json")
        wait_for_versions(here, 2)
        kill(here, "brokers/0/settings.json")
        wait_for_versions(here, 2)
        kill(here, "flwr-serverapp")
        here.restart_scheduler()
        wait_for_versions(here, 2)
        here.wait_for_phase(Phase.SUCCEEDED)
        assert here.job().record.runs == 2
        memory = [
            Memory.model_validate_json((tmp_path / f"state/story/brokers/{number}/memory.json").read_bytes())
            for number in range(2)
        ]
        # The brokers do not hear of the last version: its list is still agreed on, and the same at both.
        assert memory[0].agreed == memory[1].agreed
        used = [*memory[0].settled, *memory[0].agreed]
        assert len(set(used)) == len(used)
        counted = used_weights(here)
        assert sum(counted) == pytest.approx(2 * 14)
        for place, name in enumerate(NAMES):
            waiting = [
                {path.name for path in (tmp_path / f"state/story/brokers/{number}/shards").glob(f"{place}-*")}
                for number in range(2)
            ]
            agreed = [one for one in memory[0].agreed if one.participant == place]
            in_use = len([one for one in used if one.participant == place])
            assert counted[place] == pytest.approx(in_use)
            complete = len(waiting[0] & waiting[1]) - len(agreed)
            lost = trained(tmp_path, name) - in_use - complete
            # One is on its way at the end; of client a another was, when its instance was destroyed.
            assert 0 <= lost <= (2 if name == "a" else 1)
        here.forget()


@pytest.mark.real
@pytest.mark.nightly
def test_the_same_of_a_server_without_brokers(tmp_path: Path) -> None:
    """HP-ASGD; a client's instance, the ServerApp and the SuperLink are killed."""
    spec = counting(10, {"kind": "hp_asgd", "staleness_most": 1000})
    with world(tmp_path, spec, COUNT) as here:
        here.place_all()
        here.wait_for(lambda reports: reports["client-b"].executions_done >= 1)
        here.agents["client-a"].destroy()
        here.place("client-a")
        kill(here, "flwr-serverapp")
        wait_for_versions(here, 2)
        kill(here, "flower.guarded")
        here.wait_for_phase(Phase.SUCCEEDED)
        status, kept = here.status(), checkpoints.load(here.workdir / "flower/checkpoints")
        assert kept is not None
        assert kept.round == status.completed == 10
        counts = json.loads(kept.state)["counts"]
        assert counts == status.used
        # A version takes all that waits, and at least two.
        updates = [found["updates"] for found in status.history.values()]
        assert min(updates) >= 2
        assert sum(updates) == sum(counts)
        waiting = [path.name for path in (here.workdir / "flower/updates").glob("*.npz")]
        for place, name in enumerate(NAMES):
            mine = len([one for one in waiting if one.startswith(f"{place}-")])
            lost = trained(tmp_path, name) - counts[place] - mine
            # One is on its way at the end, and one at each of two deaths of the server; of a, one more.
            assert 0 <= lost <= (4 if name == "a" else 3)
        here.forget()


# Broker processes as the runner starts, finds and ends them.


WORK = Flower(
    app="x",
    rounds=3,
    clients=(FlowerClient(name="a"), FlowerClient(name="b", samples=2)),
    strategy=HaleFed(kind="hale_fed", updates_per_round=2),
)
PATIENCE_S = 90.0


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    end_brokers(tmp_path)


def of_job(folder: Path, ports: list[int]) -> Brokers:
    (folder / "keys").mkdir(exist_ok=True)
    return Brokers(JobFiles(folder), "127.0.0.1", ports, WORK, Limits())


def answering(brokers: Brokers, silent_s: float = PATIENCE_S) -> Brokers:
    """Once they have said how clients stand, which they can when they know the model."""
    until_s = time.monotonic() + PATIENCE_S
    while True:
        brokers.keep_running()
        brokers.look(silent_s)
        if brokers.standing and not brokers.problem:
            return brokers
        if not brokers.problem:
            # They are there and know of no model: that is no silence.
            for place in brokers.places(broker.SERVER):
                place.post("/v1/model", {"version": 0, "size": 2})
        assert time.monotonic() < until_s, brokers.problem
        time.sleep(0.1)


def pids(folder: Path) -> list[int]:
    """Of the brokers themselves, by number."""
    found = {}
    for process in procfs.scan():
        words = command(process.pid).split("\0") if process.alive else []
        for number in range(2):
            if "spotweave.deploy.fl.broker_server" in words and f"{folder}/brokers/{number}/" in words[-2]:
                found[number] = process.pid
    return [found[number] for number in sorted(found)]


@pytest.mark.real
def test_brokers_that_are_killed_or_hang_come_back(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(under_test, "_LOOK_S", 0.5)
    monkeypatch.setattr(under_test, "_RESTART_S", 0.5)
    ports = free_ports("127.0.0.1", 2)
    answering(of_job(folder, ports))
    first = pids(folder)
    assert len(first) == 2
    os.kill(first[0], signal.SIGKILL)
    os.kill(first[1], signal.SIGSTOP)
    # Another scheduler goes on, with the same ports, certificates and tokens.
    later = of_job(folder, ports)
    assert later.places(broker.SERVER) == of_job(folder, ports).places(broker.SERVER)
    answering(later, silent_s=2.0)
    assert not set(first) & set(pids(folder))
    assert [one.used for one in later.standing] == [0, 0]
    end_brokers(folder)
    assert not pids(folder)


@pytest.mark.real
def test_a_client_is_given_its_own_tokens_only(folder: Path) -> None:
    brokers = answering(of_job(folder, free_ports("127.0.0.1", 2)))
    given = {name: Places.model_validate_json(brokers.places_file(name)).brokers for name in ("a", "b")}
    tokens = [place.token for who in (*given.values(), brokers.places(broker.SERVER)) for place in who]
    assert len(set(tokens)) == 6
    shard = bytes(16)
    given["a"][0].ask("PUT", "/v1/shards/0/1", shard)
    with pytest.raises(UpdateError, match="expected a token of this broker"):
        given["a"][0].model_copy(update={"token": given["b"][1].token}).ask("PUT", "/v1/shards/0/2", shard)
    with pytest.raises(UpdateError, match="client-1 may not do that"):
        given["b"][1].post("/v1/held")
