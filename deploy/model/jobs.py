"""Jobs as users submit them, and their states."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Literal, NamedTuple

from pydantic import AfterValidator, Field, FiniteFloat, model_validator

from spotweave.deploy.model import strategies
from spotweave.deploy.model.fields import (
    MAX_ARGUMENTS,
    MAX_CLIENTS,
    MOST_SECONDS,
    MOST_TEXT_BYTES,
    Argument,
    Count,
    Gigabytes,
    Name,
    Names,
    Path,
    Seconds,
    Text,
    Texts,
    Usd,
    Work,
    check_distinct,
    check_size,
)
from spotweave.deploy.model.gpus import GpuAsk
from spotweave.deploy.model.instances import Offer
from spotweave.deploy.model.workflows import SparkProgram, Workflow
from spotweave.documents import StrictModel

# Bags of tasks: commands that need nothing of each other, with one deadline for all of them.

MOST_TASKS = 1000


def _program(words: tuple[str, ...]) -> tuple[str, ...]:
    if not words[0]:
        raise ValueError("its first word is empty: expected a program, then its arguments")
    check_size(words)
    return words


Command = Annotated[
    tuple[Argument, ...], Field(min_length=1, max_length=MAX_ARGUMENTS), AfterValidator(_program)
]
"""A program and its arguments; no shell reads them."""


class TaskAsk(GpuAsk):
    """What the instance of one task must have; what is left out is as `resources` of the job says."""

    vcpus: Annotated[int, Field(gt=0, le=10_000)] | None = None
    """Cores that its instance must have; None: as `resources` of the job says."""
    memory_gib: Annotated[FiniteFloat, Field(ge=0.001, le=1e5)] | None = None
    """The same of its memory."""

    @property
    def asked(self) -> dict[str, object]:
        """Keys of `resources` that it sets."""
        asked = {"vcpus": self.vcpus, "memory_gib": self.memory_gib}
        return {name: value for name, value in asked.items() if value is not None} | self.asked_gpus


class BagTask(TaskAsk):
    """One command, on an instance of its own."""

    name: Name
    """Unique in the bag."""
    command: Command
    """Program and arguments, run without a shell."""
    minutes: Annotated[FiniteFloat, Field(gt=0, le=MOST_SECONDS / 60)]
    """Expected run time at `profile.reference_speed`."""
    vcpus: Annotated[int, Field(gt=0, le=10_000)] | None = None
    """Minimum cores; None: as in `resources`."""
    memory_gib: Annotated[FiniteFloat, Field(ge=0.001, le=1e5)] | None = None
    """Minimum memory; None: as in `resources`."""


class Bag(Work):
    """Independent commands, each a task; succeeds when all have ended with exit code 0."""

    kind: Literal["bag"] = "bag"
    tasks: Annotated[tuple[BagTask, ...], Field(min_length=1, max_length=MOST_TASKS)]
    """The commands."""
    deadline_s: Seconds | None = None
    """From submission to the end of the last task."""
    checkpoint: Command | None = None
    """Command that fills the checkpoint folder; run every `profile.checkpoint_interval_s` and before the
    instance ends; None: an interrupted task starts over."""

    @model_validator(mode="after")
    def _distinct(self) -> Bag:
        check_distinct("tasks", self.task_names)
        check_size(self.words, MOST_TEXT_BYTES)
        return self

    @property
    def task_names(self) -> tuple[str, ...]:
        """See Work."""
        return tuple(task.name for task in self.tasks)

    @property
    def words(self) -> tuple[str, ...]:
        """See Work."""
        return tuple(word for task in self.tasks for word in task.command) + (self.checkpoint or ())

    @property
    def standard_s(self) -> float:
        """Expected seconds of its longest task."""
        return 60.0 * max(task.minutes for task in self.tasks)

    def task(self, name: str) -> BagTask:
        """One of them. Raises KeyError."""
        for task in self.tasks:
            if task.name == name:
                return task
        raise KeyError(name)

    def standard_s_of(self, task: str) -> float:
        """Expected seconds of a task at the reference speed."""
        return 60.0 * self.task(task).minutes

    def asks(self, task: str) -> Mapping[str, object]:
        """See Work."""
        return self.task(task).asked


class JobState(StrEnum):
    """Life cycle of a job. PENDING and RUNNING are live, the others final."""

    PENDING = "pending"
    """Accepted; no task of it runs now."""
    RUNNING = "running"
    """At least one task has, or is being given, instances."""
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    """By the user's error, or given up after too many tries; the event says which."""
    CANCELLED = "cancelled"

    @property
    def live(self) -> bool:
        """Whether the job has not ended."""
        return self in (JobState.PENDING, JobState.RUNNING)


class TaskKey(NamedTuple):
    """One unit of decision: "main" of a Spark job, "client-NAME" or "server" of a Flower job, else "NAME"."""

    job_id: str
    task: str


