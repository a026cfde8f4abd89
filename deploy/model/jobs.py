"""Jobs as users submit them, and their states."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Literal, NamedTuple

from pydantic import AfterValidator, Field, FiniteFloat, model_validator

from deploy.model import strategies
from deploy.model.fields import (
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
    check_size,
)
from deploy.model.gpus import GpuAsk
from deploy.model.instances import Offer
from deploy.model.workflows import SparkProgram, Workflow
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


class BagTask(GpuAsk):
    """One command, on an instance of its own."""

    name: Name
    """Of its own in the bag."""
    command: Command
    """A program and its arguments; no shell reads them."""
    minutes: Annotated[FiniteFloat, Field(gt=0, le=MOST_SECONDS / 60)]
    """Expected, at the reference speed of the job's profile."""
    vcpus: Annotated[int, Field(gt=0, le=10_000)] | None = None
    """Cores that its instance must have; None: as `resources` of the job says."""
    memory_gib: Annotated[FiniteFloat, Field(ge=0.001, le=1e5)] | None = None
    """The same of its memory."""


class Bag(Work):
    """Commands, each of which is a task. The job succeeds when all of them have ended with exit code 0."""

    kind: Literal["bag"] = "bag"
    tasks: Annotated[tuple[BagTask, ...], Field(min_length=1, max_length=MOST_TASKS)]
    """The commands, which need nothing of each other."""
    deadline_s: Seconds | None = None
    """Seconds from submission to the end of the last task."""
    checkpoint: Command | None = None
    """Run in a task's folder every `profile.checkpoint_interval_s` and when its instance is about to end.
    A restarted task finds its checkpoint folder as it was then. None: it starts from the beginning."""

    @model_validator(mode="after")
    def _distinct(self) -> Bag:
        twice = [name for name, count in Counter(self.task_names).items() if count > 1]
        if twice:
            raise ValueError(f"two tasks are called {min(twice)!r}: names must differ")
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
        one = self.task(task)
        asked = {"vcpus": one.vcpus, "memory_gib": one.memory_gib}
        return {name: value for name, value in asked.items() if value is not None} | one.asked_gpus


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
    """One unit of decision: "main" of a Spark job, "client-NAME" of a Flower job, "NAME" in other jobs."""

    job_id: str
    task: str


class Resources(GpuAsk):
    """What one instance of a task must have, and how many of them the task needs at once."""

    instances: Annotated[int, Field(gt=0, le=1000)] = 1
    """Number of instances, all of one offer."""
    vcpus: Annotated[int, Field(gt=0, le=10_000)] = 1
    """Minimum number of cores of each."""
    memory_gib: Annotated[FiniteFloat, Field(ge=0.001, le=1e5)] = 1.0
    """Minimum memory of each, in GiB."""


class Places(StrictModel):
    """Restrictions on the places of a job; None: no restriction."""

    markets: Annotated[tuple[Literal["owned", "on_demand", "spot"], ...], Field(max_length=3)] | None = None
    """In these only."""
    providers: Names | None = None
    """At these only, by their names in the deployment's file."""
    regions: Names | None = None
    """In these only."""
    instance_types: Names | None = None
    """On these only."""


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
    """Seconds from submission to the end."""
    standard_s: Seconds | None = None
    """Expected seconds on the reference instance type; learned from earlier runs where left out."""

    def standard_s_of(self, task: str) -> float | None:
        """Expected seconds of a task at the reference speed; None where not known."""
        return self.standard_s


class SparkStreaming(_Spark):
    """A Structured Streaming application: micro-batches, each of which should end in time."""

    kind: Literal["spark-streaming"] = "spark-streaming"
    period_s: Seconds
    """A batch is triggered so often."""
    batch_deadline_s: Seconds
    """Seconds from a batch's trigger to its end."""
    batches: Count | None = None
    """The job ends after this many; None: when it is cancelled."""
    standard_s: Seconds | None = None
    """Expected seconds of one batch."""


def _interval(seconds: float) -> float:
    if 0 < seconds < 1:
        raise ValueError(f"{seconds:g} s between two checkpoints: expected 0 (none) or at least 1")
    return seconds


class Profile(StrictModel):
    """What is known of each task of a job beyond its standard time.

    What is left out counts as nothing: no data to move, no checkpoints, a time that goes with the speed.
    """

    reference_speed: Annotated[FiniteFloat, Field(ge=0.001, le=1000)] = 1.0
    """Speed of the instance type that standard times refer to."""
    sensitivity: Annotated[FiniteFloat, Field(ge=0.01, le=100)] | None = None
    """How far speed matters (Liu 2022, section 5.3): a type that is faster or slower than the reference by
    more than a seventh of this counts as that fast or slow only. None: all of it matters."""
    data_region: Text | None = None
    """Region of the input; None: available everywhere."""
    data_gb: Gigabytes = 0.0
    """Input that is read where the task starts."""
    checkpoint_gb: Gigabytes = 0.0
    """What a checkpoint holds, which moves with the task."""
    checkpoint_s: Annotated[FiniteFloat, Field(ge=0, le=MOST_SECONDS)] = 0.0
    """Seconds to save a checkpoint."""
    checkpoint_interval_s: Annotated[FiniteFloat, Field(ge=0, le=MOST_SECONDS), AfterValidator(_interval)] = (
        0.0
    )
    """Seconds of work between two checkpoints, at least 1; 0: it takes none by itself."""


