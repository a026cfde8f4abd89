"""How attempts end: what their drivers, their nodes and their batches show, decided once and kept."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from spotweave.deploy.model.jobs import SparkStreaming
from spotweave.deploy.model.tasks import Assignment, Phase
from spotweave.deploy.runners import jobfolder
from spotweave.deploy.runners.spark.attempts import Attempt, Attempts, by_cluster, last_error
from spotweave.deploy.runners.spark.cluster import Workers, known_states
from spotweave.deploy.runners.spark.driver import spark_work
from spotweave.deploy.runners.spark.streaming import Batches, BatchLog
from spotweave.deploy.security.untrusted import tail

DRIVER_GRACE_S = 3.0
MAIN = "main"  # the task of a job that has only one
_KILLED = "the driver was killed by signal"
_MOST_KILLS = 3
"""A driver that is killed so often is killed for its own fault: it needs more memory than there is."""


def driver_log(assignment: Assignment) -> Path:
    """What an attempt's driver prints; it stays when the job is over."""
    return Path(assignment.workdir).resolve() / log_name(assignment)


def log_name(assignment: Assignment) -> str:
    """The same below the job's folder, to which the job's code can write."""
    task = assignment.key.task
    return jobfolder.log_name("driver" if task == MAIN else task, assignment.attempt)


def end_driver(attempt: Attempt, why: str, grace_s: float = DRIVER_GRACE_S) -> tuple[Phase, str]:
    """End an attempt's driver, and decide: its work is done if it came to its end meanwhile, else it is lost.

    In this order, so that what was called lost, and is tried again, cannot complete. Raises RunnerError while
    it still ends.
    """
    if (earlier := attempt.ending) is not None:
        why = earlier
    elif attempt.driver.result() is None:
        attempt.ending = why
    attempt.driver.end(grace_s)
    result = attempt.driver.result()
    if result is not None and result.exit_code == 0:
        return attempt.decide(Phase.SUCCEEDED, "")
    if result is not None and result.of_job:
        return attempt.decide(Phase.FAILED, result.error)
    return attempt.decide(Phase.LOST, why)


class Outcomes:
    """Judges attempts. All methods raise RunnerError if a driver that has to be ended cannot be killed."""

    def __init__(self, attempts: Attempts, workers: Workers) -> None:
        self._attempts, self._workers = attempts, workers

    def verdict(
        self, assignment: Assignment, attempt: Attempt, view: Mapping[str, Any] | None
    ) -> tuple[Phase, str] | None:
        """How it ended, if it has; what is decided here is on disk before it is told."""
        if (decided := attempt.verdict) is not None:
            return decided
        if not attempt.known:
            return Phase.LOST, "it was never started here"
        if self.enough(assignment):
            attempt.driver.end(DRIVER_GRACE_S)
            return attempt.decide(Phase.SUCCEEDED, "all its batches are done")
        if (why := attempt.ending) is not None:
            return end_driver(attempt, why)
        result = attempt.driver.result()
        if result is None:
            if attempt.driver.running():
                gone = self._gone(assignment, view, attempt, sure=True)
                if len(gone) < len(assignment.nodes):
                    return None
                return end_driver(attempt, "all its nodes are gone: " + "; ".join(gone))
            if not attempt.driver.was_started():
                return None
            # Its end may have been written between the two looks.
            result = attempt.driver.result()
            if result is None:
                return attempt.decide(Phase.LOST, "the driver and its launcher were killed")
        if result.exit_code == 0:
            return attempt.decide(Phase.SUCCEEDED, "")
        if result.error:
            return attempt.decide(Phase.FAILED if result.of_job else Phase.LOST, result.error)
        if (killed_by := _signal(result.exit_code)) is not None:
            message = f"{_KILLED} {killed_by}"
            if self._kills(assignment) + 1 < _MOST_KILLS:
                return attempt.decide(Phase.LOST, message)
            return attempt.decide(Phase.FAILED, f"{message} again and again: it may need more memory")
        log = tail(Path(assignment.workdir), log_name(assignment))
        lost = by_cluster(log, bool(self._gone(assignment, view, attempt, sure=False)))
        error = last_error(log) or f"the script exited with {result.exit_code}"
        return attempt.decide(Phase.LOST if lost else Phase.FAILED, error)

    def drained(self, assignment: Assignment, view: Mapping[str, Any] | None) -> bool:
        """Whether Spark starts nothing more on any of the nodes: there is no use in waiting for their end."""
        states = known_states(assignment.attempt_id, view)
        return all(states.get(node.address) in ("DECOMMISSIONED", "DEAD") for node in assignment.nodes)

    def enough(self, assignment: Assignment) -> bool:
        """Whether a streaming job has done all its batches."""
        work = spark_work(assignment.spec)
        if not isinstance(work, SparkStreaming) or work.batches is None:
            return False
        return self.batches(assignment).done >= work.batches

    def batches(self, assignment: Assignment) -> Batches:
        """Batches of a job over all its attempts; only streaming jobs have some."""
        work = spark_work(assignment.spec)
        if not isinstance(work, SparkStreaming):
            return Batches()
        folder = self._attempts.job_folder(assignment.key.job_id)
        return BatchLog(folder / "events", folder / "batches.json", work.batch_deadline_s).read()

    def _kills(self, assignment: Assignment) -> int:
        of_task = [one for one in self._attempts.of_job(assignment.key.job_id) if one.key == assignment.key]
        verdicts = [attempt.verdict for attempt in of_task]
        return sum(verdict is not None and verdict[1].startswith(_KILLED) for verdict in verdicts)

    def _gone(
        self, assignment: Assignment, view: Mapping[str, Any] | None, attempt: Attempt, *, sure: bool
    ) -> list[str]:
        up_s = attempt.driver.up_s()
        return self._workers.gone(assignment.nodes, assignment.attempt_id, view, up_s, sure=sure)


def _signal(exit_code: int) -> int | None:
    """What a process was killed by: itself, or below it, as shells and Java tell it; None if it exited."""
    if exit_code < 0:
        return -exit_code
    return exit_code - 128 if 128 < exit_code <= 128 + 31 else None
