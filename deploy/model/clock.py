"""Time, so that the scheduler can run in virtual time too."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """What the live side takes the time from; nothing else may."""

    def now(self) -> float:
        """Epoch seconds."""

    def sleep(self, seconds: float) -> None:
        """Wait, or let virtual time pass."""


class SystemClock:
    """The machine's own time."""

    def now(self) -> float:
        """Epoch seconds."""
        return time.time()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)


class VirtualClock:
    """Time that passes only when somebody sleeps."""

    def __init__(self, now_s: float = 1_000_000.0) -> None:
        self._now_s = now_s

    def now(self) -> float:
        """Epoch seconds."""
        return self._now_s

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self._now_s += max(0.0, seconds)
