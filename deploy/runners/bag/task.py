"""One task of a bag as the runner sees it: its latest attempt on a node, and its checkpoints."""

from __future__ import annotations

import hashlib
import io
import logging
import re
import sys
import tarfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError

from spotweave.deploy.jobfile import MAX_BYTES, named_files
from spotweave.deploy.model.instances import slowness
from spotweave.deploy.model.jobs import Bag, JobSpec, TaskKey
from spotweave.deploy.model.tasks import Assignment, Node, Phase, TaskReport
from spotweave.deploy.node.api import ProcessSpec
from spotweave.deploy.node.client import NodeClient, NodeError, NodeRefused, NodeUnreachable
from spotweave.deploy.objects.location import Objects, ObjectsError
from spotweave.deploy.runners.bag.process import FILES, PLAN, RESTORED, STATUS, Plan, Status, checkpoint_file
from spotweave.deploy.runners.base import RunnerError
from spotweave.deploy.runners.jobfolder import JobFolder, PoisonError, log_name
from spotweave.deploy.runners.workers import connect, end_process, known_process, search_path
from spotweave.deploy.security.sandbox import NO_SANDBOX, Sandbox
from spotweave.deploy.statefile import StateFile
from spotweave.deploy.yamlfile import ConfigError

# Where tasks' checkpoints are kept: beyond their nodes, in the same kind of place as federated rounds.

_NAME = re.compile(r"(\d{6,})-(\d{6,})\.tar")


class Checkpoint(NamedTuple):
    """A checkpoint that is kept; the greatest is the newest."""

    attempt: int  # that made it
    number: int  # of it in that attempt, from 1

    @property
    def name(self) -> str:
        """Name of its object in the task's folder."""
        return f"{self.attempt:06d}-{self.number:06d}.tar"


class Checkpoints:
    """Kept checkpoints of one task, an object each. Methods may block and raise ObjectsError."""

    def __init__(self, objects: Objects, job_id: str, task: str) -> None:
        self._objects = objects
        self._task = f"{job_id}/{task}/"

    def newest(self) -> tuple[Checkpoint, bytes] | None:
        """The newest and its content; None if there is none."""
        for one in sorted(self._all(), reverse=True):
            content = self._objects.get(self._task + one.name)
            if content is not None:
                return one, content
        return None

    def put(self, one: Checkpoint, content: bytes) -> None:
        """Keep one, then let go of older ones."""
        self._objects.put(self._task + one.name, content)
        for other in self._all():
            if other < one:
                self._objects.delete(self._task + other.name)

    def _all(self) -> list[Checkpoint]:
        found = (_NAME.fullmatch(name.removeprefix(self._task)) for name in self._objects.names(self._task))
        return [Checkpoint(int(one[1]), int(one[2])) for one in found if one]


def forget(objects: Objects, job_id: str) -> None:
    """Let go of all checkpoints of a job. Raises ObjectsError."""
    for name in objects.names(f"{job_id}/"):
        objects.delete(name)


# What the runner writes down of a task: enough to find and to end its latest attempt after any restart.


class Record(StateFile):
    """A task."""

    attempt: int = 0  # number of the latest that was asked for
    node: Node | None = None  # where; None: nowhere
    phase: Phase | None = None  # how that attempt ended; None while it is not known to have
    message: str = ""  # why
    begun_s: float = 0.0  # seconds of work at the reference speed that it began with
    kept_s: float = 0.0  # the same of the newest checkpoint that is kept
    number: int = 0  # of the latest checkpoint of that attempt that is kept; 0: none of its own is
    problem: str = ""  # why the latest checkpoint is not kept; "" if it is


# The job's files that go to a task's node.


def packed(workdir: Path, words: tuple[str, ...]) -> bytes:
    """Pack the job's files that a command names. Raises PoisonError if the job has put something else there.

    On instances of this machine the job's own code writes to its folder too.
    """
    root, packed = workdir.resolve(), io.BytesIO()
    folder, left = JobFolder(root), MAX_BYTES
    try:
        paths = list(named_files(words, root))
    except ConfigError as error:
        raise PoisonError(str(error)) from error
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for path in paths:
            name = path.relative_to(root).as_posix()
            content = folder.read(name, left)
            if content is not None:
                left -= len(content)
                entry = tarfile.TarInfo(name)
                entry.size, entry.mode = len(content), 0o700
                tar.addfile(entry, io.BytesIO(content))
    return packed.getvalue()


