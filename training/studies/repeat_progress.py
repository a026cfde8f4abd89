"""What a person sees of many trainings: one live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from training.studies.processes import last_line
from training.studies.trainings import Run

REFRESH_S = 1.0


def duration(seconds: float) -> str:
    """As h:mm:ss."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}"


class RepeatProgress:
    """Keeps and shows the state of every run.

    Args:
        runs: all of them.
        finished: those that need nothing.
    """

    def __init__(self, runs: Sequence[Run], finished: Sequence[Run]) -> None:
        self.console = Console(stderr=True)
        self.began_at: dict[Run, float] = {}
        self.state = {run: "finished before" if run in finished else "waiting" for run in runs}
        self.lines: dict[Run, str] = {}
        self._live = Live(self._table(), console=self.console, auto_refresh=False)
        self._shown_at = 0.0

    def __enter__(self) -> RepeatProgress:
        if self.console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.console.is_terminal:
            self._live.update(self._table(), refresh=True)
            self._live.stop()

    def began(self, run: Run, resumed: bool) -> None:
        """A run was started."""
        self.began_at[run] = time.monotonic()
        self.state[run] = "resumed" if resumed else "running"
        self._say(f"{run.name}: {'resumed' if resumed else 'started'} in {run.directory.path}")

    def ended(self, run: Run, problem: str | None, seconds: float) -> None:
        """A run came to its end, or to a problem."""
        self.state[run] = "finished" if problem is None else "stopped"
        self.lines[run] = f"after {duration(seconds)}" if problem is None else problem
        done = sum(state.startswith("finished") for state in self.state.values())
        what = f"finished after {duration(seconds)}" if problem is None else problem
        self._say(f"{run.name}: {what} ({done} of {len(self.state)} finished)")

    def waited(self, logs: Mapping[Run, Path]) -> None:
        """A moment has passed."""
        if self.console.is_terminal and time.monotonic() - self._shown_at >= REFRESH_S:
            self.lines.update({run: last_line(log) for run, log in logs.items()})
            self._live.update(self._table(), refresh=True)
            self._shown_at = time.monotonic()

    def _table(self) -> Table:
        done = sum(state.startswith("finished") for state in self.state.values())
        table = Table(title=f"{done} of {len(self.state)} trainings finished", box=None)
        for heading in ("training", "state", "time"):
            table.add_column(heading, no_wrap=True)
        table.add_column("latest", no_wrap=True, overflow="ellipsis")
        for run, state in self.state.items():
            running = state in ("running", "resumed")
            spent = duration(time.monotonic() - self.began_at[run]) if running else ""
            table.add_row(run.name, state, spent, Text(self.lines.get(run, "")))
        return table

    def _say(self, line: str) -> None:
        if not self.console.is_terminal:
            print(line, flush=True)
