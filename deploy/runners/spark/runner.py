"""The runner of Spark jobs.

Drivers run on the scheduler's machine, each started directly with `spark-submit` in client mode under a
launcher of ours, not by the REST submission server: that would put them under a Spark worker, whose death
takes them along or leaves them running unseen; it knows no exit codes and no logs, and forgets a driver's end
when the master ends. A process of our own outlives scheduler, master and all nodes, and tells how it ended.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from spotweave.deploy.model.jobs import JobSpec, SparkStreaming
from spotweave.deploy.model.tasks import Assignment, Node, Phase, TaskReport
from spotweave.deploy.runners import jobfolder
from spotweave.deploy.runners.base import Printed, RunnerError
from spotweave.deploy.runners.jobfolder import kept_log
from spotweave.deploy.runners.spark.application import Application, Applications, Batches, BatchLog
from spotweave.deploy.runners.spark.attempts import Attempt, Attempts, by_cluster, last_error
from spotweave.deploy.runners.spark.cluster import Master, Workers, free_port, known_states
from spotweave.deploy.runners.spark.driver import (
    DriverPlace,
    check_job,
    command,
    configuration,
    spark_work,
    variables,
)
from spotweave.deploy.runners.spark.settings import SparkSettings, find_spark, properties
from spotweave.deploy.runners.workers import AsyncRunner, one_line
from spotweave.deploy.security.sandbox import Box
from spotweave.deploy.security.untrusted import tail
from spotweave.files import write_private

_log = logging.getLogger(__name__)
_THREADS = 32  # nodes and drivers that do not answer are waited for together


class SparkRunner(AsyncRunner):
    """Runs jobs of the kinds spark-batch and spark-streaming. Safe to use from several threads.

    All state is in `settings.state`, in the launchers' folders there, in the node agents and in Spark itself.
    Callers wait `patience_s` together for the master to come up; then StartingError tells them.
    """

    kinds: tuple[str, ...] = ("spark-batch", "spark-streaming")

    def __init__(self, settings: SparkSettings, patience_s: float = 300.0) -> None:
        super().__init__("spark", _THREADS, settings.state)
        self._settings = settings
        self._master = Master(settings, patience_s)
        self._workers = Workers(self._master, settings)
        self._attempts = Attempts(settings.state / "jobs")
        self._outcomes = Outcomes(self._attempts, self._workers)
        self._applications = Applications()
        self._latest: dict[str, Application] = {}

    def check(self, spec: JobSpec, folder: str) -> None:
        """Refuse a job that cannot run. Raises ValueError: one line."""
        check_job(spec, Path(folder))
        find_spark()

    def start(self) -> None:
        """Bring the master up. Raises RunnerError, StartingError."""
        try:
            home = find_spark()
        except ValueError as error:
            raise RunnerError(str(error)) from error
        super().start()
        self._master.start(home)

    def ensure(self, assignment: Assignment) -> None:
        """Start workers on the nodes and then the driver, unless they are there.

        Raises RunnerError, StartingError.
        """
        with self._alone(assignment.key.job_id):
            attempt = self._attempts.get(assignment)
            if attempt.verdict is not None or attempt.driver.running() or attempt.driver.result() is not None:
                return
            if attempt.driver.was_started():
                # It died unseen; reports tell. The same attempt never starts twice.
                return
            if (number := self.finished_earlier(assignment)) is not None:
                attempt.decide(Phase.SUCCEEDED, f"attempt {number} had finished the work")
                return
            self.start()
            if not attempt.known:
                attempt.remember(assignment, free_port(self._settings.address))
            if self._outcomes.enough(assignment):
                return
            for node in assignment.nodes:
                gpus = assignment.spec.resources.gpu_count > 0
                self._workers.start(node, assignment.attempt_id, find_spark(), gpus=gpus)
            self._start_driver(assignment, attempt)

    def reports(self, assignments: Sequence[Assignment]) -> Sequence[TaskReport]:
        """Reports of these attempts."""
        if not assignments:
            return ()
        # Jobs may go on without a master; whoever starts the next attempt is told why there is none.
        with suppress(ValueError, RunnerError):
            self._master.revive(find_spark())
        view = self._master.view()
        with ThreadPoolExecutor(min(_THREADS, len(assignments))) as pool:
            return tuple(pool.map(lambda assignment: self._report(assignment, view), assignments))

    def drain(self, assignment: Assignment, instance_ids: Sequence[str], within_s: float) -> None:
        """Decommission the workers on these nodes: Spark starts nothing more there and moves blocks away.

        With the last node of an attempt there is no other place: its running tasks go on to the end, and what
        the script has checkpointed is all that stays.
        """
        for node in assignment.nodes:
            if node.instance_id in instance_ids:
                self._workers.drain(node, assignment.attempt_id)

    def stop(self, assignment: Assignment) -> None:
        """End the driver and the workers of an attempt. Raises RunnerError while the driver still ends."""
        with self._alone(assignment.key.job_id):
            attempt = self._attempts.get(assignment)
            if attempt.driver.result() is not None and attempt.ending is None:
                self._outcomes.verdict(assignment, attempt, None)
            self._end(attempt, assignment.nodes, "it was stopped", DRIVER_GRACE_S)

    def log(self, assignment: Assignment, offset: int, most_bytes: int) -> Printed:
        """See Runner: of its driver. What executors print stays on their instances."""
        return kept_log(assignment, log_name(assignment), offset, most_bytes)

    def forget(self, job_id: str) -> None:
        """End what a job has, and remove what is remembered of it; its folder stays. Raises RunnerError."""
        self.end_job(job_id)
        with self._alone(job_id):
            self._remove(job_id, self._attempts.forget, self._settings.sandbox)
        self._forget_locks(job_id)

    def end_job(self, job_id: str, why: str = "the job is over") -> None:
        """End all that a job runs here. Raises RunnerError if something cannot be ended."""
        with self._alone(job_id):
            for attempt in self._attempts.of_job(job_id):
                self._end(attempt, self._nodes(attempt), why, grace_s=0.0)

    def shutdown(self) -> None:
        """End all attempts and the master."""
        for job_id in list(self._attempts.jobs()):
            self.end_job(job_id, "the cluster was shut down")
        self._master.end()

    # --- starting -----------------------------------------------------------------------------------------

    def finished_earlier(self, assignment: Assignment) -> int | None:
        """End all earlier attempts at a task here; the number of one that came to its end meanwhile, or None.

        Raises RunnerError if there is a later one, or one still ends.
        """
        with self._alone(assignment.key.job_id):
            for earlier in self._attempts.of_job(assignment.key.job_id):
                if earlier.key != assignment.key or earlier.number == assignment.attempt:
                    continue
                if earlier.number > assignment.attempt:
                    raise RunnerError(f"{assignment.attempt_id} is older than {earlier.attempt_id}")
                self._end(earlier, self._nodes(earlier), "a later attempt took its place", grace_s=0.0)
                if earlier.verdict is not None and earlier.verdict[0] is Phase.SUCCEEDED:
                    return earlier.number
        return None

    def began(self, assignment: Assignment) -> bool:
        """Whether this attempt's driver was ever started here, or it was stopped before."""
        attempt = self._attempts.get(assignment)
        return attempt.driver.was_started() or attempt.verdict is not None

    def refute(self, assignment: Assignment, why: str) -> None:
        """An attempt that came to its end has failed all the same: it did not do what it was to do."""
        self._attempts.get(assignment).refute(why)

    def _start_driver(self, assignment: Assignment, attempt: Attempt) -> None:
        workdir = Path(assignment.workdir).resolve()
        record = attempt.record
        if record is None:
            raise RunnerError(f"{assignment.attempt_id}: what was written down of it is damaged")
        events = self._attempts.job_folder(assignment.key.job_id) / "events" / str(assignment.attempt)
        events.mkdir(mode=0o700, parents=True, exist_ok=True)
        attempt.own.mkdir(mode=0o700, exist_ok=True)
        # If the job has put something else there, the launcher says so.
        with suppress(FileExistsError):
            (workdir / "logs").mkdir(mode=0o700)
        checkpoints, own_checkpoints = self._checkpoints(assignment)
        place = DriverPlace(
            assignment=assignment,
            master_url=self._master.url,
            secret=self._master.secret,
            ui_port=record.ui_port,
            checkpoints=checkpoints,
            events=events,
        )
        home = find_spark()
        conf = attempt.own / "spark.conf"
        write_private(conf, properties(configuration(place, self._settings)))
        env = home.environment(self._settings.address)
        sandbox = self._settings.sandbox
        env |= {"HOME": str(attempt.own)} if sandbox.apart else {}
        writable = (workdir, attempt.own, events, *own_checkpoints)
        attempt.driver.start(
            command(f"{home.path}/bin/spark-submit", conf, assignment.spec, workdir),
            # `check_job` refuses variables that would disturb Spark.
            env | variables(place) | {"SPARK_LOCAL_DIRS": str(attempt.own / "local")},
            workdir,
            driver_log(assignment),
            log_below=workdir,
            boxed=(sandbox, Box(attempt.attempt_id, attempt.key.job_id, writable, attempt.tmp)),
            limits=self._settings.limits,
        )

    def _checkpoints(self, assignment: Assignment) -> tuple[str, tuple[Path, ...]]:
        """Checkpoint location, and the folders for it outside the job's own."""
        below = "" if assignment.key.task == MAIN else f"/{assignment.key.task}"
        configured = self._settings.checkpoints
        if configured is not None:
            place = f"{configured.rstrip('/')}/{assignment.key.job_id}{below}"
            local = place.removeprefix("file://")
            return place, (Path(local),) if local.startswith("/") else ()
        return f"{Path(assignment.workdir).resolve() / 'checkpoint'}{below}", ()

    # --- reporting ----------------------------------------------------------------------------------------

    def _report(self, assignment: Assignment, view: Mapping[str, Any] | None) -> TaskReport:
        with self._alone(assignment.key.job_id):
            attempt = self._attempts.get(assignment)
            try:
                try:
                    return self._look(assignment, attempt, view)
                except RunnerError as error:
                    # It is over but not gone: nothing is decided before that.
                    return self._told(assignment, _phase(attempt), str(error), None)
            except Exception as error:
                # Whatever it is, it is this job's: the others are told of all the same.
                _log.exception("%s cannot be looked at", assignment.attempt_id)
                message = f"cannot be looked at: {one_line(error)}"
                return TaskReport(assignment.key, assignment.attempt, _phase(attempt), message=message)

    def _look(self, assignment: Assignment, attempt: Attempt, view: Mapping[str, Any] | None) -> TaskReport:
        attempt_id = assignment.attempt_id
        verdict = self._outcomes.verdict(assignment, attempt, view)
        if verdict is not None:
            self._forget_application(attempt_id)
            return self._told(assignment, *verdict, None)
        record = attempt.record
        application = None
        if record is not None:
            application = self._applications.ask(attempt_id, self._settings.address, record.ui_port)
        if application is not None:
            self._latest[attempt_id] = application
            if application.executors:
                attempt.note_executors()
            elif self._outcomes.drained(assignment, view):
                return self._told(assignment, *end_driver(attempt, "all its nodes are drained"), None)
        return self._told(assignment, _phase(attempt), "", self._latest.get(attempt_id))

    def _forget_application(self, attempt_id: str) -> None:
        self._applications.forget(attempt_id)
        self._latest.pop(attempt_id, None)

    def _told(
        self, assignment: Assignment, phase: Phase, message: str, application: Application | None
    ) -> TaskReport:
        work = spark_work(assignment.spec)
        batches = self._outcomes.batches(assignment)
        progress = 1.0 if phase is Phase.SUCCEEDED else application.progress if application else 0.0
        saved = progress if phase is Phase.SUCCEEDED else 0.0
        next_due_s = None
        if isinstance(work, SparkStreaming):
            if phase is not Phase.SUCCEEDED:
                progress = saved = min(1.0, batches.done / work.batches) if work.batches else 0.0
            if batches.triggered_s is not None:
                # The next batch's data are complete at the next trigger, whether the job runs then or not.
                next_due_s = batches.triggered_s + work.period_s
        details = {"log": str(driver_log(assignment))}
        if application is not None:
            if not phase.ended:
                message = f"{application.tasks_done} of {application.tasks} tasks known so far"
            details |= {
                "url": application.url,
                "executors": " ".join(application.executors),
                "failed_tasks": str(application.failed_tasks),
            }
        return TaskReport(
            key=assignment.key,
            attempt=assignment.attempt,
            phase=phase,
            progress=progress,
            saved=saved,
            message=message,
            executions_done=batches.done,
            misses=batches.misses,
            last_execution_s=batches.latest_s,
            next_due_s=next_due_s,
            details=details,
        )

    # --- ending -------------------------------------------------------------------------------------------

    @staticmethod
    def _nodes(attempt: Attempt) -> tuple[Node, ...]:
        return () if attempt.record is None else attempt.record.nodes

    def _end(self, attempt: Attempt, nodes: Sequence[Node], why: str, grace_s: float) -> None:
        """End all of an attempt; what it had not reached by then, it has not reached. Raises RunnerError."""
        # The driver first: without it nothing of this attempt can complete, whatever nodes still do.
        end_driver(attempt, why, grace_s)
        self._forget_application(attempt.attempt_id)
        if nodes:
            with ThreadPoolExecutor(min(_THREADS, len(nodes))) as pool:
                list(pool.map(lambda node: self._workers.end(node, attempt.attempt_id), nodes))
        try:
            attempt.clear()
        except OSError as error:
            raise RunnerError(f"{attempt.attempt_id}: {error}") from error
        self._settings.sandbox.over(attempt.attempt_id)


def _phase(attempt: Attempt) -> Phase:
    """Phase of a live attempt; between executors, or with its endpoint closed, it still runs."""
    return Phase.RUNNING if attempt.has_run else Phase.STARTING


# How attempts end: what their drivers, their nodes and their batches show, decided once and kept.


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