class Resources(GpuAsk):
    """What each instance of a task must have."""

    instances: Annotated[int, Field(gt=0, le=1000)] = 1
    """Instances at once, all of one offer."""
    vcpus: Annotated[int, Field(gt=0, le=10_000)] = 1
    """Minimum cores of each."""
    memory_gib: Annotated[FiniteFloat, Field(ge=0.001, le=1e5)] = 1.0
    """Minimum memory of each."""


class Places(StrictModel):
    """Where a job may run; what is left out restricts nothing."""

    markets: Annotated[tuple[Literal["owned", "on_demand", "spot"], ...], Field(max_length=3)] | None = None
    """Allowed markets."""
    providers: Names | None = None
    """Allowed providers, as the deployment names them."""
    regions: Names | None = None
    """Allowed regions."""
    instance_types: Names | None = None
    """Allowed instance types."""


def ban(wanted: Resources, places: Places, offer: Offer) -> str | None:
    """Why a task that wants this may never run on such an offer, whatever it costs; None if it may."""
    for what, allowed, value in (
        ("market", places.markets, offer.market),
        ("provider", places.providers, offer.provider),
        ("region", places.regions, offer.region),
        ("instance type", places.instance_types, offer.instance_type),
    ):
        if allowed is not None and value not in allowed:
            return f"the job allows {what} {', '.join(allowed)}, this is {value}"
    if offer.vcpus < wanted.vcpus:
        return f"has {offer.vcpus} vCPUs, the job needs {wanted.vcpus}"
    if offer.memory_gib < wanted.memory_gib:
        return f"has {offer.memory_gib:g} GiB, the job needs {wanted.memory_gib:g}"
    if lacking := wanted.lacking(offer.gpus, offer.gpu, offer.gpu_memory_gib):
        return lacking
    if offer.quota < wanted.instances:
        return f"at most {offer.quota} instances may run, the job needs {wanted.instances}"
    return None


class _Spark(SparkProgram, Work):
    @property
    def program(self) -> str:
        """See Work."""
        return self.script

    @property
    def words(self) -> tuple[str, ...]:
        """See Work."""
        return self.args + self.named_files


class SparkBatch(_Spark):
    """A Spark application that ends by itself."""

    kind: Literal["spark-batch"] = "spark-batch"
    deadline_s: Seconds | None = None
    """From submission to the end."""
    standard_s: Seconds | None = None
    """Expected run time at `profile.reference_speed`; None: learned from your earlier jobs of this name."""

    def standard_s_of(self, task: str) -> float | None:
        """Expected seconds of a task at the reference speed; None where not known."""
        return self.standard_s


class SparkStreaming(_Spark):
    """A Structured Streaming application with a deadline for each micro-batch."""

    kind: Literal["spark-streaming"] = "spark-streaming"
    period_s: Seconds
    """Time between two triggers."""
    batch_deadline_s: Seconds
    """From a batch's trigger to its end."""
    batches: Count | None = None
    """The job ends after this many; None: runs until cancelled."""
    standard_s: Seconds | None = None
    """Expected time of one batch."""


def _interval(seconds: float) -> float:
    if 0 < seconds < 1:
        raise ValueError(f"{seconds:g} s between two checkpoints: expected 0 (none) or at least 1")
    return seconds


class Profile(StrictModel):
    """What is known of each task, for better decisions."""

    reference_speed: Annotated[FiniteFloat, Field(ge=0.001, le=1000)] = 1.0
    """Speed of the instance type that expected times refer to."""
    sensitivity: Annotated[FiniteFloat, Field(ge=0.01, le=100)] | None = None
    """Speeds count within `reference_speed` ± `sensitivity` / 7 only (Liu 2022, section 5.3); None: all."""
    data_region: Text | None = None
    """Region of the input; None: everywhere."""
    data_gb: Gigabytes = 0.0
    """Input that is read at each start."""
    checkpoint_gb: Gigabytes = 0.0
    """Size of a checkpoint, which moves with the task."""
    checkpoint_s: Annotated[FiniteFloat, Field(ge=0, le=MOST_SECONDS)] = 0.0
    """Time to save a checkpoint."""
    checkpoint_interval_s: Annotated[FiniteFloat, Field(ge=0, le=MOST_SECONDS), AfterValidator(_interval)] = (
        0.0
    )
    """Work between two checkpoints, at least 1; 0: no regular checkpoints."""


class FlowerClient(StrictModel):
    """One participant."""

    name: Name
    """Unique in the training."""
    config: Texts = Field(default_factory=dict)
    """Flower's `node_config`."""
    region: Text | None = None
    """Region of its data, the only one where it trains; None: any."""
    budget_usd: Usd | None = None
    """Hard limit on its cost; it leaves the training before passing it."""
    epoch_s: Seconds | None = None
    """Its own `epoch_s`, if it differs."""
    cold_s: Annotated[FiniteFloat, Field(ge=0, le=MOST_SECONDS)] | None = None
    """Extra time of its first epoch on an instance; None: measured."""
    samples: Annotated[int, Field(gt=0, le=strategies.MOST_SAMPLES)] = 1
    """Weight in asynchronous strategies: number of examples, in any unit."""


