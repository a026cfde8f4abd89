"""What the runner and the process around a command say to each other: two files in the task's folder."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat

PLAN, STATUS = "plan.json", "status.json"
FILES, RESTORED = "files.tar", "restored.tar"
"""The job's files; the checkpoint from which the command goes on, if there is one."""


def checkpoint_file(number: int) -> str:
    """File name of a checkpoint in the task's folder."""
    return f"saved/{number:06d}.tar"


class Plan(BaseModel):
    """The commands of one attempt at a task."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    command: Annotated[tuple[str, ...], Field(min_length=1)]  # the user's
    checkpoint: tuple[str, ...] = ()  # the user's; () without
    # of work between two checkpoints; 0: only when the instance is about to end
    interval_s: Annotated[FiniteFloat, Field(ge=0)] = 0.0


class Status(BaseModel):
    """How far it is. The job's own code can write it: it is believed in what concerns its own task only."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    # of the latest checkpoint of this attempt, from 1; 0 before the first
    number: Annotated[int, Field(ge=0, lt=1_000_000)] = 0
    size: Annotated[int, Field(ge=0)] = 0  # of its file, in bytes
    sha256: Annotated[str, Field(max_length=64)] = ""  # of its file, hexadecimal
    # how long the command had run when that checkpoint was begun
    ran_s: Annotated[FiniteFloat, Field(ge=0)] = 0.0
    # why the latest try at a checkpoint failed; "" if it did not
    problem: Annotated[str, Field(max_length=300)] = ""
    # of the command, negative for a signal; None while it runs
    exit_code: Annotated[int, Field(ge=-128, le=255)] | None = None
