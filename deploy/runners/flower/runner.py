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

from deploy.fl.exchange import Setup
from deploy.model.jobs import JobSpec
from deploy.model.tasks import Assignment, Phase, TaskReport
from deploy.node.client import NodeClient, NodeError, NodeRefused, NodeUnreachable
from deploy.objects.base import Objects
from deploy.runners.base import RunnerError
from deploy.runners.flower import app
from deploy.runners.flower.job import FlowerJob, process_status, record_file
from deploy.runners.flower.keeping import Keeper
from deploy.runners.flower.record import JobRecord
from deploy.runners.flower.reporting import Asked, report
from deploy.runners.flower.rounds import Rounds
from deploy.runners.flower.superlink import process_of
from deploy.runners.flower.training import setup_file

_log = logging.getLogger(__name__)
_STOP_WAIT_S = 3.0


@dataclass(frozen=True)
class FlowerSettings:
    """How the runner works.

    Attributes:
        state: folder of the runner's own; made with mode 0700.
        host: IP address of this machine as nodes reach it; SuperLinks listen there.
        node_python: Python of the nodes, with Flower and spotweave beside it.
        checkpoints: where each round's weights are kept besides this machine; None: nowhere.
    """

    state: Path
    host: str = "127.0.0.1"
    node_python: str = field(default=sys.executable)
    checkpoints: Objects | None = None


class FlowerRunner:
    """Implements `deploy.runners.base.Runner`; may be used from several threads."""

    def __init__(self, settings: FlowerSettings) -> None:
        self._settings = settings
        self._state = settings.state.resolve()
        self._lock = threading.RLock()
        self._jobs: dict[str, FlowerJob] = {}
        self._keepers: dict[str, Keeper] = {}
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
            with NodeClient(node.address, node.port, node.token, node.certificate) as agent:
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
            job.training.write_setup()

    def forget(self, job_id: str) -> None:
        """See Runner. Raises RunnerError while the last checkpoint of a job that succeeded is not kept."""
        with self._lock:
            folder = self._state / job_id
            process_of(folder).end(grace_s=0.0)
            keeper = self._keeper(job_id)
            record, setup = JobRecord.load(record_file(folder)), Setup.load(setup_file(folder))
            if keeper is not None and not keeper.has_all(record, setup):
                raise RunnerError(f"job {job_id}: {keeper.problem or 'its last checkpoint is being kept'}")
            job = self._jobs.pop(job_id, None)
            self._keepers.pop(job_id, None)
            if job is not None:
                job.forget()
            else:
                shutil.rmtree(folder, ignore_errors=True)

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

    def _keeper(self, job_id: str) -> Keeper | None:
        if self._settings.checkpoints is None:
            return None
        if job_id not in self._keepers:
            self._keepers[job_id] = Keeper(Rounds(self._settings.checkpoints, job_id), job_id)
        return self._keepers[job_id]

    def _known(self, job_id: str) -> bool:
        return job_id in self._jobs or record_file(self._state / job_id).exists()

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
                    self._keeper(job_id),
                )
            except OSError as error:
                raise RunnerError(f"job {job_id}: {error}") from error
        return self._jobs[job_id]

    def _stop_process(self, assignment: Assignment, process_id: str) -> None:
        node = assignment.nodes[0]
        with NodeClient(node.address, node.port, node.token, node.certificate) as agent:
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

    def _ask_node(self, assignment: Assignment) -> Asked:
        job = self._jobs.get(assignment.key.job_id)
        if job is None or job.over or not assignment.nodes:
            return None
        try:
            return process_status(assignment, job.process_id(assignment))
        except NodeUnreachable as error:
            return error

    def _report(self, assignment: Assignment, process: Asked) -> TaskReport:
        job = self._jobs.get(assignment.key.job_id)
        if job is None:
            return TaskReport(assignment.key, assignment.attempt, Phase.LOST, message="it was never started")
        latest = self._latest.get(assignment.attempt_id, Phase.STARTING)
        found = report(job, assignment, process, latest)
        if not found.phase.ended:
            self._latest[assignment.attempt_id] = found.phase
        return found


def _earlier(assignment: Assignment, attempt: int) -> Assignment:
    return Assignment(assignment.key, attempt, assignment.spec, assignment.nodes, assignment.workdir)
