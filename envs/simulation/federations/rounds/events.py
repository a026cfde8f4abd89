"""What happens in an application, in the order of time."""

from __future__ import annotations

import heapq
from enum import IntEnum


class Event(IntEnum):
    """What happens; at the same second in this order: a result that is ready is not lost."""

    DONE = 0
    READY = 1
    INTERRUPTED = 2
    BROKE = 3
    START = 4
    NEXT_ROUND = 5
    CLOSED = 6


class Events:
    """Future events, each of a member's generation: whoever takes one judges whether it still holds."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, int, int]] = []

    def __len__(self) -> int:
        return len(self._heap)

    def push(self, time_s: int, event: Event, member: int, generation: int) -> None:
        """It will happen at `time_s` to a client by its number, or to SERVER."""
        heapq.heappush(self._heap, (time_s, int(event), member, generation))

    def pop(self) -> tuple[int, Event, int, int]:
        """Take the next one: second, event, member, generation."""
        time_s, event, member, generation = heapq.heappop(self._heap)
        return time_s, Event(event), member, generation
