"""Jobs as users submit them, and their states."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated, Literal, NamedTuple

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, FiniteFloat, model_validator

# A job file is untrusted. Every number is bounded so that no product of two of them leaves what databases,
# 32-bit observations and 64-bit counters hold, and every text so that it fits into a process's environment.
MOST_SECONDS = 10 * 366 * 86_400.0
"""Ten years."""
LEAST_SECONDS = 0.01
MOST_GB = 1e7
MOST_USD = 1e9
MOST_COUNT = 100_000_000
"""Batches of a stream, rounds of a training."""
MAX_ARGUMENTS = 200
MAX_ARGUMENT_LENGTH = 4096
MAX_CLIENTS = 1000
MAX_ENTRIES = 200
"""Of a mapping: variables, settings of Spark, configuration of a client."""
MAX_PLACES = 200
MAX_TEXT_BYTES = 65_536
"""Of one mapping, or of all arguments, together: half of what Linux takes in a single one of them."""

MAX_CLIENTS_TEXT_BYTES = 1 << 20
"""Of the configurations of all clients of a training."""


def _without_zero(text: str) -> str:
    if "\0" in text:
        raise ValueError("it holds a zero byte, which no process can be given: leave it out")
    return text


def _small(texts: dict[str, str]) -> dict[str, str]:
    _check_size((*texts, *texts.values()))
    return texts


def _few(texts: tuple[str, ...]) -> tuple[str, ...]:
    _check_size(texts)
    return texts


def _check_size(texts: Iterable[str], most: int = MAX_TEXT_BYTES) -> None:
    size = sum(len(text.encode()) for text in texts)
    if size > most:
        raise ValueError(f"{size} bytes of text: expected at most {most} together; put it into a file")


Seconds = Annotated[FiniteFloat, Field(ge=LEAST_SECONDS, le=MOST_SECONDS)]
Gigabytes = Annotated[FiniteFloat, Field(ge=0, le=MOST_GB)]
Usd = Annotated[FiniteFloat, Field(ge=1e-6, le=MOST_USD)]
Count = Annotated[int, Field(gt=0, le=MOST_COUNT)]
Text = Annotated[str, Field(max_length=200), AfterValidator(_without_zero)]
"""A name of something outside of the job: a region, an instance type."""
Path = Annotated[str, Field(min_length=1, max_length=1000), AfterValidator(_without_zero)]
Value = Annotated[str, AfterValidator(_without_zero)]
Texts = Annotated[
    dict[Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_without_zero)], Value],
    Field(max_length=MAX_ENTRIES),
    AfterValidator(_small),
]
Names = Annotated[tuple[Text, ...], Field(max_length=MAX_PLACES)]
Name = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?$")]
"""Lower-case letters, digits and hyphens, at most 40: it becomes part of paths, tags and host names."""

Argument = Annotated[str, Field(max_length=MAX_ARGUMENT_LENGTH), AfterValidator(_without_zero)]
Arguments = Annotated[tuple[Argument, ...], Field(max_length=MAX_ARGUMENTS), AfterValidator(_few)]


class JobState(StrEnum):
    """Where a job is in its life. PENDING and RUNNING are live, the others are ends."""

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
        """Whether it may still change."""
        return self in (JobState.PENDING, JobState.RUNNING)


class TaskKey(NamedTuple):
    """One unit of decision: "main" of a Spark job, "client-NAME" of a Flower job."""

    job_id: str
    task: str


class _Part(BaseModel):
    # A mistyped key would silently leave a default in force.
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Resources(_Part):
    """What one instance of a task must have, and how many of them the task needs at once."""

    instances: Annotated[int, Field(gt=0, le=1000)] = 1
    vcpus: Annotated[int, Field(gt=0, le=10_000)] = 1
    memory_gib: Annotated[FiniteFloat, Field(ge=0.001, le=1e5)] = 1.0
    gpu: Text | None = None


class Places(_Part):
    """Where a job may run; None: anywhere."""

    markets: Annotated[tuple[Literal["owned", "on_demand", "spot"], ...], Field(max_length=3)] | None = None
    providers: Names | None = None
    regions: Names | None = None
    instance_types: Names | None = None


class SparkBatch(_Part):
    """A Spark application that ends by itself."""

    kind: Literal["spark-batch"] = "spark-batch"
    script: Path
    """Python file or jar, relative to the file that describes the job."""
    args: Arguments = ()
    conf: Texts = Field(default_factory=dict)
    deadline_s: Seconds | None = None
    """From submission to the end."""
    standard_s: Seconds | None = None
    """Expected seconds on the reference instance type; learned from earlier runs where left out."""


class SparkStreaming(_Part):
    """A Structured Streaming application: micro-batches, each of which should end in time."""

    kind: Literal["spark-streaming"] = "spark-streaming"
    script: Path
    args: Arguments = ()
    conf: Texts = Field(default_factory=dict)
    period_s: Seconds
    """A batch is triggered so often."""
    batch_deadline_s: Seconds
    """From a batch's trigger to its end."""
    batches: Count | None = None
    """The job ends after this many; None: when it is cancelled."""
    standard_s: Seconds | None = None
    """Expected seconds of one batch."""


