"""A runner with a Spark that starts at once, real node agents and real detached processes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from spotweave.deploy.model.tasks import Assignment
from spotweave.deploy.providers.local.records import loopback_address
from spotweave.deploy.runners.spark.cluster import process_id
from spotweave.deploy.runners.spark.runner import SparkRunner
from spotweave.deploy.runners.spark.settings import SparkHome, SparkSettings
from tests.deploy.node.agents import AgentProcess, wait_until
from tests.deploy.runners.patience import Asked, insist, left_behind
from tests.deploy.runners.spark.cases import JOB, batch, install, master_knows

FOREVER = "import time; open('up', 'w').close(); time.sleep(600)"


@dataclass
class World(Asked[SparkRunner]):
    """One node, the folder of one job, and the runner of the moment."""

    runner: SparkRunner
    home: SparkHome
    settings: SparkSettings
    agent: AgentProcess
    workdir: Path

    def attempt(self, code: str, attempt: int = 1, nodes: list[AgentProcess] | None = None) -> Assignment:
        return batch(code, self.workdir, [one.node() for one in nodes or [self.agent]], attempt)

    def start(self, code: str, attempt: int = 1, nodes: list[AgentProcess] | None = None) -> Assignment:
        assignment = self.attempt(code, attempt, nodes)
        self.runner.ensure(assignment)
        return assignment

    def start_and_wait(self, code: str = FOREVER, attempt: int = 1) -> Assignment:
        """Until the script is up."""
        (self.workdir / "up").unlink(missing_ok=True)
        assignment = self.start(code, attempt)
        wait_until((self.workdir / "up").exists)
        return assignment

    def restart(self) -> None:
        self.runner = SparkRunner(self.settings)

    def drivers(self) -> list[str]:
        """Those of the job that live."""
        return [tag for tag in left_behind(self.settings.state).values() if JOB in tag]

    def master_knows(self, assignment: Assignment, states: dict[str, str]) -> None:
        master_knows(self.home, assignment, states)

    def driver_pid(self) -> int:
        file = self.settings.state / "jobs" / JOB / "main.1" / "driver" / "process.json"
        return int(json.loads(file.read_bytes())["pid"])

    def worker_state(self, assignment: Assignment) -> str:
        return self.agent.client.process(process_id(assignment.attempt_id)).state

    def runs(self) -> str:
        """What scripts wrote, a letter each time they ran."""
        return (self.workdir / "runs").read_text()

    @property
    def secrets(self) -> list[bytes]:
        return [self.runner._master.secret.encode(), self.agent.token.encode()]


@contextmanager
def quick_spark(folder: Path, patch: pytest.MonkeyPatch) -> Iterator[tuple[SparkRunner, SparkHome]]:
    home = install(folder / "spark home")
    patch.setattr("spotweave.deploy.runners.spark.runner.find_spark", lambda: home)
    settings = SparkSettings(state=folder / "the state", address=loopback_address(), lost_after_s=0.0)
    runner = SparkRunner(settings)
    yield runner, home
    insist(runner.shutdown)
    assert not left_behind(settings.state)


@contextmanager
def world_of(folder: Path, patch: pytest.MonkeyPatch) -> Iterator[World]:
    with quick_spark(folder, patch) as (runner, home), AgentProcess(folder) as agent:
        yield World(runner, home, runner._settings, agent, folder / "a folder" / JOB)


@pytest.fixture
def runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SparkRunner]:
    with quick_spark(tmp_path, monkeypatch) as (made, _):
        yield made


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    with world_of(tmp_path, monkeypatch) as made:
        yield made
