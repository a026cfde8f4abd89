"""A bar for each thing that is played, and a line for each where there is no terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
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

PlayProgress = Callable[[str, int, int], None]
"""Called with (what is played, episodes done, episodes in all)."""


def named_progress(progress: PlayProgress | None, name: str) -> Callable[[int, int], None] | None:
    """`progress` for one thing that is played."""
    return None if progress is None else partial(progress, name)


@contextmanager
def play_progress(lines: bool = False) -> Iterator[PlayProgress]:
    """Told of episodes as they end.

    Args:
        lines: whether what has come to its end is a line on standard output where there is no terminal.
    """
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

        def advance(label: str, done: int, total: int) -> None:
            if label not in tasks:
                tasks[label] = bar.add_task(label, total=total)
            bar.update(tasks[label], completed=done)
            if lines and done == total and not terminal.is_terminal:
                print(f"played {label}: {total} episodes", flush=True)

        yield advance