class FlowerClient(StrictModel):
    """One participant and what is passed to its node."""

    name: Name
    """Of its own in the training."""
    config: Texts = Field(default_factory=dict)
    """What its node is given (Flower's `node_config`)."""
    region: Text | None = None
    """Region of the client's data, where alone it trains; None: anywhere."""
    budget_usd: Usd | None = None
    """What its instances may cost together; a hard limit. It leaves the training before it is passed."""
    epoch_s: Seconds | None = None
    """Expected seconds of its part of a round, where they differ from the others' `epoch_s`."""
    cold_s: Annotated[FiniteFloat, Field(ge=0, le=MOST_SECONDS)] | None = None
    """What its first epoch on an instance takes longer; measured where left out."""
    samples: Annotated[int, Field(gt=0, le=strategies.MOST_SAMPLES)] = 1
    """Weight of the client in asynchronous strategies: its examples, in any unit."""


SERVER = "server"
"""Name of the log of a training's SuperLink and ServerApps."""


class Flower(Work):
    """A federated training."""

    kind: Literal["flower"] = "flower"
    app: Path
    """Folder of a Flower app (pyproject.toml with ServerApp and ClientApp)."""
    rounds: Count
    """After which it has succeeded."""
    clients: Annotated[tuple[FlowerClient, ...], Field(min_length=1, max_length=MAX_CLIENTS)]
    """Who takes part; each is a task."""
    run_config: Texts = Field(default_factory=dict)
    """In place of the app's own settings (Flower's `run_config`)."""
    deadline_s: Seconds | None = None
    """From submission to the end of the last round."""
    epoch_s: Seconds | None = None
    """Expected seconds of a client's part of a round, until some were measured."""
    aggregation_s: Seconds | None = None
    """Expected seconds that the server takes at the end of a round."""
    strategy: strategies.Strategy = strategies.FedAvg()
    """How updates become the next model. Where it is asynchronous, a round is one version of the model."""

    @model_validator(mode="after")
    def _distinct(self) -> Flower:
        names = [client.name for client in self.clients]
        twice = [name for name, count in Counter(names).items() if count > 1]
        if twice:
            raise ValueError(f"two clients are called {min(twice)!r}: names must differ")
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
        return tuple(f"client-{client.name}" for client in self.clients)

    @property
    def logs(self) -> tuple[str, ...]:
        """See Work."""
        return (SERVER, *self.task_names)

    @property
    def program(self) -> str:
        """See Work."""
        return self.app


class JobSpec(StrictModel):
    """A job file: what `spotweave submit` sends."""

    name: Name
    """For people; need not be unique."""
    work: Annotated[SparkBatch | SparkStreaming | Flower | Bag | Workflow, Field(discriminator="kind")]
    """What it does."""
    resources: Resources = Resources()
    """Of each task."""
    places: Places = Places()
    """Where it may run."""
    profile: Profile = Profile()
    """What is known of its tasks, for better decisions."""
    budget_usd: Usd | None = None
    """What all its instances may cost together; a hard limit."""
    env: Texts = Field(default_factory=dict)
    """Environment variables of its processes. No secrets: they are stored as they are."""
    max_user_failures: Annotated[int, Field(ge=0, le=20)] = 2
    """After this many failures that are not the provider's fault, it has failed."""

    @model_validator(mode="after")
    def _environment(self) -> JobSpec:
        for key in self.env:
            if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", key):
                raise ValueError(f"env has the name {key!r}: expected letters, digits and underscores")
        return self

    @model_validator(mode="after")
    def _regions(self) -> JobSpec:
        clients = self.work.clients if isinstance(self.work, Flower) else ()
        allowed = self.places.regions
        for client in clients:
            if allowed is not None and client.region is not None and client.region not in allowed:
                raise ValueError(
                    f"the data of client {client.name!r} are in {client.region}, where places.regions lets "
                    "nothing run: add that region"
                )
        return self

    @model_validator(mode="after")
    def _steps(self) -> JobSpec:
        allowed = self.places.regions
        for task in self.work.task_names if allowed is not None else ():
            region = self.work.region_of(task)
            if allowed is not None and region is not None and region not in allowed:
                raise ValueError(
                    f"step {task!r} may run in {region} only, where places.regions lets nothing run: add "
                    "that region"
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
