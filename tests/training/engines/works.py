"""Works that a worker can unpickle, for the tests of engines."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path


def squared(number: int) -> int:
    return number * number


def squared_late(number: int) -> int:
    """The first tasks answer last."""
    time.sleep(0.05 * max(0, 4 - number))
    return number * number


def refused(number: int) -> int:
    raise ValueError(f"number {number}\nis refused")


@dataclass(frozen=True)
class DiesFirst:
    """Task 2 ends its process in the middle, as often as is asked for; every try leaves a mark."""

    marks: Path
    deaths: int

    def __call__(self, number: int) -> int:
        tries = len(list(self.marks.glob(f"{number}.*")))
        (self.marks / f"{number}.{tries}").touch()
        if number == 2 and tries < self.deaths:
            os._exit(1)
        return number * number


class Counting:
    """How many tasks this copy has had: the copy of each worker lives as long as the worker."""

    def __init__(self) -> None:
        self.tasks = 0

    def __call__(self, _: int) -> tuple[int, int]:
        self.tasks += 1
        return os.getpid(), self.tasks
