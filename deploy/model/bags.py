"""Bags of tasks: commands that need nothing of each other, with one deadline for all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, FiniteFloat, model_validator

from deploy.model.fields import (
    MAX_ARGUMENTS,
    MOST_SECONDS,
    MOST_TEXT_BYTES,
    Argument,
    Name,
    Part,
    Seconds,
    Work,
    check_size,
)

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


class BagTask(Part):
    """One command, on an instance of its own."""

    name: Name
    command: Command
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
    deadline_s: Seconds | None = None
    """From submission to the end of the last task."""
    checkpoint: Command | None = None
    """Run in a task's folder every `profile.checkpoint_interval_s` and when its instance is about to end.
    What is in the checkpoint folder then is there again where the task starts anew. None: it starts over."""

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
        return {name: value for name, value in asked.items() if value is not None}
