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
