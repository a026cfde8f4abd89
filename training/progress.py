"""What long commands say while they work: bars on a terminal, else a line now and then on standard error."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

PlayProgress = Callable[[str, int, int], None]  # called with (what is played, episodes done, episodes in all)


SAY_EVERY_S = 10.0  # seconds between two lines of a command that has nothing else to say


def clock(seconds: float) -> str:
    """Seconds as H:MM:SS."""
    whole = round(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}"


class Pace:
    """Says when the next line is due."""

    def __init__(self) -> None:
        self._next_s = time.monotonic() + SAY_EVERY_S

    def due(self) -> bool:
        """Whether `SAY_EVERY_S` have passed since it last was."""
        now_s = time.monotonic()
        if now_s < self._next_s:
            return False
        self._next_s = now_s + SAY_EVERY_S
        return True


@contextmanager
def still_busy(what: str) -> Iterator[None]:
    """A line every `SAY_EVERY_S` that the block runs, for work that cannot tell how far it is."""
    ended = Event()
    began_s = time.monotonic()

    def tell() -> None:
        while not ended.wait(SAY_EVERY_S):
            print(f"{what}: {time.monotonic() - began_s:.0f} s so far", file=sys.stderr, flush=True)

    teller = Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield
    finally:
        ended.set()
        teller.join()


@contextmanager
def play_progress(lines: bool = False) -> Iterator[PlayProgress]:
    """Told of episodes as they end; with `lines` a line of each end on standard output without a terminal."""
    terminal = Console(stderr=True)
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=terminal,
        disable=not terminal.is_terminal,
    )
    with bar:
        tasks: dict[str, Any] = {}
        pace = Pace()

        def advance(label: str, done: int, total: int) -> None:
            if label not in tasks:
                tasks[label] = bar.add_task(label, total=total)
            bar.update(tasks[label], completed=done)
            if terminal.is_terminal:
                return
            if lines and done == total:
                print(f"played {label}: {total} episodes", flush=True)
            elif pace.due():
                print(f"{label}: {done} of {total} episodes", file=sys.stderr, flush=True)

        yield advance