# How the runner of bags works.


@dataclass(frozen=True)
class BagSettings:
    """Settings of the runner."""

    # folder of the runner's own; made with mode 0700. The same folder finds the same tasks again.
    state: Path
    checkpoints: Objects | None = None  # where tasks' checkpoints are kept; None: in `state`
    node_python: str = field(default=sys.executable)  # Python of the nodes, with spotweave next to it
    # a larger checkpoint is not kept: it passes through the scheduler's memory
    checkpoint_most_bytes: int = 256 << 20
    reports_within_s: float = 3.0  # a look at all tasks waits so long for nodes that are slow to answer
    sandbox: Sandbox = NO_SANDBOX  # whose ids jobs have on instances of this machine


_ALMOST = 0.99  # only its end shows that all of the work is done
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
    """A task; not safe to use from several threads. Its methods wait for its node and for checkpoints."""

    def __init__(self, file: Path, key: TaskKey, settings: BagSettings, objects: Objects) -> None:
        self._file, self._key, self._settings = file, key, settings
        self._checkpoints = Checkpoints(objects, key.job_id, key.task)
        self.record = Record.load_whole(file) or Record()

    def begin(self, assignment: Assignment) -> None:
        """Make an attempt run on its node, unless it does already or the work is done. Raises RunnerError."""
        self._turn_to(assignment)
        if self.record.phase is not None:
            return
        node, name = assignment.nodes[0], process_id(assignment.key, assignment.attempt)
        try:
            agent = connect(node)
            if known_process(agent, name) is None:
                self._start(agent, assignment)
        except NodeError as error:
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
                ran_s = self._ask(connect(assignment.nodes[0]), assignment)
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
            status = end_process(connect(record.node), name)
        except NodeUnreachable as error:
            _log.warning("%s is not told to end: %s", name, error)
        else:
            if status is not None and status.exit_code == 0:
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
        command, checkpoint = work.task(self._key.task).command, work.checkpoint or ()
        folder = _folder(assignment.key, assignment.attempt)
        workdir = agent.status().workdir
        agent.put_file(f"{folder}/{FILES}", packed(Path(assignment.workdir), (*command, *checkpoint)))
        kept = self._checkpoints.newest()
        if kept is None:
            self._update(begun_s=0.0, kept_s=0.0)
        else:
            agent.put_file(f"{folder}/{RESTORED}", kept[1])
            self._update(begun_s=self.record.kept_s)
        interval_s = spec.profile.checkpoint_interval_s
        plan = Plan(command=command, checkpoint=checkpoint, interval_s=interval_s)
        agent.put_file(f"{folder}/{PLAN}", plan.model_dump_json().encode())
        agent.start_process(
            ProcessSpec(
                process_id=process_id(assignment.key, assignment.attempt),
                argv=(
                    self._settings.node_python,
                    "-m",
                    "spotweave.deploy.runners.bag.process",
                    f"{workdir}/{folder}",
                ),
                env={
                    "PATH": search_path(self._settings.node_python),
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
        name = process_id(assignment.key, assignment.attempt)
        process = next((one for one in node.processes if one.process_id == name), None)
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
            name = log_name(assignment.key.task, assignment.attempt)
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
        self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        record.save(self._file)  # It holds a node's token.
        self.record = record


def process_id(key: TaskKey, attempt: int) -> str:
    """On the node."""
    return f"bag.{key.job_id}.{key.task}.{attempt}"


def _folder(key: TaskKey, attempt: int) -> str:
    """On the node, below its working folder."""
    return f"bag/{key.job_id}.{key.task}.{attempt}"


def _status(agent: NodeClient, folder: str) -> Status:
    """What the process around the command says; nothing where it says nothing (sensible) yet."""
    try:
        return Status.model_validate_json(agent.get_file(f"{folder}/{STATUS}", _STATUS_BYTES))
    except (NodeRefused, ValidationError):
        return Status()
