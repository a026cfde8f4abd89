"""The runner of federated trainings.

A SuperLink per job, not one for all: a SuperLink shows every run all its nodes, so jobs would train on each
other's clients; its database, keys, log and death are one job's matter; and forgetting a job is ending one
process tree. It costs a process and a port for each job that runs.

Nothing here waits: `ensure` and `reports` take the next step that is due (SuperLink up, clients registered,
nodes started, run started, run looked after), so the scheduler's loop has to come by, not to stand still. A
client's key makes it the same Flower node on every instance. The state folder, the processes' environments
and the node agents tell a new runner what an earlier one had started.
"""

from __future__ import annotations

import logging
import shutil
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from deploy.fl.exchange import Participation
from deploy.model.jobs import JobSpec
from deploy.model.tasks import Assignment, Phase, TaskReport
from deploy.node.api import ProcessStatus
from deploy.node.client import NodeClient, NodeError, NodeRefused, NodeUnreachable
from deploy.runners.base import RunnerError
from deploy.runners.flower import app
from deploy.runners.flower.failures import last_exception
from deploy.runners.flower.job import FlowerJob, process_status
from deploy.runners.flower.superlink import process_of

_log = logging.getLogger(__name__)
_STOP_WAIT_S = 3.0


@dataclass(frozen=True)
class FlowerSettings:
    """How the runner works.

    Attributes:
        state: folder of the runner's own; made with mode 0700.
        host: IP address of this machine as nodes reach it; SuperLinks listen there.
        node_python: Python of the nodes, with Flower and spotweave beside it.
    """

    state: Path
    host: str = "127.0.0.1"
    node_python: str = field(default=sys.executable)


