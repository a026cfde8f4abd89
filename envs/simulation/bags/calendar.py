"""What is going to happen during an execution, in order of time."""

from __future__ import annotations

import heapq
from enum import IntEnum
from typing import NamedTuple

from envs.simulation.bags.rented import RentedVm
from envs.simulation.bags.running import RunningTask


class Event(IntEnum):
    """What happens, in the order in which events of the same time are handled.

    A task that ends when its VM hibernates has ended; a VM that hibernates at the end of its allocation cycle
    is kept.
    """

    FINISHED = 0
    NO_CREDITS = 1
    READY = 2
    CHANGED = 3
    LIMIT = 4
    CYCLE_ENDED = 5


class Due(NamedTuple):
    """An event.

    Attributes:
        time_s: when.
        event: what.
        order: of entering, to make equal times comparable.
        vm: of which VM; None for CHANGED.
        running: of which task; None unless FINISHED.
        vm_type: "" unless CHANGED.
    """

    time_s: float
    event: Event
    order: int
    vm: RentedVm | None
    running: RunningTask | None
    vm_type: str


class Calendar:
    """A priority queue of events."""

    def __init__(self) -> None:
        self._due: list[Due] = []
        self._order = 0

    def __bool__(self) -> bool:
        return bool(self._due)

    def push(
        self,
        time_s: float,
        event: Event,
        vm: RentedVm | None = None,
        running: RunningTask | None = None,
        vm_type: str = "",
    ) -> None:
        """Enter an event. It may be out of date when its time comes: whoever takes it must look."""
        self._order += 1
        heapq.heappush(self._due, Due(time_s, event, self._order, vm, running, vm_type))

    def pop(self) -> Due:
        """The next event."""
        return heapq.heappop(self._due)
