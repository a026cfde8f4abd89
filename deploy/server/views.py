"""What the service tells of jobs, instances, offers, decisions, events and costs. No secrets are in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Self

from fastapi import Path, Query
from pydantic import BaseModel, Field

from spotweave.deploy.billing import Bill, usd
from spotweave.deploy.model.instances import InstanceState, Market
from spotweave.deploy.model.jobs import Bag, Flower, JobSpec, JobState
from spotweave.deploy.model.tasks import Phase
from spotweave.deploy.model.workflows import Workflow
from spotweave.deploy.server.access import Caller
from spotweave.deploy.server.schemas import ErrorBody
from spotweave.deploy.store.events import Event
from spotweave.deploy.store.gantt import Sums
from spotweave.deploy.store.instances import Instance
from spotweave.deploy.store.intents import CandidateRecord, DecisionRecord, Mode
from spotweave.deploy.store.jobs import Job
from spotweave.deploy.store.tasks import Task

# What of a job only its submitter and admins see: what it was given, and what its own code says.
#
# Arguments and the environment often hold what was not meant for others, and so do messages of programs that
# failed with them. Names stay: of environment variables and settings, of the script or app.

HIDDEN = "(hidden)"
_TOLD = frozenset({"message", "reason", "error"})  # fields of an event with free text
_OUR_WORDS = frozenset(
    {"task.decided", "task.caught", "task.moved", "task.stayed", "task.hopeless", "task.left"}
)
"""Events of jobs whose words are the scheduler's own. Those of all others may be of the job's program."""


def hidden_spec(spec: JobSpec) -> JobSpec:
    """Without the values that the job was given."""
    work = spec.work
    shown: Flower | Any
    if isinstance(work, Flower):
        clients = tuple(one.model_copy(update={"config": _values(one.config)}) for one in work.clients)
        shown = work.model_copy(update={"run_config": _values(work.run_config), "clients": clients})
    elif isinstance(work, Bag):
        tasks = tuple(one.model_copy(update={"command": _words(one.command)}) for one in work.tasks)
        checkpoint = None if work.checkpoint is None else _words(work.checkpoint)
        shown = work.model_copy(update={"tasks": tasks, "checkpoint": checkpoint})
    elif isinstance(work, Workflow):
        steps = tuple(
            one.model_copy(update={"args": _words(one.args), "conf": _values(one.conf)}) for one in work.steps
        )
        shown = work.model_copy(update={"steps": steps})
    else:
        shown = work.model_copy(update={"args": _words(work.args), "conf": _values(work.conf)})
    return spec.model_copy(update={"work": shown, "env": _values(spec.env)})


def hidden_data(kind: str, data: Mapping[str, Any]) -> Mapping[str, Any]:
    """An event of a job, without what the job's program may have said."""
    if not kind.startswith(("task.", "job.")) or kind in _OUR_WORDS:
        return data
    return {name: hidden_text(value) if name in _TOLD else value for name, value in data.items()}


def hidden_text(text: object) -> str:
    """Placeholder for a message that the caller may not read."""
    return HIDDEN if text else ""


def _words(given: Sequence[str]) -> tuple[str, ...]:
    return (HIDDEN,) * len(given)


def _values(given: Mapping[str, str]) -> dict[str, str]:
    return dict.fromkeys(given, HIDDEN)


MAX_NUMBER = 2**63 - 1
JOB_ID = r"^[a-z0-9][a-z0-9-]{0,79}$"
REQUEST_ID = r"^[A-Za-z0-9._-]{1,100}$"

ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorBody, "description": about}
    for status, about in {
        400: "The request cannot be read.",
        401: "No access token, or not a valid one.",
        403: "The token's role does not allow it.",
        404: "There is no such thing.",
        408: "The body did not arrive in time.",
        409: "It is not possible in the present state.",
        413: "The body is too large.",
        415: "The body is not JSON.",
        422: "Something in the request is not as expected.",
        429: "Too many, or too many at once; `Retry-After` says when to try again.",
        503: "The service cannot answer now; trying again may help.",
        507: "There is no room for it.",
    }.items()
}
Limit = Annotated[int, Query(ge=1, le=1000, description="At most this many")]
JobId = Annotated[str, Path(pattern=JOB_ID)]
JobPrefix = Annotated[str | None, Query(pattern=JOB_ID, description="Only whose ids begin so")]
JobFilter = Annotated[str | None, Query(pattern=JOB_ID, description="Only of this job")]


class View(BaseModel):
    """Base of views: some fields of an object, under the same names."""

    @classmethod
    def of_fields(cls, *things: object, **others: object) -> Self:
        """Build from attributes of the given objects; later objects and keywords take precedence."""
        found = {name: value for thing in things for name, value in vars(thing).items()} | others
        return cls(**{name: value for name, value in found.items() if name in cls.model_fields})


class CostView(BaseModel):
    """Costs so far."""

    usd: float
    disk_usd: float  # the part of it that is for disks
    egress_usd: float
    """The part that is for moving data between regions: an estimate, from what jobs declare."""
    on_demand_usd: float  # the same instances over the same time on demand, with their disks and moves
    instance_seconds: int

    @classmethod
    def of(cls, bill: Bill) -> CostView:
        """Build from the store's exact bill, rounded to the micro-USD."""
        return cls(
            usd=float(bill.usd),
            disk_usd=float(usd(bill.disk)),
            egress_usd=float(usd(bill.egress)),
            on_demand_usd=float(bill.on_demand_usd),
            instance_seconds=bill.seconds,
        )


