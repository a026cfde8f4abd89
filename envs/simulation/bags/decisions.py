"""What an execution asks of a scheduler, and what it may answer: always about one task.

Which VM shall it be on: one that is rented, a new one, or none for now? Migration (Teylo 2021, Algorithms 6
and 11), waiting for a hibernated VM (Eq. 6.4) and work stealing (Algorithms 8 and 12) are all this question.
"""

from __future__ import annotations

import math
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple, Protocol

from envs.simulation.bags.model import BagError, Market, Mode, VmType

if TYPE_CHECKING:
    from envs.simulation.bags.fleet import Fleet
    from envs.simulation.bags.rented import RentedVm


class Cause(StrEnum):
    """Why a task is asked about."""

    HIBERNATED = "hibernated"
    """The task's VM has just hibernated."""
    LIMIT = "limit"
    """The time is up that an earlier `Wait` named; its VM is hibernated still, or has resumed."""
    IDLE = "idle"
    """The task waits for a core of its VM while another VM (`Question.idle`) is idle."""
    EMPTY = "empty"
    """A VM has no task and may be given back before its allocation cycle ends (not in the thesis)."""
    START = "start"
    """No plan has placed it, and the bag is about to start (not in the thesis, which plans all tasks)."""


NO_TASK = -1


class Question(NamedTuple):
    """One task that is not finished, or a VM without any.

    Attributes:
        cause: why it is asked about.
        task: its index in the bag; NO_TASK if the cause is EMPTY.
        vm: the VM that it is on, or that is empty; None if the cause is START.
        idle: the idle VM that could take it; None unless the cause is IDLE.
    """

    cause: Cause
    task: int
    vm: RentedVm | None
    idle: RentedVm | None = None


class Move(NamedTuple):
    """The task goes to the end of the queue of a rented VM that is not hibernated.

    A task that was running goes on from its latest checkpoint. `mode` matters on burstable VMs only.
    """

    vm: RentedVm
    mode: Mode = Mode.FULL


class Rent(NamedTuple):
    """The task goes to a new VM, which is rented now."""

    vm_type: VmType
    market: Market


class Wait(NamedTuple):
    """The task stays where it is; ask again (`Cause.LIMIT`) at a time, seconds after the bag was started."""

    until_s: float = math.inf


class Release(NamedTuple):
    """The empty VM is given back now. `Wait` keeps it until its allocation cycle ends."""


Answer = Move | Rent | Wait | Release


class BagScheduler(Protocol):
    """Decides where the tasks of a bag go while it is carried out."""

    @property
    def name(self) -> str:
        """As tables show it."""

    def decide(self, question: Question, fleet: Fleet) -> Answer:
        """Answer one question. The fleet is for reading only."""


class InvalidAnswerError(BagError):
    """A scheduler answered what cannot be done; the message says why."""