SERVER = "server"
"""Name of a training's server: its task where it has a place of its own, and its log."""


class FlowerServer(TaskAsk):
    """An instance for the ServerApp of a training."""

    region: Text | None = None
    """Where it must run; None: anywhere."""


class Flower(Work):
    """A federated training."""

    kind: Literal["flower"] = "flower"
    app: Path
    """Folder of the Flower app, with its pyproject.toml."""
    rounds: Count
    """Rounds until it has succeeded; versions of the model in asynchronous strategies."""
    clients: Annotated[tuple[FlowerClient, ...], Field(min_length=1, max_length=MAX_CLIENTS)]
    """Participants; each is a task."""
    run_config: Texts = Field(default_factory=dict)
    """Overrides the app's settings (Flower's `run_config`)."""
    deadline_s: Seconds | None = None
    """From submission to the end of the last round."""
    epoch_s: Seconds | None = None
    """Expected time of a client's part of a round, until measured."""
    aggregation_s: Seconds | None = None
    """Expected time of the server at the end of a round."""
    strategy: strategies.Strategy = strategies.FedAvg()
    """How updates become the next model."""
    server: FlowerServer | None = None
    """Place the ServerApp on an instance like a client (`{}`: any); None: on the scheduler's machine."""

    @model_validator(mode="after")
    def _distinct(self) -> Flower:
        names = [client.name for client in self.clients]
        check_distinct("clients", names)
        if self.server is not None and SERVER in names:
            raise ValueError("a client is called 'server', as the server's own task: give it another name")
        configured = (text for client in self.clients for entry in client.config.items() for text in entry)
        check_size(configured, MOST_TEXT_BYTES)
        return self

    @model_validator(mode="after")
    def _strategy(self) -> Flower:
        samples = {client.name: client.samples for client in self.clients}
        epochs_s = {client.name: client.epoch_s or self.epoch_s for client in self.clients}
        strategies.check(self.strategy, samples, epochs_s)
        return self

    @property
    def brokers(self) -> int:
        """Number of brokers between clients and server."""
        return getattr(self.strategy, "brokers", 0)

    @property
    def synchronous(self) -> bool:
        """Whether clients wait for each other at the end of a round."""
        return self.strategy.kind == "fedavg"

    @property
    def task_names(self) -> tuple[str, ...]:
        """See Work."""
        clients = tuple(f"client-{client.name}" for client in self.clients)
        return clients if self.server is None else (SERVER, *clients)

    @property
    def logs(self) -> tuple[str, ...]:
        """See Work."""
        return self.task_names if self.server is not None else (SERVER, *self.task_names)

    def region_of(self, task: str) -> str | None:
        """See Work: data stay where they are, so a client with a region trains there or nowhere."""
        if task == SERVER:
            return None if self.server is None else self.server.region
        return next(client.region for client in self.clients if f"client-{client.name}" == task)

    def asks(self, task: str) -> Mapping[str, object]:
        """See Work."""
        return self.server.asked if task == SERVER and self.server is not None else {}

    @property
    def program(self) -> str:
        """See Work."""
        return self.app


class JobSpec(StrictModel):
    """A job file: what `spotweave submit` sends."""

    name: Name
    """A label; need not be unique."""
    work: Annotated[SparkBatch | SparkStreaming | Flower | Bag | Workflow, Field(discriminator="kind")]
    """What to run."""
    resources: Resources = Resources()
    """What each instance must have."""
    places: Places = Places()
    """Where it may run."""
    profile: Profile = Profile()
    """What is known of its tasks."""
    budget_usd: Usd | None = None
    """Hard limit on the cost of all its instances."""
    env: Texts = Field(default_factory=dict)
    """Environment variables, stored in the clear: no secrets."""
    max_user_failures: Annotated[int, Field(ge=0, le=20)] = 2
    """Failures of the job's own that it survives."""

    @model_validator(mode="after")
    def _environment(self) -> JobSpec:
        for key in self.env:
            if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", key):
                raise ValueError(f"env has the name {key!r}: expected letters, digits and underscores")
        return self

    @model_validator(mode="after")
    def _regions(self) -> JobSpec:
        allowed = self.places.regions
        for task in self.work.task_names if allowed is not None else ():
            region = self.work.region_of(task)
            if allowed is not None and region is not None and region not in allowed:
                raise ValueError(
                    f"{task!r} may run in {region} only, where places.regions lets nothing run: "
                    "add that region"
                )
        return self

    @property
    def tasks(self) -> tuple[str, ...]:
        """Names of its units of decision."""
        return self.work.task_names

    def resources_of(self, task: str) -> Resources:
        """Resources of each instance of a task."""
        asked = self.work.asks(task)
        return self.resources.model_copy(update=asked) if asked else self.resources

    def places_of(self, task: str) -> Places:
        """Places allowed for a task, restricted also by data that may not leave their region."""
        region = self.work.region_of(task)
        return self.places if region is None else self.places.model_copy(update={"regions": (region,)})
