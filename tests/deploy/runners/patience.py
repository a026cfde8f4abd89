"""A runner that is asked until it is so far, as the loop of the scheduler does; and what still lives."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from deploy.model.tasks import Assignment, Phase, TaskReport
from deploy.node import procfs
from deploy.runners.base import Runner, RunnerError
from deploy.runners.detached import TAG
from tests.deploy.node.agents import wait_until

R = TypeVar("R", bound=Runner)
PATIENCE_S = 480.0
"""Far more than anything takes, as other tests may keep the machine busy."""


def insist(act: Callable[[], None]) -> None:
    """Do it as often as it takes."""
    end = time.monotonic() + PATIENCE_S
    while True:
        try:
            return act()
        except RunnerError:
            assert time.monotonic() < end
            time.sleep(0.1)


def alive(pid: int) -> bool:
    found = procfs.read(pid)
    return found is not None and found.alive


def left_behind(state: Path) -> dict[int, str]:
    """What still runs of a runner with this state: PIDs and tags."""
    tags = {one.pid: procfs.environment(one.pid).get(TAG, "") for one in procfs.scan() if one.alive}
    return {pid: tag for pid, tag in tags.items() if tag.startswith(str(state.resolve()))}


class Asked(Generic[R]):
    """A runner, which may be replaced by one that knows only what is on the disk."""

    runner: R
    workdir: Path

    def ensure(self, assignment: Assignment) -> Assignment:
        insist(lambda: self.runner.ensure(assignment))
        return assignment

    def stop(self, assignment: Assignment) -> None:
        insist(lambda: self.runner.stop(assignment))

    def forget(self, job_id: str) -> None:
        insist(lambda: self.runner.forget(job_id))

    def report(self, assignment: Assignment) -> TaskReport:
        (found,) = self.runner.reports([assignment])
        return found

    def ended(self, assignment: Assignment) -> TaskReport:
        wait_until(lambda: self.report(assignment).phase.ended)
        return self.report(assignment)

    def outcome(self, assignment: Assignment) -> tuple[Phase, str]:
        found = self.ended(assignment)
        return found.phase, found.message