class FlowerRunner:
    """Implements `deploy.runners.base.Runner`; may be used from several threads."""

    def __init__(self, settings: FlowerSettings) -> None:
        self._settings = settings
        self._state = settings.state.resolve()
        self._lock = threading.RLock()
        self._jobs: dict[str, FlowerJob] = {}
        self._latest: dict[str, Phase] = {}

    @property
    def kinds(self) -> tuple[str, ...]:
        """Flower."""
        return ("flower",)

    def check(self, spec: JobSpec, folder: str) -> None:
        """See Runner."""
        app.check(spec, Path(folder))

    def start(self) -> None:
        """See Runner. Nothing is shared by jobs but the state folder."""
        self._state.mkdir(mode=0o700, parents=True, exist_ok=True)

    def ensure(self, assignment: Assignment) -> None:
        """See Runner."""
        with self._lock:
            if len(assignment.nodes) != 1:
                raise RunnerError(f"{assignment.attempt_id}: {len(assignment.nodes)} nodes, a client has one")
            job = self._job(assignment)
            _, client = job.client(assignment)
            if (
                0 < client.attempt < assignment.attempt
                and client.instance_id == assignment.nodes[0].instance_id
            ):
                self._stop_process(assignment, job.process_id(_earlier(assignment, client.attempt)))
            job.want(assignment)
            job.step([assignment])

    def reports(self, assignments: Sequence[Assignment]) -> Sequence[TaskReport]:
        """See Runner. An assignment without nodes (a released client) is told of its job only: WAITING, or
        STARTING where its result is owed, with `round_left_s`; or how the job ended.
        """
        with self._lock:
            jobs: dict[str, list[Assignment]] = {}
            for assignment in assignments:
                jobs.setdefault(assignment.key.job_id, []).append(assignment)
            for job_id, members in jobs.items():
                if self._known(job_id):
                    try:
                        self._job(members[0]).step(members)
                    except RunnerError as error:
                        _log.warning("job %s: %s", job_id, error)
            with ThreadPoolExecutor(max_workers=8) as pool:
                processes = list(pool.map(self._ask_node, assignments))
            return [
                self._report(assignment, process)
                for assignment, process in zip(assignments, processes, strict=True)
            ]

    def drain(self, assignment: Assignment, instance_ids: Sequence[str], within_s: float) -> None:
        """See Runner. A SuperNode that is told to end signs off; what it was training is asked for again."""
        with self._lock:
            job = self._job(assignment)
            _, client = job.client(assignment)
            if assignment.attempt != client.attempt or assignment.nodes[0].instance_id not in instance_ids:
                return
            client.drained = True
            job.save()
            node = assignment.nodes[0]
            with NodeClient(node.address, node.port, node.token) as agent:
                try:
                    agent.signal(job.process_id(assignment), "TERM")
                except NodeError as error:
                    _log.warning("%s cannot be drained: %s", assignment.attempt_id, error)

    def stop(self, assignment: Assignment) -> None:
        """See Runner. Raises RunnerError while a SuperNode still ends.

        A node that does not answer is gone or will be: its instance is ended too. What it trained is asked
        for again, and its place at the SuperLink is taken by the next attempt.
        """
        with self._lock:
            if not self._known(assignment.key.job_id):
                return
            job = self._job(assignment)
            _, client = job.client(assignment)
            if assignment.attempt == client.attempt:
                client.wanted = False
                job.save()
            if assignment.nodes:
                self._stop_process(assignment, job.process_id(assignment))
            if assignment.attempt == client.attempt:
                job.mark_lost(client)
            self._latest.pop(assignment.attempt_id, None)

    def leave(self, assignment: Assignment) -> None:
        """See Runner. It is asked for nothing any more; rounds that wait for it go on."""
        with self._lock:
            job = self._job(assignment)
            _, client = job.client(assignment)
            client.left, client.wanted = True, False
            job.save()
            job.write_setup()

    def forget(self, job_id: str) -> None:
        """See Runner."""
        with self._lock:
            job = self._jobs.pop(job_id, None)
            if job is not None:
                job.forget()
            else:
                process_of(self._state / job_id).end(grace_s=0.0)
                shutil.rmtree(self._state / job_id, ignore_errors=True)

    def shutdown(self) -> None:
        """See Runner. Nodes' processes end with their instances."""
        with self._lock:
            for job in self._jobs.values():
                job.end()
            self._jobs.clear()
            for folder in self._state.glob("*/job.json"):
                process_of(folder.parent).end(grace_s=0.0)

    def close(self) -> None:
        """Let go of connections; whatever runs goes on and is found by the next runner."""
        with self._lock:
            for job in self._jobs.values():
                job.superlink.forget_connection()
            self._jobs.clear()

    def _known(self, job_id: str) -> bool:
        return job_id in self._jobs or (self._state / job_id / "job.json").exists()

    def _job(self, assignment: Assignment) -> FlowerJob:
        job_id = assignment.key.job_id
        if job_id not in self._jobs:
            try:
                self._jobs[job_id] = FlowerJob(
                    self._state / job_id,
                    job_id,
                    assignment.spec,
                    Path(assignment.workdir),
                    self._settings.host,
                    self._settings.node_python,
                )
            except OSError as error:
                raise RunnerError(f"job {job_id}: {error}") from error
        return self._jobs[job_id]

    def _stop_process(self, assignment: Assignment, process_id: str) -> None:
        node = assignment.nodes[0]
        with NodeClient(node.address, node.port, node.token) as agent:
            try:
                status = agent.stop_process(process_id, _STOP_WAIT_S)
            except NodeRefused as error:
                if error.code == 404:
                    return
                raise RunnerError(f"{process_id} cannot be stopped: {error}") from error
            except NodeUnreachable as error:
                _log.warning("%s is not told to end: %s", process_id, error)
                return
        if status.state == "running":
            raise RunnerError(f"{process_id} has not ended yet")

    def _ask_node(self, assignment: Assignment) -> ProcessStatus | NodeUnreachable | None:
        job = self._jobs.get(assignment.key.job_id)
        if job is None or job.over or not assignment.nodes:
            return None
        try:
            return process_status(assignment, job.process_id(assignment))
        except NodeUnreachable as error:
            return error

    def _report(self, assignment: Assignment, process: ProcessStatus | NodeUnreachable | None) -> TaskReport:
        job = self._jobs.get(assignment.key.job_id)
        if job is None:
            return TaskReport(assignment.key, assignment.attempt, Phase.LOST, message="it was never started")
        name, client = job.client(assignment)
        phase, message = self._phase(job, assignment, process)
        if not phase.ended:
            self._latest[assignment.attempt_id] = phase
        status, present = job.status(), job.present_status()
        rounds = job.work.rounds
        completed = rounds if phase is Phase.SUCCEEDED else status.completed if status else 0
        own = status.clients.get(name) if status else None
        details = {"run": str(job.record.runs), "node_id": str(client.node_id)}
        if status:
            details |= {key: f"{value:.6g}" for key, value in status.metrics.items()}
            if status.resumed_from:
                details["resumed_from"] = status.resumed_from
        return TaskReport(
            key=assignment.key,
            attempt=assignment.attempt,
            phase=phase,
            progress=completed / rounds,
            saved=completed / rounds,
            message=message,
            executions_done=completed,
            last_execution_s=own.last_epoch_s if own else None,
            round_left_s=present.left_s(name, job.work.epoch_s) if present and job.runs else None,
            details=details,
        )

    def _phase(
        self, job: FlowerJob, assignment: Assignment, process: ProcessStatus | NodeUnreachable | None
    ) -> tuple[Phase, str]:
        record = job.record
        name, client = job.client(assignment)
        if record.outcome == "succeeded":
            return Phase.SUCCEEDED, f"{job.work.rounds} rounds done"
        if record.outcome == "failed" and assignment.attempt <= record.failed_attempts.get(name, 0):
            return Phase.FAILED, record.failure
        status = job.present_status()
        own = status.clients.get(name, Participation()) if status else None
        if not assignment.nodes:
            if own is None or own.owes:
                return Phase.STARTING, "released, and its result is owed"
            return Phase.WAITING, "released"
        if own is not None and own.error and own.error_attempt == assignment.attempt:
            return Phase.FAILED, self._user_error(job, assignment, own.error)
        if assignment.attempt != client.attempt or not client.wanted:
            return Phase.LOST, "stopped"
        if isinstance(process, NodeUnreachable):
            latest = self._latest.get(assignment.attempt_id, Phase.STARTING)
            return latest, f"the node does not answer: {process}"
        if process is None:
            if client.seen:
                job.mark_lost(client)
                return Phase.LOST, "the node does not know it any more"
            return Phase.STARTING, "waits for the SuperLink"
        if process.state != "running":
            job.mark_lost(client)
            why = "left on notice" if client.drained else f"the SuperNode ended with {process.exit_code}"
            return Phase.LOST, f"{why}: {self._last_words(job, assignment)}".removesuffix(": ")[:300]
        if not client.seen:
            return Phase.STARTING, "the SuperNode is starting"
        if not job.runs and record.runs == 0:
            return Phase.STARTING, "waits for the other clients"
        if own is not None and not own.owes:
            return Phase.WAITING, "has delivered"
        return Phase.RUNNING, "owes a result" if own is not None else ""

    def _user_error(self, job: FlowerJob, assignment: Assignment, error: str) -> str:
        """Flower does not say why an app cannot be loaded; the node's log does."""
        if "attempting to load" not in error:
            return error
        return f"the ClientApp cannot be loaded: {self._last_words(job, assignment)}".removesuffix(": ")[:300]

    def _last_words(self, job: FlowerJob, assignment: Assignment) -> str:
        node = assignment.nodes[0]
        with NodeClient(node.address, node.port, node.token) as agent:
            try:
                log = b"".join(agent.whole_log(job.process_id(assignment))).decode(errors="replace")
            except NodeError:
                return ""
        return last_exception(log)


def _earlier(assignment: Assignment, attempt: int) -> Assignment:
    return Assignment(assignment.key, attempt, assignment.spec, assignment.nodes, assignment.workdir)
