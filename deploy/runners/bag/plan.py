"""What the runner and the process around a command say to each other: two files in the task's folder."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat

PLAN, STATUS = "plan.json", "status.json"
FILES, RESTORED = "files.tar", "restored.tar"
"""The job's files; the checkpoint from which the command goes on, if there is one."""


def checkpoint_file(number: int) -> str:
    """Of a checkpoint, in the task's folder."""
    return f"saved/{number:06d}.tar"


class Plan(BaseModel):
    """What is to be done.

    Attributes:
        command: the user's.
        checkpoint: the user's; () without.
        interval_s: of work between two checkpoints; 0: only when the instance is about to end.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    command: Annotated[tuple[str, ...], Field(min_length=1)]
    checkpoint: tuple[str, ...] = ()
    interval_s: Annotated[FiniteFloat, Field(ge=0)] = 0.0


class Status(BaseModel):
    """How far it is. The job's own code can write it: it is believed in what concerns its own task only.

    Attributes:
        number: of the latest checkpoint of this attempt, from 1; 0 before the first.
        size: of its file, in bytes.
        sha256: of its file, hexadecimal.
        ran_s: how long the command had run when that checkpoint was begun.
        problem: why the latest try at a checkpoint failed; "" if it did not.
        exit_code: of the command, negative for a signal; None while it runs.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    number: Annotated[int, Field(ge=0, lt=1_000_000)] = 0
    size: Annotated[int, Field(ge=0)] = 0
    sha256: Annotated[str, Field(max_length=64)] = ""
    ran_s: Annotated[FiniteFloat, Field(ge=0)] = 0.0
    problem: Annotated[str, Field(max_length=300)] = ""
    exit_code: Annotated[int, Field(ge=-128, le=255)] | None = None
