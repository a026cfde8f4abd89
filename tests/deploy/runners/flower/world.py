"""A runner over real node agents, for stories about real trainings."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from spotweave.deploy.fl.checkpoints import Status
from spotweave.deploy.model.jobs import FlowerServer, JobSpec, TaskKey
from spotweave.deploy.model.tasks import Assignment, Phase, TaskReport
from spotweave.deploy.runners.flower.job import FlowerJob
from spotweave.deploy.runners.flower.runner import FlowerRunner, FlowerSettings
from tests.deploy.node.agents import ROOT, AgentProcess
from tests.deploy.runners.patience import PATIENCE_S, insist

APPS = Path(__file__).parent / "apps"


def job_spec(app: str, rounds: int, clients: dict[str, dict[str, str]], **run_config: str) -> JobSpec:
    work = {
        "kind": "flower",
        "app": app,
        "rounds": rounds,
        "clients": [{"name": name, "config": config} for name, config in clients.items()],
        "run_config": {key.replace("_", "-"): value for key, value in run_config.items()},
    }
    return JobSpec.model_validate_json(json.dumps({"name": "story", "work": work}))


def placed(spec: JobSpec, **asked: Any) -> JobSpec:
    """The same with a server that has an instance of its own."""
    return spec.model_copy(update={"work": spec.work.model_copy(update={"server": FlowerServer(**asked)})})


class World:
    """One job, one instance per client, and a scheduler's loop that can be told what to wait for."""

    def __init__(self, folder: Path, spec: JobSpec, app: Path, **settings: Any) -> None:
        self.folder = folder
        self.settings = FlowerSettings(folder / "state", **settings)
        self.spec = spec
        self.workdir = folder / "work"
        shutil.copytree(app, self.workdir / app.name, ignore=shutil.ignore_patterns("__pycache__"))
        self.runner = self.new_runner()
        self.agents: dict[str, AgentProcess] = {}
        self.assignments: dict[str, Assignment] = {}
        self._all_agents: list[AgentProcess] = []

    def restart_scheduler(self) -> None:
        """What follows knows nothing but what is on the disk and in the processes."""
        self.runner.close()
        self.runner = self.new_runner()

    def new_runner(self) -> FlowerRunner:
        runner = FlowerRunner(self.settings)
        runner.start()
        return runner

    def lose_everything(self) -> None:
        """The scheduler's machine and all others are gone; another gets the job's files, and nothing else."""
        self.runner.shutdown()
        for agent in self._all_agents:
            agent.destroy()
        shutil.rmtree(self.folder / "state")
        shutil.rmtree(self.workdir / "flower")
        self.runner = self.new_runner()

    def place(self, task: str, agent: AgentProcess | None = None) -> Assignment:
        """A new attempt at a task, on a new instance if none is given."""
        if agent is None:
            agent = AgentProcess(self.folder)
            self._all_agents.append(agent)
            agent.start()
        attempt = self.assignments[task].attempt + 1 if task in self.assignments else 1
        self.agents[task] = agent
        assignment = Assignment(
            TaskKey("story", task), attempt, self.spec, (agent.node(),), str(self.workdir)
        )
        self.assignments[task] = assignment
        insist(lambda: self.runner.ensure(assignment))
        return assignment

    def place_all(self) -> None:
        for task in self.spec.tasks:
            self.place(task)

    def stop(self, task: str) -> None:
        insist(lambda: self.runner.stop(self.assignments[task]))

    def reports(self) -> dict[str, TaskReport]:
        """By task."""
        return {report.key.task: report for report in self.runner.reports(list(self.assignments.values()))}

    def wait_for(
        self, true: Callable[[dict[str, TaskReport]], bool], *, after_the_end: bool = False
    ) -> dict[str, TaskReport]:
        """The first reports for which this holds; it may be of attempts that have all ended."""
        end = time.monotonic() + PATIENCE_S
        while not true(reports := self.reports()):
            assert time.monotonic() < end, f"it did not come: {reports}"
            over = reports and all(report.phase.ended for report in reports.values())
            assert after_the_end or not over, f"it cannot come any more: {reports}"
            time.sleep(0.3)
        return reports

    def wait_for_phase(self, phase: Phase) -> dict[str, TaskReport]:
        return self.wait_for(lambda reports: all(report.phase is phase for report in reports.values()))

    def status(self) -> Status:
        status = Status.load(self.workdir / "flower/status.json")
        assert status is not None
        return status

    def forget(self) -> None:
        insist(lambda: self.runner.forget("story"))

    def job(self) -> FlowerJob:
        job = self.runner._jobs["story"].job
        assert job is not None
        return job

    def node_ids(self) -> dict[str, str]:
        """Flower's names of the clients."""
        return {task: report.details["node_id"] for task, report in self.reports().items()}

    def close(self) -> None:
        try:
            self.runner.shutdown()
        finally:
            for agent in self._all_agents:
                agent.destroy()


@contextmanager
def world(folder: Path, spec: JobSpec, app: Path, **settings: Any) -> Iterator[World]:
    """A world that ends with the test; settings are the runner's."""
    made = World(folder, spec, app, **settings)
    try:
        yield made
    finally:
        made.close()


EXAMPLE = ROOT / "examples" / "federated_mnist"
MEAN = APPS / "mean"
