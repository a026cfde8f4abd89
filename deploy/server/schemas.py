"""Requests for decisions and their answers: the same facts as `Offer` and `Need`, with bounds."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, model_validator

from spotweave.deploy.model.gpus import MOST_GPUS
from spotweave.deploy.model.instances import Market, Offer
from spotweave.deploy.model.jobs import Places, Resources, TaskKey
from spotweave.deploy.scheduler.needs import Kind, Need, Round
from spotweave.envs.simulation.snapshot import HISTORY_STEPS

MAX_OFFERS = 500
MAX_TASKS = 200

# The networks compute in single precision: products of these bounds stay far below its largest number.
_LONG_S = 1e9
Text = Annotated[str, Field(min_length=1, max_length=200)]
AnyText = Annotated[str, Field(max_length=500)]
Seconds = Annotated[FiniteFloat, Field(ge=0, le=_LONG_S)]
SignedSeconds = Annotated[FiniteFloat, Field(ge=-_LONG_S, le=_LONG_S)]
Usd = Annotated[FiniteFloat, Field(ge=0, le=1e6)]
Gb = Annotated[FiniteFloat, Field(ge=0, le=1e9)]
Share = Annotated[FiniteFloat, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=0, le=1_000_000)]
Instances = Annotated[int, Field(ge=0, le=100_000)]
Weight = Annotated[FiniteFloat, Field(ge=-1e6, le=1e6)]

OFFER_EXAMPLE: dict[str, Any] = {
    "offer_id": "aws/us-east-1a/g5.xlarge/spot",
    "provider": "aws",
    "region": "us-east-1",
    "zone": "us-east-1a",
    "instance_type": "g5.xlarge",
    "market": "spot",
    "vcpus": 4,
    "memory_gib": 16.0,
    "gpu": "A10G",
    "gpus": 1,
    "gpu_memory_gib": 24.0,
    "speed": 1.2,
    "price_usd_hour": 0.41,
    "on_demand_usd_hour": 1.006,
    "available": True,
    "quota": 8,
    "used": 2,
    "mean_up_s": 14_400.0,
    "notice_s": 120.0,
}
ON_DEMAND_EXAMPLE: dict[str, Any] = {
    **OFFER_EXAMPLE,
    "offer_id": "aws/us-east-1/g5.xlarge/on-demand",
    "zone": "",
    "market": "on_demand",
    "price_usd_hour": 1.006,
    "used": 0,
    "mean_up_s": 0.0,
    "notice_s": 0.0,
}
TASK_EXAMPLE: dict[str, Any] = {
    "job_id": "nightly-report",
    "kind": "deadline",
    "resources": {"instances": 2, "vcpus": 4, "memory_gib": 8.0},
    "standard_s": 3600.0,
    "age_s": 120.0,
    "waited_s": 120.0,
    "slack_s": 14_000.0,
}
DECISION_EXAMPLE: dict[str, Any] = {"offers": [OFFER_EXAMPLE, ON_DEMAND_EXAMPLE], "tasks": [TASK_EXAMPLE]}


class _Facts(BaseModel):
    # A mistyped key would silently leave a default in force.
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class OfferFacts(_Facts):
    """Something that can be rented, as it is now."""

    model_config = ConfigDict(json_schema_extra={"examples": [OFFER_EXAMPLE]})

    offer_id: Text  # unique in the request
    provider: Text
    region: AnyText = ""
    zone: AnyText = ""
    instance_type: Text
    market: Market
    vcpus: Annotated[int, Field(gt=0, le=100_000)]  # vCPUs of one instance
    memory_gib: Annotated[FiniteFloat, Field(gt=0, le=1e6)]  # memory of one instance
    gpu: Text | None = None  # model of its GPUs
    gpus: Annotated[int, Field(ge=0, le=MOST_GPUS)] = 0  # of one instance
    gpu_memory_gib: Annotated[FiniteFloat, Field(ge=0, le=1e5)] = 0.0  # of each of them
    speed: Annotated[FiniteFloat, Field(ge=1e-3, le=1e3)] = 1.0
    """Relative to the reference instance type, larger is faster."""
    price_usd_hour: Usd  # current price of one instance
    on_demand_usd_hour: Usd  # the same type on demand in that region
    available: bool = True  # whether a launch is believed to be possible now
    quota: Instances  # instances that may run at once
    used: Instances = 0  # instances that run or boot now
    used_history: Annotated[tuple[Instances, ...], Field(max_length=HISTORY_STEPS)] = ()
    """Used instances every 300 s, the latest last."""
    up_ratio: Share = 1.0  # share of the latest 24 h in which it was available
    spell_s: Seconds = 0.0  # since availability last changed
    mean_up_s: Seconds = 0.0  # mean length of the up-spells of the latest 7 days
    launch_s: Seconds = 60.0  # seconds from the request to a ready node
    notice_s: Seconds = 0.0  # seconds of interruption notice
    free_first_s: Seconds = 0.0  # an instance that the provider interrupts earlier costs nothing
    billing_minimum_s: Seconds = 60.0
    reason: AnyText = ""  # why it is not available

    @model_validator(mode="after")
    def _gpus(self) -> OfferFacts:
        if (self.gpu is None) != (self.gpus == 0):
            raise ValueError(f"gpu is {self.gpu!r} and gpus is {self.gpus}: give both, or none of them")
        return self

    def offer(self) -> Offer:
        """As the scheduler knows offers."""
        facts = dict(self.__dict__)
        del facts["used"], facts["used_history"]
        return Offer(**facts)


class RoundFacts(_Facts):
    """What is particular to a task that trains in rounds."""

    idle: bool = False  # the client holds its instances and waits for others
    is_server: bool = False
    owes: bool = True  # the client's result of the current round is still to come
    round_left_s: Seconds = 0.0  # until all others of its round have delivered
    round_s: Seconds = 0.0  # duration of a whole round
    cold_s: Seconds = 0.0  # what its first execution on new instances takes longer
    budget_left_usd: Annotated[FiniteFloat, Field(ge=-1e6, le=1e6)] | None = None
    others_usd_hour: Usd = 0.0  # price of all instances that its application holds besides its own
    time_error_s: Seconds = 0.0  # by how much such expectations were off lately


class TaskFacts(_Facts):
    """A task that awaits a decision. Times are expected ones; `standard_s` is at speed 1."""

    model_config = ConfigDict(json_schema_extra={"examples": [TASK_EXAMPLE]})

    job_id: Text
    task: Text = "main"  # unique within the job
    kind: Kind
    resources: Resources = Resources()
    """Resources of each instance, and how many instances the task needs at once."""
    places: Places = Places()  # allowed places
    standard_s: Seconds  # duration of one execution (batch, epoch), or of all the work
    age_s: Seconds = 0.0  # since it was submitted: the oldest arrived first
    waited_s: Seconds = 0.0  # since it entered, or re-entered, the buffer
    slack_s: SignedSeconds | None = None  # until its next deadline, negative when late; null without one
    executions_left: Count = 1  # batches or rounds left; of a step: itself and all that wait for it
    period_s: Seconds = 0.0  # between two batches
    progress: Share = 0.0  # share of the work that is done and saved
    restart_s: Seconds = 0.0  # to set up on fresh instances
    checkpoint_s: Seconds = 0.0  # between two periodic checkpoints; 0 without
    data_gb: Gb = 0.0
    checkpoint_gb: Gb = 0.0
    interruptions: Count = 0
    misses: Count = 0
    backlog: Count = 0
    running: bool = False  # the task runs now and may be moved; "none" leaves it
    here: Text | None = None  # id of the offer on which it runs or waits
    left_here_s: Seconds = 0.0  # until the end of the current execution there
    transfer_s: dict[Text, Seconds] = Field(default_factory=dict, max_length=MAX_OFFERS)
    """By offer id: to move its data there."""
    round: RoundFacts = RoundFacts()  # facts about the round, for tasks of kind "federated"

    @property
    def key(self) -> TaskKey:
        """Which task."""
        return TaskKey(self.job_id, self.task)

    def need(self) -> Need:
        """As the scheduler knows it."""
        facts = dict(self.__dict__)
        del facts["job_id"], facts["task"], facts["transfer_s"]
        facts["round"] = Round(**self.round.__dict__)
        return Need(key=self.key, **facts)


class DecisionRequest(_Facts):
    """Which of these tasks goes where now?"""

    model_config = ConfigDict(json_schema_extra={"examples": [DECISION_EXAMPLE]})

    offers: Annotated[tuple[OfferFacts, ...], Field(min_length=1, max_length=MAX_OFFERS)]
    tasks: Annotated[tuple[TaskFacts, ...], Field(max_length=MAX_TASKS)]
    weights: dict[Text, Weight] = Field(default_factory=dict, max_length=20)
    """Other weights of the market policy's value components, for this request only; the rest stay."""

    @model_validator(mode="after")
    def _consistent(self) -> DecisionRequest:
        offers = _distinct([offer.offer_id for offer in self.offers], "offers are called")
        _distinct([task.key for task in self.tasks], "tasks are")
        for task in self.tasks:
            named = {*task.transfer_s, *([] if task.here is None else [task.here])}
            if not named <= offers:
                raise ValueError(
                    f"task {task.job_id}/{task.task} names the offer {min(named - offers)!r}, which is not "
                    "among the offers"
                )
        return self


