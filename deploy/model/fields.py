"""Types and bounds of the fields of a job file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Annotated

from pydantic import AfterValidator, Field, FiniteFloat

from spotweave.documents import StrictModel

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
"""Most entries of a mapping: variables, settings of Spark, configuration of a client."""
MAX_PLACES = 200
MAX_TEXT_BYTES = 65_536
"""Most bytes of one mapping, or of all arguments: half of what Linux takes in a single one of them."""

MOST_TEXT_BYTES = 1 << 20
"""Most bytes of all clients' configurations, or of all commands of a bag or a workflow."""


def _without_zero(text: str) -> str:
    if "\0" in text:
        raise ValueError("it holds a zero byte, which no process can be given: leave it out")
    return text


def _small(texts: dict[str, str]) -> dict[str, str]:
    check_size((*texts, *texts.values()))
    return texts


def _few(texts: tuple[str, ...]) -> tuple[str, ...]:
    check_size(texts)
    return texts


def check_distinct(what: str, names: Iterable[str]) -> None:
    """Refuse a name that is given twice. Raises ValueError."""
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ValueError(f"two {what} are called {min(twice)!r}: names must differ")


def check_size(texts: Iterable[str], most: int = MAX_TEXT_BYTES) -> None:
    """Refuse more bytes of text than that together. Raises ValueError."""
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


class Work(StrictModel):
    """The work of a job: the part that all kinds share."""

    @property
    def task_names(self) -> tuple[str, ...]:
        """Names of the units of decision."""
        return ("main",)

    @property
    def program(self) -> str | None:
        """The file or folder next to the job file that it cannot do without; None: there is none."""
        return None

    @property
    def words(self) -> tuple[str, ...]:
        """Arguments: those that name files or folders next to the job file go with the job."""
        return ()

    @property
    def logs(self) -> tuple[str, ...]:
        """What prints: each has a log of its own. The first is shown where none is named."""
        return self.task_names

    def before(self, task: str) -> tuple[str, ...]:
        """Tasks that must have succeeded before one is decided about."""
        return ()

    def region_of(self, task: str) -> str | None:
        """The only region in which a task may run; None: any."""
        return None

    def asks(self, task: str) -> Mapping[str, object]:
        """Keys of `resources` in which a task differs from the others."""
        return {}
