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
    """A ready instance, as a runner needs it."""

    instance_id: str  # the scheduler's own id
    address: str  # IP address
    port: int  # of its node agent
    token: str = field(repr=False)  # for its node agent. Never logged.
    vcpus: int  # that the task may use
    memory_gib: float  # that the task may use
    notice_s: float | None = None  # epoch seconds at which it will end; None without notice
    # of its node agent, PEM: whoever shows another one is not this node
    certificate: str = field(default="", repr=False)
    speed: float = 1.0  # of the instance, that of the reference type is 1
    region: str = ""
    gpus: int = 0  # that the task may use


@dataclass(frozen=True)
class Assignment:
    """One attempt at a task on nodes; `attempt` counts from 1 and never goes back."""

    key: TaskKey
    attempt: int
    spec: JobSpec
    nodes: tuple[Node, ...]  # where; all of one offer
    workdir: str  # the job's own folder on the scheduler's machine (uploaded files, checkpoints, logs)

    @property
    def attempt_id(self) -> str:
        """Unique, and safe in paths."""
        return f"{self.key.job_id}.{self.key.task}.{self.attempt}"


@dataclass(frozen=True)
class TaskReport:
    """What a runner knows of an attempt now."""

    key: TaskKey
    attempt: int
    phase: Phase
    progress: float = 0.0  # share of the work that is done, 0..1; of what was saved in `saved`
    saved: float = 0.0  # share that a new attempt would not have to do again
    message: str = ""  # for people; for FAILED the reason in one line
    executions_done: int = 0  # batches or rounds that are finished
    misses: int = 0  # batch deadlines missed so far (streaming)
    last_execution_s: float | None = None  # how long the latest batch, round or epoch took; None before one
    delivered: bool = False  # Flower: whether a client has delivered in the present round
    # Flower: epoch seconds since when a client works on its epoch; None: it does not
    execution_since_s: float | None = None
    details: Mapping[str, str] = field(default_factory=dict)  # anything else, for the dashboard
    # streaming: epoch seconds when the data of the first unfinished batch are complete; None where not known
    next_due_s: float | None = None
    # share of that batch, or of a client's epoch, that a new attempt would not have to do again
    execution_saved: float = 0.0
    saved_region: str = ""  # where what was saved lies; "" where nothing was, or where that is not known
