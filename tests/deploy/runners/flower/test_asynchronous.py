"""Asynchronous trainings with real SuperLinks, SuperNodes, apps and brokers over real node agents."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deploy.fl import checkpoints
from deploy.fl.brokers.broker import Memory
from deploy.jobfile import read_job
from deploy.model.jobs import JobSpec
from deploy.model.tasks import Phase
from tests.deploy.node.agents import ROOT
from tests.deploy.runners.flower.test_stories import command_line
from tests.deploy.runners.flower.world import APPS, EXAMPLE, World, job_spec, world
from tests.deploy.runners.patience import left_behind

pytestmark = [pytest.mark.real, pytest.mark.nightly]

COUNT = APPS / "count"
NAMES = ("a", "b", "c")


def counting(rounds: int, strategy: dict[str, Any]) -> JobSpec:
    """Each update adds one to its client's weight: two to a version, whose mean is taken twice."""
    clients = {name: {"place": str(place)} for place, name in enumerate(NAMES)}
    whole = json.loads(job_spec("count", rounds, clients, epoch_s="1.0").model_dump_json())
    whole["work"]["strategy"] = strategy | {"updates_per_round": 2, "server_rate": 2.0}
    return JobSpec.model_validate_json(json.dumps(whole))


def test_three_clients_and_two_brokers_learn_to_read_digits(tmp_path: Path) -> None:
    spec = read_job(ROOT / "examples/fed_suda.yaml")
    with world(tmp_path, spec, EXAMPLE) as here:
        here.runner.check(spec, str(here.workdir))
        here.place_all()
        reports = here.wait_for_phase(Phase.SUCCEEDED)
        status = here.status()
        assert status.finished
        accuracy = [status.history[number]["accuracy"] for number in range(1, 7)]
        assert accuracy[5] > accuracy[0]
        assert accuracy[5] > 0.6
        assert {found["updates"] for found in status.history.values()} == {3.0}
        assert {report.executions_done for report in reports.values()} == {6}
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


def kill(here: World, program: bytes) -> None:
    """End one of the scheduler's processes of the job, without a warning."""
    lines = {pid: command_line(pid) for pid in left_behind(here.folder / "state")}
    (pid,) = [pid for pid, line in lines.items() if program in line and b"launcher" not in line]
    os.kill(pid, signal.SIGKILL)


def wait_for_versions(here: World, count: int) -> None:
    """Until there are so many more."""
    before = here.status().completed
    here.wait_for(lambda reports: reports["client-b"].executions_done >= before + count)


def test_no_update_is_lost_or_used_twice_whatever_is_killed(tmp_path: Path) -> None:
    """A client's instance, each broker, the ServerApp and the scheduler are killed."""
    spec = counting(14, {"kind": "hale_fed", "brokers": 2, "staleness_most": 1000})
    with world(tmp_path, spec, COUNT) as here:
        here.place_all()
        here.wait_for(lambda reports: reports["client-b"].executions_done >= 1)
        here.agents["client-a"].destroy()
        here.place("client-a")
        kill(here, b"brokers/1/settings.json")
        wait_for_versions(here, 2)
        kill(here, b"brokers/0/settings.json")
        wait_for_versions(here, 2)
        kill(here, b"flwr-serverapp")
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


def test_the_same_of_a_server_without_brokers(tmp_path: Path) -> None:
    """HP-ASGD; a client's instance, the ServerApp and the SuperLink are killed."""
    spec = counting(10, {"kind": "hp_asgd", "staleness_most": 1000})
    with world(tmp_path, spec, COUNT) as here:
        here.place_all()
        here.wait_for(lambda reports: reports["client-b"].executions_done >= 1)
        here.agents["client-a"].destroy()
        here.place("client-a")
        kill(here, b"flwr-serverapp")
        wait_for_versions(here, 2)
        kill(here, b"flower.guarded")
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
