"""What every runner keeps.

Flower's differs in two points: asked for an attempt that was stopped it refuses, where the others do nothing;
and it does not know of an attempt before it is asked for it, so that a stop before that is none.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from spotweave.deploy.model.tasks import Assignment, Phase
from spotweave.deploy.node.api import ProcessStatus
from spotweave.deploy.runners.base import RunnerError
from spotweave.deploy.runners.flower.runner import FlowerRunner
from tests.deploy.node.agents import AgentProcess, wait_until
from tests.deploy.runners import test_bag, test_workflow
from tests.deploy.runners.flower.stage import Clock, Stage, play
from tests.deploy.runners.flower.world import MEAN
from tests.deploy.runners.patience import Asked
from tests.deploy.runners.spark.cases import JOB
from tests.deploy.runners.spark.conftest import FOREVER, world_of
from tests.deploy.workflows import file, step, workflow

pytestmark = pytest.mark.real
Patch = pytest.MonkeyPatch


@dataclass
class Case:
    """A task that would run for ten minutes on one node."""

    asked: Asked[Any]
    first: Assignment
    kept: Path  # what the runner has of the job
    processes: Callable[[], Sequence[ProcessStatus]]  # what runs, or has run, on the node
    refuses: str = ""  # what the runner says to an attempt that was stopped; nothing where it does nothing

    def begin(self) -> None:
        self.asked.ensure(self.first)
        # What is still missing may begin with a look.
        phases = (Phase.STARTING, Phase.RUNNING)
        wait_until(lambda: self.asked.report(self.first).phase in phases and len(self.processes()) == 1)


def on(agent: AgentProcess, asked: Asked[Any], first: Assignment, kept: Path) -> Case:
    return Case(asked, first, kept, lambda: agent.client.status().processes)


@contextmanager
def of_bags(folder: Path, patch: Patch) -> Iterator[Case]:
    story = test_bag.Story(folder, test_bag.spec(["sleep", "600"]))
    with AgentProcess(folder) as agent:
        yield on(agent, story, story.on(agent), folder / "state/jobs" / test_bag.KEY.job_id)


@contextmanager
def of_spark(folder: Path, patch: Patch) -> Iterator[Case]:
    with world_of(folder, patch) as world:
        yield on(world.agent, world, world.attempt(FOREVER), world.settings.state / "jobs" / JOB)


@contextmanager
def of_workflows(folder: Path, patch: Patch) -> Iterator[Case]:
    spec = workflow(step("wait", "numbers", "sum"), files=(file("numbers", "n"),))
    with test_workflow.story_of(folder, patch, spec) as story, AgentProcess(folder) as agent:
        (story.workdir / "wait.py").write_text(FOREVER)
        yield on(agent, story, story.on(agent, "wait", "n"), story.state / "jobs" / test_workflow.JOB)


class PlayedClient(Asked[FlowerRunner]):
    """One of a job whose SuperLink and nodes are played: see `flower/stage.py`."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.restart()

    def restart(self) -> None:
        self.stage.restart()
        self.runner = self.stage.runner


@contextmanager
def of_flower(folder: Path, patch: Patch) -> Iterator[Case]:
    played = play(patch)
    shutil.copytree(MEAN, folder / "work/mean")
    stage = Stage(folder, played, Clock())

    def processes() -> Sequence[ProcessStatus]:
        return list(played.processes.get(stage.address("a"), {}).values())

    refuses = "only a new attempt can run"
    yield Case(PlayedClient(stage), stage.assignment("a"), stage.state, processes, refuses)


@pytest.fixture(
    params=[of_bags, of_spark, of_workflows, of_flower], ids=["bag", "spark", "workflow", "flower"]
)
def case(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: Patch) -> Iterator[Case]:
    with request.param(tmp_path, monkeypatch) as case:
        yield case


def test_an_attempt_that_was_stopped_before_it_began_never_begins(case: Case) -> None:
    if case.refuses:
        pytest.skip("it knows of no attempt before it is asked for it")
    case.asked.stop(case.first)
    case.asked.ensure(case.first)
    assert case.asked.report(case.first).phase is Phase.LOST
    assert case.processes() == ()
    case.asked.forget(case.first.key.job_id)


def test_an_attempt_begins_once_whoever_asks(case: Case) -> None:
    case.begin()
    case.asked.ensure(case.first)
    case.asked.restart()
    case.asked.ensure(case.first)
    assert not case.asked.report(case.first).phase.ended
    assert len(case.processes()) == 1


def test_a_stopped_attempt_is_gone_and_stays_so(case: Case) -> None:
    case.begin()
    case.asked.stop(case.first)
    for _ in range(2):
        assert [one.state for one in case.processes()] == ["exited"]
        assert case.asked.report(case.first).phase is Phase.LOST
        case.asked.stop(case.first)
        with pytest.raises(RunnerError, match=case.refuses) if case.refuses else nullcontext():
            case.asked.runner.ensure(case.first)
    case.asked.restart()
    assert case.asked.report(case.first).phase is Phase.LOST


def test_nothing_is_kept_of_a_job_that_is_over(case: Case) -> None:
    case.begin()
    case.asked.stop(case.first)
    for _ in range(2):
        case.asked.forget(case.first.key.job_id)
        assert not case.kept.exists()
