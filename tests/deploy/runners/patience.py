"""Doing something until it succeeds, as the scheduler's loop does, and what still lives."""

from __future__ import annotations

import time
from collections.abc import Callable

from deploy.node import procfs
from deploy.runners.base import RunnerError

PATIENCE_S = 480.0
"""Far more than anything takes, as other tests may keep the machine busy."""


def insist(act: Callable[[], None]) -> None:
    """Do it as often as it takes."""
    end = time.monotonic() + PATIENCE_S
    while True:
        try:
            return act()
        except RunnerError:
            assert time.monotonic() < end
            time.sleep(0.1)


def alive(pid: int) -> bool:
    found = procfs.read(pid)
    return found is not None and found.alive
