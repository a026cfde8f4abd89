"""One task of a bag as the runner sees it: its latest attempt on a node, and its checkpoints."""

from __future__ import annotations

import hashlib
import logging
from pathlib import Path

from pydantic import ValidationError

from deploy.model.bags import Bag
from deploy.model.jobs import JobSpec, TaskKey
from deploy.model.speeds import slowness
from deploy.model.tasks import Assignment, Node, Phase, TaskReport
from deploy.node.api import NodeStatus, ProcessSpec, ProcessStatus
from deploy.node.client import NodeClient, NodeRefused, NodeUnreachable
from deploy.objects.base import Objects, ObjectsError
from deploy.runners.bag.checkpoints import Checkpoint, Checkpoints
from deploy.runners.bag.files import packed
from deploy.runners.bag.plan import FILES, PLAN, RESTORED, STATUS, Plan, Status, checkpoint_file
from deploy.runners.bag.record import Record
from deploy.runners.bag.settings import BagSettings
from deploy.runners.base import RunnerError
from deploy.runners.jobfolder import JobFolder, PoisonError

_UNKNOWN = 404
_STOP_WAIT_S = 3.0
_ALMOST = 0.99
"""Only its end shows that all of the work is done."""
_STATUS_BYTES = 4096
_LOG_BYTES = 1 << 20
_LINE = 200
_log = logging.getLogger(__name__)


def bag(spec: JobSpec) -> Bag:
    """The bag of a job. Raises ValueError for another kind."""
    if isinstance(spec.work, Bag):
        return spec.work
    raise ValueError(f"kind {spec.work.kind} is not a bag")