def _interval(seconds: float) -> float:
    if 0 < seconds < 1:
        raise ValueError(f"{seconds:g} s between two checkpoints: expected 0 (none) or at least 1")
    return seconds


class Profile(_Part):
    """What is known of each task of a job beyond its standard time.

    What is left out counts as nothing: no data to move, no checkpoints, a time that goes with the speed.
    """

    reference_speed: Annotated[FiniteFloat, Field(ge=0.001, le=1000)] = 1.0
    """Speed of the instance type that standard times refer to."""
    sensitivity: Annotated[FiniteFloat, Field(ge=0.01, le=100)] | None = None
    """How far speed matters (Liu 2022, section 5.3): a type that is faster or slower than the reference by
    more than a seventh of this counts as that fast or slow only. None: all of it matters."""
    data_region: Text | None = None
    """Where the input lies; None: everywhere."""
    data_gb: Gigabytes = 0.0
    """Input that is read where the task starts."""
    checkpoint_gb: Gigabytes = 0.0
    checkpoint_s: Annotated[FiniteFloat, Field(ge=0, le=MOST_SECONDS)] = 0.0
    """What saving a checkpoint takes."""
    checkpoint_interval_s: Annotated[FiniteFloat, Field(ge=0, le=MOST_SECONDS), AfterValidator(_interval)] = (
        0.0
    )
    """Seconds of work between two checkpoints, at least 1; 0: it takes none by itself."""


class FlowerClient(_Part):
    """One participant and what is passed to its node."""

    name: Name
    config: Texts = Field(default_factory=dict)
    region: Text | None = None
    """Where its data are: it trains there or nowhere. None: anywhere."""
    budget_usd: Usd | None = None
    """What its instances may cost together; a hard limit. It leaves the training before it is passed."""
    epoch_s: Seconds | None = None
    """Expected seconds of its part of a round, where they differ from the others' `epoch_s`."""
    cold_s: Annotated[FiniteFloat, Field(ge=0, le=MOST_SECONDS)] | None = None
    """What its first epoch on an instance takes longer; measured where left out."""


class Flower(_Part):
    """A federated training."""

    kind: Literal["flower"] = "flower"
    app: Path
    """Folder of a Flower app (pyproject.toml with ServerApp and ClientApp)."""
    rounds: Count
    clients: Annotated[tuple[FlowerClient, ...], Field(min_length=1, max_length=MAX_CLIENTS)]
    run_config: Texts = Field(default_factory=dict)
    deadline_s: Seconds | None = None
    epoch_s: Seconds | None = None
    """Expected seconds of a client's part of a round, until some were measured."""
    aggregation_s: Seconds | None = None
    """Expected seconds that the server takes at the end of a round."""

    @model_validator(mode="after")
    def _distinct(self) -> Flower:
        names = [client.name for client in self.clients]
        twice = [name for name, count in Counter(names).items() if count > 1]
        if twice:
            raise ValueError(f"two clients are called {min(twice)!r}: names must differ")
        configured = (text for client in self.clients for entry in client.config.items() for text in entry)
        _check_size(configured, MAX_CLIENTS_TEXT_BYTES)
        return self


class JobSpec(_Part):
    """A job file: what `spotweave submit` sends.

    Attributes:
        name: for people; need not be unique.
        work: what it does.
        resources: of each task.
        places: where it may run.
        profile: what is known of its tasks, for better decisions.
        budget_usd: what all its instances may cost together; a hard limit.
        env: environment variables of its processes. No secrets: they are stored as they are.
        max_user_failures: after this many failures that are not the provider's fault, it has failed.
    """

    name: Name
    work: Annotated[SparkBatch | SparkStreaming | Flower, Field(discriminator="kind")]
    resources: Resources = Resources()
    places: Places = Places()
    profile: Profile = Profile()
    budget_usd: Usd | None = None
    env: Texts = Field(default_factory=dict)
    max_user_failures: Annotated[int, Field(ge=0, le=20)] = 2

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

    @property
    def tasks(self) -> tuple[str, ...]:
        """Names of its units of decision."""
        if isinstance(self.work, Flower):
            return tuple(f"client-{client.name}" for client in self.work.clients)
        return ("main",)