class CostsView(BaseModel):
    """Costs of everything."""

    by: str
    groups: dict[str, CostView]  # the latest jobs, or the latest days
    others: CostView | None  # sum of the groups that are not listed; null if all are
    total: CostView


class TaskView(View):
    """A unit of decision."""

    task: str
    attempt: int  # 0 before the first
    phase: Phase | None  # phase of the latest attempt; null while the task waits for a place
    progress: float
    saved: float
    instances: list[str]
    misses: int  # batch deadlines missed
    executions_done: int
    message: str
    waiting_since_s: float | None
    details: Mapping[str, str]

    @classmethod
    def of(cls, task: Task, whole: bool) -> TaskView:
        """Build from the store's task; `whole`: with its program's messages."""
        return cls.of_fields(
            task,
            task=task.key.task,
            instances=list(task.instances),
            message=task.message if whole else hidden_text(task.message),
            details=dict(task.details) if whole else {},
        )


class JobHead(View):
    """A job by itself."""

    job_id: str
    name: str
    kind: str
    state: JobState
    submitter: str
    submitted_s: float
    ended_s: float | None
    deadline_s: float | None
    """Epoch seconds; null without one, and for streaming jobs, whose batches have deadlines."""


class JobSummary(JobHead):
    """A job in a list."""

    misses: int  # batch deadlines missed
    reason: str
    tasks_done: int  # number of the job's `tasks_all` that have succeeded
    tasks_all: int

    @classmethod
    def of(cls, job: Job, sums: Sums, caller: Caller) -> JobSummary:
        """Build from the store's job, as far as the caller may see it."""
        return cls.of_fields(
            job,
            deadline_s=deadline_of(job),
            misses=sums.misses,
            name=job.spec.name,
            kind=job.spec.work.kind,
            reason=reason_for(job, caller),
            tasks_done=sums.tasks_done,
            tasks_all=sums.tasks,
        )


def deadline_of(job: Job) -> float | None:
    """When a job must have ended, epoch seconds; None without a deadline."""
    within_s: float | None = getattr(job.spec.work, "deadline_s", None)
    return None if within_s is None else job.submitted_s + within_s


def reason_for(job: Job, caller: Caller) -> str:
    """Why it ended; why it failed its own program may have said."""
    hidden = job.state is JobState.FAILED and not caller.may_see(job.submitter)
    return hidden_text(job.reason) if hidden else job.reason


class JobView(JobSummary):
    """A job. What it was given and says is `(hidden)` from all but its submitter and admins."""

    spec: JobSpec
    user_failures: int
    tasks: list[TaskView]
    cost: CostView


class FileView(BaseModel):
    """A file in a job's folder."""

    path: str
    size: int  # in bytes


class FilesView(BaseModel):
    """What a job's programs have left in its folder."""

    files: list[FileView]
    """By path. Files that came with the job, checkpoints and copies in progress are not among them."""


class InstanceView(View):
    """An instance, without its secrets."""

    instance_id: str
    offer_id: str
    provider: str
    market: Market
    job_id: str
    task: str
    state: InstanceState
    price_usd_hour: float  # when it was asked for
    on_demand_usd_hour: float
    requested_s: float
    launched_s: float | None
    ready_s: float | None
    ended_s: float | None
    by_provider: bool  # whether the provider ended the instance: an interruption
    notice_s: float | None  # when its provider will end it
    rebalance: bool
    provider_id: str | None
    address: str

    @classmethod
    def of(cls, one: Instance) -> InstanceView:
        """Build from the store's instance."""
        return cls.of_fields(one.offer, one, **one.key._asdict())


class OfferView(View):
    """An offer and how much of it is used."""

    offer_id: str
    provider: str
    region: str
    zone: str
    instance_type: str
    market: Market
    vcpus: int
    memory_gib: float
    gpu: str | None
    gpus: int
    gpu_memory_gib: float
    speed: float
    price_usd_hour: float
    on_demand_usd_hour: float
    available: bool
    reason: str
    quota: int
    used: int
    up_ratio: float
    launch_s: float
    notice_s: float


class DecisionView(View):
    """A decision that the scheduler took."""

    decision_id: int
    time_s: float
    policy: str
    mode: Mode
    job_id: str
    task: str
    chosen: str | None
    latency_s: float
    shadow_policy: str | None
    shadow_choice: str | None
    shadow_difference: float | None
    candidates: tuple[CandidateRecord, ...]  # places that were considered; `offer_id` null: none for now

    @classmethod
    def of(cls, one: DecisionRecord) -> DecisionView:
        """Build from the store's record."""
        return cls.of_fields(one, **one.key._asdict())


class EventView(View):
    """Something that happened."""

    sequence: int
    time_s: float
    kind: str
    job_id: str | None
    task: str | None
    instance_id: str | None
    decision_id: int | None
    data: Mapping[str, Any] = Field(default_factory=dict)

    @classmethod
    def of(cls, one: Event, caller: Caller) -> EventView:
        """Build from the store's event, as far as the caller may see it."""
        hidden = one.job_id is not None and not caller.may_see(one.submitter)
        return cls.of_fields(one, data=hidden_data(one.kind, one.data) if hidden else one.data)


class Explanation(BaseModel):
    """Why a job is where it is."""

    job: JobView
    decisions: list[DecisionView]  # the latest, the newest first
    events: list[EventView]  # the latest, the oldest of them first


class Health(BaseModel):
    """Answer of a live process."""

    status: str = "ok"


class Readiness(BaseModel):
    """Readiness of the service."""

    policy: str
    federated_policy: str | None
    store: bool
    scheduler: bool
    last_pass_s: float | None