def _distinct(names: list[Any], what: str) -> set[Any]:
    found = set(names)
    if len(found) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        shown = "/".join(twice) if isinstance(twice, tuple) else twice
        raise ValueError(f"two {what} {shown!r}: they must differ")
    return found


class TaskName(BaseModel):
    """A task."""

    job_id: str
    task: str


class CandidateAnswer(BaseModel):
    """One place for the task, or none for now (`offer_id` null)."""

    offer_id: str | None
    available: bool  # whether the candidate may be chosen now
    reason: str  # why not; "" where it may
    total: float | None  # what the policy ranks by, higher is better; null where it gives no numbers
    values: dict[str, float]  # by component of the policy's value; `total` is their weighted sum
    expected_usd: float  # until the task's end, delay and misses included, by the rule `expected_cost`
    price_usd_hour: float  # current price of all instances that the task would hold there
    finish_s: float  # expected, until the end of its work (or next execution) there
    risk: float  # chance of an interruption until then
    cost_usd: float  # expected, of that, at the price of now


class Window(BaseModel):
    """Which tasks the policy saw: the first by arrival."""

    size: int
    considered: list[TaskName]
    left_out: int  # tasks of the request that it did not see; ask again when the first ones are placed


class DecisionAnswer(BaseModel):
    """This one task: which offer, or none for now."""

    policy: str
    kind: Literal["market", "federated"]
    """Federated tasks are decided by the policy for rounds, all others by the market policy."""
    weights: dict[str, float]  # in force for this answer; empty for a policy without value components
    task: TaskName
    offer_id: str | None  # chosen offer; null: none for now
    policy_choice: str | None
    """What the policy chose; another than `offer_id` where the safety net caught it."""
    net: str  # why the safety net overruled the policy; "" where it did not
    invalid: str  # why the policy's answer was not followed and its guide chose; "" where it was valid
    why: str
    """Which margin decided, where another candidate has a better total; "" where the choice has the best."""
    candidates: list[CandidateAnswer]  # best first, the policy's choice before all
    window: Window


class DecisionResponse(BaseModel):
    """At most one decision of each policy; a later one counts the instances of the one before as used."""

    decisions: list[DecisionAnswer]


class ErrorBody(BaseModel):
    """Every error."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"error": "there is no job 'x': see spotweave jobs"}]}
    )

    error: str  # one line: what was given, what was expected, what to do
