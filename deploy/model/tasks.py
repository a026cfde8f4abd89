"""What runs where: tasks on instances, and what runners report of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from spotweave.deploy.model.jobs import JobSpec, TaskKey


class Phase(StrEnum):
    """Phase of one attempt at a task."""

    STARTING = "starting"
    RUNNING = "running"
    WAITING = "waiting"
    """Idle, waiting for others (a client between two rounds)."""
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    """By its own fault: it ran, and exited with an error on healthy instances."""
    LOST = "lost"
    """By the fault of an instance, a node agent or a service: it may be tried again at no one's cost."""
    LEFT = "left"
    """Out of its job for good (a client whose budget is spent); never placed again."""

    @property
    def ended(self) -> bool:
        """Whether the attempt is over."""
        return self in (Phase.SUCCEEDED, Phase.FAILED, Phase.LOST, Phase.LEFT)


@dataclass(frozen=True)
class Node:
    """A ready instance, as a runner needs it.

    Attributes:
        instance_id: the scheduler's own id.
        address: IP address.
        port: of its node agent.
        token: for its node agent. Never logged.
        vcpus: that the task may use.
        memory_gib: that the task may use.
        speed: of the instance, that of the reference type is 1.
        region: where it is.
        gpus: that the task may use.
        notice_s: epoch seconds at which it will end; None without notice.
        certificate: of its node agent, PEM: whoever shows another one is not this node.
    """

    instance_id: str
    address: str
    port: int
    token: str = field(repr=False)
    vcpus: int
    memory_gib: float
    notice_s: float | None = None
    certificate: str = field(default="", repr=False)
    speed: float = 1.0
    region: str = ""
    gpus: int = 0


@dataclass(frozen=True)
class Assignment:
    """One attempt at a task on nodes; `attempt` counts from 1 and never goes back.

    Attributes:
        key: which task.
        attempt: number of the try.
        spec: the job.
        nodes: where; all of one offer.
        workdir: the job's own folder on the scheduler's machine (uploaded files, checkpoints, logs).
    """

    key: TaskKey
    attempt: int
    spec: JobSpec
    nodes: tuple[Node, ...]
    workdir: str

    @property
    def attempt_id(self) -> str:
        """Unique, and safe in paths."""
        return f"{self.key.job_id}.{self.key.task}.{self.attempt}"


@dataclass(frozen=True)
class TaskReport:
    """What a runner knows of an attempt now.

    Attributes:
        key: which task.
        attempt: number of the try.
        phase: where it is.
        progress: share of the work that is done, 0..1; of what was saved in `saved`.
        saved: share that a new attempt would not have to do again.
        message: for people; for FAILED the reason in one line.
        executions_done: batches or rounds that are finished.
        misses: batch deadlines missed so far (streaming).
        last_execution_s: how long the latest batch, round or epoch took; None before one.
        delivered: Flower: whether a client has delivered in the present round.
        execution_since_s: Flower: epoch seconds since when a client works on its epoch; None: it does not.
        details: anything else, for the dashboard.
        next_due_s: streaming: epoch seconds when the data of the first unfinished batch are complete; None
            where not known.
        execution_saved: streaming: share of that batch that a new attempt would not have to do again;
            federated: of the client's epoch.
        saved_region: where what was saved lies; "" where nothing was, or where that is not known.
    """

    key: TaskKey
    attempt: int
    phase: Phase
    progress: float = 0.0
    saved: float = 0.0
    message: str = ""
    executions_done: int = 0
    misses: int = 0
    last_execution_s: float | None = None
    delivered: bool = False
    execution_since_s: float | None = None
    details: Mapping[str, str] = field(default_factory=dict)
    next_due_s: float | None = None
    execution_saved: float = 0.0
    saved_region: str = ""
