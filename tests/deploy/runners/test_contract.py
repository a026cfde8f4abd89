"""What every runner keeps.

Flower's differs in two points: asked for an attempt that was stopped it refuses, where the others do nothing;
and it does not know of an attempt before it is asked for it, so that a stop before that is none.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from deploy.model.jobs import TaskKey
from deploy.model.tasks import Assignment, Phase
from deploy.node.api import ProcessStatus
from deploy.runners.bag.runner import BagRunner
from deploy.runners.bag.task import BagSettings
from deploy.runners.base import Runner, RunnerError
from deploy.runners.flower.runner import FlowerRunner
from deploy.runners.spark.runner import SparkRunner
from deploy.runners.spark.settings import SparkSettings
from deploy.runners.workflow.application import WorkflowSettings
from deploy.runners.workflow.runner import WorkflowRunner
from tests.deploy.node.agents import AgentProcess, loopback_address, wait_until
from tests.deploy.runners.flower.stage import Clock, Stage, play
from tests.deploy.runners.flower.world import MEAN
from tests.deploy.runners.patience import Asked, insist, left_behind
from tests.deploy.runners.spark.cases import batch, install
from tests.deploy.runners.spark.conftest import FOREVER
from tests.deploy.runners.test_bag import KEY
from tests.deploy.runners.test_bag import spec as bag
from tests.deploy.workflows import file, step, workflow

pytestmark = pytest.mark.real
Patch = pytest.MonkeyPatch


@dataclass
class Case(Asked[Runner]):
    """A task that would run for ten minutes on one node.

    Attributes:
        made: makes a runner that knows only what is on the disk.
        first: the first attempt.
        processes: what runs, or has run, on the node.
        kept: what the runner has of the job.
        refuses: what the runner says to an attempt that was stopped; nothing where it does nothing.
    """

    made: Callable[[], Runner]
    first: Assignment
    processes: Callable[[], tuple[ProcessStatus, ...]]
    kept: Path
    refuses: str = ""

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        self.runner = self.made()

    def begin(self) -> None:
        self.ensure(self.first)
        # What is still missing may begin with a look.
        phases = (Phase.STARTING, Phase.RUNNING)
        wait_until(lambda: self.report(self.first).phase in phases and len(self.processes()) == 1)


def started(runner: Runner) -> Runner:
    runner.start()
    return runner


@contextmanager
def of_bags(folder: Path, patch: Patch) -> Iterator[Case]:
    settings = BagSettings(state=folder / "state", reports_within_s=30.0)
    (folder / "work").mkdir()
    with AgentProcess(folder) as agent:
        first = Assignment(KEY, 1, bag(["sleep", "600"]), (agent.node(),), str(folder / "work"))
        kept = folder / "state/jobs" / KEY.job_id
        yield Case(lambda: started(BagRunner(settings)), first, lambda: agent.client.status().processes, kept)


@contextmanager
def of_spark(folder: Path, patch: Patch) -> Iterator[Case]:
    home = install(folder / "spark home")
    patch.setattr("deploy.runners.spark.runner.find_spark", lambda: home)
    settings = SparkSettings(state=folder / "state", address=loopback_address(), lost_after_s=0.0)
    with AgentProcess(folder) as agent:
        first = batch(FOREVER, folder / "work", [agent.node()], 1)
        kept = settings.state / "jobs" / first.key.job_id
        case = Case(lambda: SparkRunner(settings), first, lambda: agent.client.status().processes, kept)
        yield case
        insist(case.runner.shutdown)
    assert not left_behind(settings.state)


@contextmanager
def of_workflows(folder: Path, patch: Patch) -> Iterator[Case]:
    home = install(folder / "spark home")
    for module in ("spark", "workflow"):
        patch.setattr(f"deploy.runners.{module}.runner.find_spark", lambda: home)
    spark = SparkSettings(state=folder, address=loopback_address(), lost_after_s=0.0)
    settings = WorkflowSettings(folder / "state", spark, {"n": folder / "data"})
    (folder / "data/data").mkdir(parents=True)
    (folder / "data/data/numbers").write_text("1 2 3")
    (folder / "work").mkdir()
    (folder / "work/wait.py").write_text(FOREVER)
    spec = workflow(step("wait", "numbers", "sum"), files=(file("numbers", "n"),))
    with AgentProcess(folder) as agent:
        node = replace(agent.node(), region="n")
        first = Assignment(TaskKey(KEY.job_id, "wait"), 1, spec, (node,), str(folder / "work"))
        kept = folder / "state/jobs" / KEY.job_id
        case = Case(
            lambda: started(WorkflowRunner(settings)), first, lambda: agent.client.status().processes, kept
        )
        yield case
        insist(case.runner.shutdown)
    assert not left_behind(folder / "state")


@contextmanager
def of_flower(folder: Path, patch: Patch) -> Iterator[Case]:
    """Against a SuperLink and nodes that are played: see `flower/stage.py`."""
    played = play(patch)
    shutil.copytree(MEAN, folder / "work/mean")
    stage = Stage(folder, played, Clock())
    stage.runner.close()
    first = stage.assignment("a")

    def processes() -> tuple[ProcessStatus, ...]:
        return tuple(played.processes.get(first.nodes[0].address, {}).values())

    made, refuses = lambda: started(FlowerRunner(stage.settings)), "only a new attempt can run"
    yield Case(made, first, processes, stage.state, refuses)


@pytest.fixture(
    params=[of_bags, of_spark, of_workflows, of_flower], ids=["bag", "spark", "workflow", "flower"]
)
def case(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: Patch) -> Iterator[Case]:
    with request.param(tmp_path, monkeypatch) as case:
        yield case


def test_an_attempt_that_was_stopped_before_it_began_never_begins(case: Case) -> None:
    if case.refuses:
        pytest.skip("it knows of no attempt before it is asked for it")
    case.stop(case.first)
    case.ensure(case.first)
    assert case.report(case.first).phase is Phase.LOST
    assert case.processes() == ()
    case.forget(case.first.key.job_id)


def test_an_attempt_begins_once_whoever_asks(case: Case) -> None:
    case.begin()
    case.ensure(case.first)
    case.restart()
    case.ensure(case.first)
    assert not case.report(case.first).phase.ended
    assert len(case.processes()) == 1


def test_a_stopped_attempt_is_gone_and_stays_so(case: Case) -> None:
    case.begin()
    case.stop(case.first)
    for _ in range(2):
        assert [one.state for one in case.processes()] == ["exited"]
        assert case.report(case.first).phase is Phase.LOST
        case.stop(case.first)
        with pytest.raises(RunnerError, match=case.refuses) if case.refuses else nullcontext():
            case.runner.ensure(case.first)
    case.restart()
    assert case.report(case.first).phase is Phase.LOST


def test_nothing_is_kept_of_a_job_that_is_over(case: Case) -> None:
    case.begin()
    case.stop(case.first)
    for _ in range(2):
        case.forget(case.first.key.job_id)
        assert not case.kept.exists()