class Task:
    """A task; not safe to use from several threads. Its methods wait for its node and for checkpoints.

    Args:
        file: its record.
        key: which.
        settings: of the runner.
        objects: where checkpoints are kept.
    """

    def __init__(self, file: Path, key: TaskKey, settings: BagSettings, objects: Objects) -> None:
        self._file = file
        self._key = key
        self._settings = settings
        self._checkpoints = Checkpoints(objects, key.job_id, key.task)
        self.record = Record.load(file)

    def begin(self, assignment: Assignment) -> None:
        """Make an attempt run on its node, unless it does already or the work is done. Raises RunnerError."""
        self._turn_to(assignment)
        if self.record.phase is not None:
            return
        node, name = assignment.nodes[0], process_id(assignment.key, assignment.attempt)
        try:
            with _client(node) as agent:
                if _known(agent.status(), name) is None:
                    self._start(agent, assignment)
        except (NodeRefused, NodeUnreachable) as error:
            raise RunnerError(f"{name} cannot be started on {node.instance_id}: {error}") from error
        except ObjectsError as error:
            raise RunnerError(f"its checkpoint cannot be read: {error}") from error
        except PoisonError as error:
            self._decide(Phase.FAILED, f"the job's files cannot be used: {error}")

    def look(self, assignment: Assignment) -> TaskReport:
        """How an attempt is. A new checkpoint is fetched first, and so is the log of a command that ended."""
        if assignment.attempt != self.record.attempt:
            return TaskReport(assignment.key, assignment.attempt, Phase.LOST, message="it was never started")
        ran_s = 0.0
        if self.record.phase is None:
            try:
                with _client(assignment.nodes[0]) as agent:
                    ran_s = self._ask(agent, assignment)
            except NodeUnreachable as error:
                return self._report(assignment, 0.0, f"its node does not answer: {error}")
        return self._report(assignment, ran_s, self.record.problem)

    def stop(self, assignment: Assignment) -> None:
        """End an attempt, also one that was not begun yet. Raises RunnerError while it still ends."""
        if assignment.attempt >= self.record.attempt:
            self._turn_to(assignment)
            self.end("it was stopped")

    def end(self, why: str) -> None:
        """End the latest attempt, if it has not ended. Raises RunnerError while it still ends.

        A node that does not answer is gone or will be: its instance is ended too.
        """
        record = self.record
        if record.phase is not None or record.node is None:
            return
        name = process_id(self._key, record.attempt)
        try:
            with _client(record.node) as agent:
                status = agent.stop_process(name, _STOP_WAIT_S)
        except NodeRefused as error:
            if error.code != _UNKNOWN:
                raise RunnerError(f"{name} cannot be stopped: {error}") from error
        except NodeUnreachable as error:
            _log.warning("%s is not told to end: %s", name, error)
        else:
            if status.state == "running":
                raise RunnerError(f"{name} has not ended yet")
            if status.exit_code == 0:
                self._decide(Phase.SUCCEEDED, "")
                return
        self._decide(Phase.LOST, why)

    def _turn_to(self, assignment: Assignment) -> None:
        """Let an attempt be the latest: the one before it is over, and its success is this one's."""
        record = self.record
        if assignment.attempt < record.attempt:
            raise RunnerError(f"{assignment.attempt_id} is older than attempt {record.attempt}")
        if assignment.attempt == record.attempt:
            return
        self.end("a later attempt took its place")
        done = self.record.phase is Phase.SUCCEEDED
        self._save(
            Record(
                attempt=assignment.attempt,
                node=assignment.nodes[0],
                phase=Phase.SUCCEEDED if done else None,
                message=f"attempt {record.attempt} had finished the work" if done else "",
                kept_s=self.record.kept_s,
            )
        )

    def _start(self, agent: NodeClient, assignment: Assignment) -> None:
        work, spec = bag(assignment.spec), assignment.spec
        command = work.task(self._key.task).command
        folder = _folder(assignment.key, assignment.attempt)
        workdir = agent.status().workdir
        agent.put_file(f"{folder}/{FILES}", packed(Path(assignment.workdir), (*command, *_checkpoint(work))))
        kept = self._checkpoints.newest()
        if kept is None:
            self._update(begun_s=0.0, kept_s=0.0)
        else:
            agent.put_file(f"{folder}/{RESTORED}", kept[1])
            self._update(begun_s=self.record.kept_s)
        interval_s = spec.profile.checkpoint_interval_s
        plan = Plan(command=command, checkpoint=_checkpoint(work), interval_s=interval_s)
        agent.put_file(f"{folder}/{PLAN}", plan.model_dump_json().encode())
        agent.start_process(
            ProcessSpec(
                process_id=process_id(assignment.key, assignment.attempt),
                argv=(
                    self._settings.node_python,
                    "-m",
                    "deploy.runners.bag.process",
                    f"{workdir}/{folder}",
                ),
                env={
                    "PATH": f"{Path(self._settings.node_python).parent}:/usr/local/bin:/usr/bin:/bin",
                    **spec.env,
                    "SPOTWEAVE_JOB_ID": assignment.key.job_id,
                    "SPOTWEAVE_TASK": assignment.key.task,
                    "SPOTWEAVE_ATTEMPT": str(assignment.attempt),
                },
                # A notice asks for a checkpoint; whoever ends it wants none, and is not kept waiting.
                stop_signal="PWR",
                stop_grace_s=0.0,
            )
        )

    def _ask(self, agent: NodeClient, assignment: Assignment) -> float:
        """What its node knows. Returns how long the command has run, in seconds. Raises NodeUnreachable."""
        node = agent.status()
        process = _known(node, process_id(assignment.key, assignment.attempt))
        if process is None:
            self._decide(Phase.LOST, "its node does not know it")
            return 0.0
        folder = _folder(assignment.key, assignment.attempt)
        status = _status(agent, folder)
        if status.number > self.record.number:
            self._fetch(agent, folder, status, assignment)
        elif status.problem != self.record.problem and status.number == self.record.number:
            self._update(problem=status.problem)
        if process.state == "running":
            return max(0.0, node.now_s - process.started_s)
        code = process.exit_code if process.state == "exited" else status.exit_code
        line = self._keep_log(agent, assignment)
        if code == 0:
            self._decide(Phase.SUCCEEDED, "")
        elif code is None or node.draining:
            self._decide(Phase.LOST, "it ended with its instance, or nobody saw how")
        else:
            command = bag(assignment.spec).task(self._key.task).command[0]
            said = f": {line}" if line else ""
            # Of a command that a signal ended, shells tell the same.
            self._decide(
                Phase.FAILED, f"task {self._key.task}: {command[:_LINE]} ended with exit code {code}{said}"
            )
        return 0.0

    def _fetch(self, agent: NodeClient, folder: str, status: Status, assignment: Assignment) -> None:
        """Have a new checkpoint kept; a try that fails is made again with the next look."""
        most = self._settings.checkpoint_most_bytes
        try:
            if status.size > most:
                raise ValueError(f"it has {status.size / 2**20:.0f} MiB, at most {most / 2**20:g} are kept")
            content = agent.get_file(f"{folder}/{checkpoint_file(status.number)}", status.size)
            if hashlib.sha256(content).hexdigest() != status.sha256:
                raise ValueError("its file is not what it was")
            self._checkpoints.put(Checkpoint(assignment.attempt, status.number), content)
        except (NodeRefused, ObjectsError, ValueError) as error:
            self._update(problem=f"checkpoint {status.number} is not kept: {error}"[:300])
            return
        profile = assignment.spec.profile
        slow = slowness(assignment.nodes[0].speed, profile.reference_speed, profile.sensitivity)
        self._update(
            number=status.number, kept_s=self.record.begun_s + status.ran_s / slow, problem=status.problem
        )

    def _keep_log(self, agent: NodeClient, assignment: Assignment) -> str:
        """Put the end of its output into the job's folder. Returns its last line."""
        try:
            text = agent.last_log(process_id(assignment.key, assignment.attempt), _LOG_BYTES)
            name = f"logs/{assignment.key.task}-{assignment.attempt}.log"
            JobFolder(Path(assignment.workdir)).write(name, text)
        except NodeRefused as error:
            return f"its log cannot be read: {error}"
        except (PoisonError, OSError) as error:
            return f"its log cannot be kept: {error}"
        lines = text.decode(errors="replace").split("\n")
        return next((line.strip()[:_LINE] for line in reversed(lines) if line.strip()), "")

    def _report(self, assignment: Assignment, ran_s: float, message: str) -> TaskReport:
        record, profile = self.record, assignment.spec.profile
        standard_s = bag(assignment.spec).standard_s_of(self._key.task)
        slow = slowness(assignment.nodes[0].speed, profile.reference_speed, profile.sensitivity)
        saved = min(_ALMOST, record.kept_s / standard_s)
        progress = min(_ALMOST, max(saved, (record.begun_s + ran_s / slow) / standard_s))
        if record.phase is Phase.SUCCEEDED:
            saved = progress = 1.0
        return TaskReport(
            assignment.key,
            assignment.attempt,
            record.phase or Phase.RUNNING,
            progress=progress,
            saved=saved,
            message=record.message or message,
            details={"checkpoints": str(record.number)},
        )

    def _decide(self, phase: Phase, message: str) -> None:
        self._update(phase=phase, message=message)

    def _update(self, **changes: object) -> None:
        changed = self.record.model_copy(update=changes)
        if changed != self.record:
            self._save(changed)

    def _save(self, record: Record) -> None:
        record.save(self._file)
        self.record = record


def _checkpoint(work: Bag) -> tuple[str, ...]:
    return work.checkpoint or ()


def process_id(key: TaskKey, attempt: int) -> str:
    """On the node."""
    return f"bag.{key.job_id}.{key.task}.{attempt}"


def _folder(key: TaskKey, attempt: int) -> str:
    """On the node, below its working folder."""
    return f"bag/{key.job_id}.{key.task}.{attempt}"


def _known(node: NodeStatus, name: str) -> ProcessStatus | None:
    return next((one for one in node.processes if one.process_id == name), None)


def _status(agent: NodeClient, folder: str) -> Status:
    """What the process around the command says; nothing where it says nothing (sensible) yet."""
    try:
        return Status.model_validate_json(agent.get_file(f"{folder}/{STATUS}", _STATUS_BYTES))
    except (NodeRefused, ValidationError):
        return Status()


def _client(node: Node) -> NodeClient:
    return NodeClient(node.address, node.port, node.token, node.certificate)
