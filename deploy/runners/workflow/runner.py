"""The runner of workflows (Liu 2022, section 3, "Global Controller and Distributed Daemon").

The cluster of a region is a standalone Spark of its own, with its master and state; a step's executors join
it for the step. The files of a job lie in one workspace for each cluster, below the job's folder, which the
scheduler's machine and the nodes see. Before a step starts, what it reads is brought to its cluster; when it
has come to its end, what it wrote is sealed: given its final place, with checksums that the scheduler keeps.
Only then has it succeeded.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote

from spotweave.deploy.model.jobs import JobSpec
from spotweave.deploy.model.tasks import Assignment, Phase, TaskReport
from spotweave.deploy.runners.base import Printed, RunnerError, StartingError
from spotweave.deploy.runners.jobfolder import JobFolder, PoisonError, kept_log
from spotweave.deploy.runners.spark.runner import SparkRunner, log_name
from spotweave.deploy.runners.spark.settings import find_spark
from spotweave.deploy.runners.workers import AsyncRunner, one_line
from spotweave.deploy.runners.workflow.files import (
    Files,
    Mover,
    Sealed,
    WorkflowSettings,
    assigned,
    check,
    place,
    workflow,
    written_path,
)

_log = logging.getLogger(__name__)
_THREADS = 16
_LOCK_S = 3.0


class WorkflowRunner(AsyncRunner):
    """Implements `deploy.runners.base.Runner`; may be used from several threads."""

    kinds: tuple[str, ...] = ("workflow",)

    def __init__(self, settings: WorkflowSettings) -> None:
        super().__init__("workflow", _THREADS, settings.state.resolve())
        self._settings = settings
        self._files = Files(self._folder / "jobs", settings.data)
        self._clusters: dict[str, SparkRunner] = {}
        self._unwanted: set[str] = set()  # attempts that were stopped, and jobs that are over

    def check(self, spec: JobSpec, folder: str) -> None:
        """See Runner."""
        check(spec, Path(folder), self._settings.data)
        find_spark()

    def ensure(self, assignment: Assignment) -> None:
        """See Runner. What is not done in a moment goes on, and `reports` tells how it ends."""
        self._done(_beginning(assignment), lambda: self._start(assignment))

    def reports(self, assignments: Sequence[Assignment]) -> Sequence[TaskReport]:
        """See Runner."""
        by_region: defaultdict[str, list[Assignment]] = defaultdict(list)
        found: dict[str, TaskReport] = {}
        for one in assignments:
            report = self._early(one)
            if report is None:
                by_region[one.nodes[0].region].append(one)
            else:
                found[one.attempt_id] = report
        for region, some in by_region.items():
            told = self._cluster(region).reports([assigned(one, self._settings.data) for one in some])
            for one, report in zip(some, told, strict=True):
                found[one.attempt_id] = self._sealed(one, report)
        return [found[one.attempt_id] for one in assignments]

    def drain(self, assignment: Assignment, instance_ids: Sequence[str], within_s: float) -> None:
        """See Runner."""
        cluster = self._cluster(assignment.nodes[0].region)
        cluster.drain(assigned(assignment, self._settings.data), instance_ids, within_s)

    def stop(self, assignment: Assignment) -> None:
        """See Runner. Raises RunnerError while it still ends."""
        with self._lock:
            self._unwanted.add(assignment.attempt_id)
        for name in (_beginning(assignment), _sealing(assignment)):
            work = self._acts.pending(name)
            if work is not None and not self._patience.wait(work):
                raise RunnerError(f"{assignment.attempt_id} still ends")
            self._acts.collect(name)
        if assignment.nodes:
            cluster = self._cluster(assignment.nodes[0].region)
            cluster.stop(assigned(assignment, self._settings.data))

    def log(self, assignment: Assignment, offset: int, most_bytes: int) -> Printed:
        """See Runner: of a step's driver."""
        return kept_log(assignment, log_name(assignment), offset, most_bytes)

    def forget(self, job_id: str) -> None:
        """See Runner. Raises RunnerError while something of it still ends."""
        with self._lock:
            self._unwanted.add(job_id)
            locks = [lock for (of_job, _), lock in self._locks.items() if of_job == job_id]
        for lock in locks:
            if not lock.acquire(timeout=_LOCK_S):
                raise RunnerError(f"files of job {job_id} are still worked at")
            lock.release()
        clusters = self._known()
        # All of them first: what is forgotten gives the job's folder and user id back.
        for cluster in clusters.values():
            cluster.end_job(job_id)
        for cluster in clusters.values():
            cluster.forget(job_id)
        self._remove(job_id, self._files.forget)
        self._forget_locks(job_id)
        with self._lock:
            self._unwanted = {name for name in self._unwanted if not name.startswith(f"{job_id}.")}

    def shutdown(self) -> None:
        """See Runner."""
        for cluster in self._known().values():
            cluster.shutdown()

    # --- clusters -----------------------------------------------------------------------------------------

    def _cluster(self, region: str) -> SparkRunner:
        with self._lock:
            if region not in self._clusters:
                state = self._folder / "clusters" / place(region)
                self._clusters[region] = SparkRunner(replace(self._settings.spark, state=state))
            return self._clusters[region]

    def _known(self) -> dict[str, SparkRunner]:
        folders = sorted((self._folder / "clusters").glob("at-*"))
        regions = [unquote(folder.name.removeprefix("at-")) for folder in folders]
        return {region: self._cluster(region) for region in regions}

    # --- beginning ----------------------------------------------------------------------------------------

    def _start(self, assignment: Assignment) -> None:
        work, key, region = workflow(assignment.spec), assignment.key, assignment.nodes[0].region
        allowed = work.region_of(key.task)
        if allowed is not None and allowed != region:
            raise RunnerError(f"step {key.task!r} may run in {allowed} only, its nodes are in {region}")
        own = assigned(assignment, self._settings.data)
        for at, cluster in self._known().items():
            number = cluster.finished_earlier(own)
            if number is not None and self._seal(replace(assignment, attempt=number), at):
                return
        if self._files.sealed(key) is not None:
            return
        with self._alone(key.job_id, region):
            if self._cluster(region).began(own):
                return
            mover = Mover(JobFolder(Path(assignment.workdir)), lambda: self._wanted(assignment))
            for name in work.step(key.task).reads:
                self._files.bring(assignment, name, region, mover)
            if not self._wanted(assignment):
                raise RunnerError("it was stopped")
            folder = written_path(region, key.task, assignment.attempt, ".")
            JobFolder(Path(assignment.workdir)).make(folder.removesuffix("/."))
            self._cluster(region).ensure(own)
        if mover.moved_bytes:
            _log.info("%s: %d bytes moved to %s", assignment.attempt_id, mover.moved_bytes, region)

    def _wanted(self, assignment: Assignment) -> bool:
        return not {assignment.attempt_id, assignment.key.job_id} & self._unwanted

    # --- ending -------------------------------------------------------------------------------------------

    def _seal(self, assignment: Assignment, region: str) -> bool:
        """Seal what an attempt wrote. Returns whether all of it is there; if not, the attempt has failed."""
        with self._alone(assignment.key.job_id, region):
            why = self._files.seal(assignment, region)
            if why:
                self._cluster(region).refute(assignment, why)
        return not why

    def _early(self, assignment: Assignment) -> TaskReport | None:
        """What is known of an attempt without its cluster; None if only that knows."""
        key, number, region = assignment.key, assignment.attempt, assignment.nodes[0].region
        sealed = self._files.sealed(key)
        if sealed is not None:
            return _succeeded(assignment, sealed)
        work = self._acts.pending(_beginning(assignment))
        if work is None and not self._cluster(region).began(assignment):
            # A scheduler was killed while its files were moved: that goes on.
            work = self._acts.begin(_beginning(assignment), lambda: self._start(assignment))
        if work is None:
            return None
        if not work.future.done():
            return TaskReport(key, number, Phase.STARTING, message=f"its files are moved to {region}")
        self._acts.collect(_beginning(assignment))
        error = work.future.exception()
        if error is None:
            return None
        if isinstance(error, StartingError):  # The next look begins again.
            return TaskReport(key, number, Phase.STARTING, message=one_line(error))
        phase = Phase.FAILED if isinstance(error, PoisonError) else Phase.LOST
        return TaskReport(key, number, phase, message=one_line(error))

    def _sealed(self, assignment: Assignment, report: TaskReport) -> TaskReport:
        """What is told of an attempt, of which its cluster told this."""
        if report.phase is not Phase.SUCCEEDED:
            return report
        region, name = assignment.nodes[0].region, _sealing(assignment)
        work = self._acts.begin(name, lambda: self._seal(assignment, region))
        if not self._patience.wait(work):
            return replace(report, phase=Phase.RUNNING, message="its files are sealed")
        self._acts.collect(name)
        sealed = self._files.sealed(assignment.key)
        if sealed is not None:
            return _succeeded(assignment, sealed)
        error = work.future.exception()
        if error is None:  # It was refuted: its cluster tells why.
            return self._cluster(region).reports([assigned(assignment, self._settings.data)])[0]
        why = f"its files cannot be sealed: {one_line(error)}"
        return replace(report, phase=Phase.RUNNING, progress=0.99, saved=0.0, message=why)


def _succeeded(assignment: Assignment, sealed: Sealed) -> TaskReport:
    size = sum(part.size for digest in sealed.files.values() for part in digest.values())
    return TaskReport(
        assignment.key,
        assignment.attempt,
        Phase.SUCCEEDED,
        progress=1.0,
        saved=1.0,
        saved_region=sealed.region,
        details={"wrote_bytes": str(size)},
    )


def _beginning(assignment: Assignment) -> str:
    return f"{assignment.attempt_id}:begin"


def _sealing(assignment: Assignment) -> str:
    return f"{assignment.attempt_id}:seal"
