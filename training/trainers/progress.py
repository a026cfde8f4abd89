"""The progress bar of a training run, and plain lines where there is no terminal."""

from __future__ import annotations

from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from training.trainers.trainer import RoundReport


class TrainingProgress:
    """Shows episode, speed, time left and the current score against the guiding rule.

    Args:
        total: episodes of the run.
        done: episodes already done (a resumed run).
        objective: name of the objective metric.
    """

    def __init__(self, total: int, done: int, objective: str) -> None:
        self.objective = objective
        self.console = Console(stderr=True)
        self.score = f"{objective}: not validated yet"
        self.guide_line = ""
        self._progress = Progress(
            TextColumn("[bold]training"),
            BarColumn(bar_width=24),
            TaskProgressColumn(),
            TextColumn("episode {task.completed:.0f}/{task.total:.0f}"),
            TextColumn("{task.fields[rate]}"),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"),
            TextColumn("{task.fields[score]}"),
            console=self.console,
            disable=not self.console.is_terminal,
        )
        self._task = self._progress.add_task(
            "training", total=total, completed=done, rate="", left="", score=self.score
        )
        self._last_line = 0.0

    def __enter__(self) -> TrainingProgress:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def guide(self, name: str, objective: float) -> None:
        """What the guiding rule reaches on validation."""
        self.guide_line = f"{name} {objective:,.1f}"
        self._say(f"guiding rule on validation: {self.objective} {objective:,.1f} ({name})")

    def validated(self, objective: float, best: float, episode: int) -> None:
        """A validation of the policy has ended."""
        self.score = f"{self.objective} {objective:,.1f} (best {best:,.1f}; {self.guide_line})"
        self._say(f"episode {episode}: {self.score}")

    def advance(
        self, episodes: int, rate: float, seconds: float, limit_s: float, report: RoundReport
    ) -> None:
        """A round has ended; `limit_s` is the time limit, 0 for none."""
        total = self._progress.tasks[0].total or 1.0
        left = seconds / max(1, episodes) * (total - episodes)
        if limit_s > 0:
            left = min(left, limit_s - seconds)
        minutes, rest = divmod(max(0, int(left)), 60)
        self._progress.update(
            self._task,
            completed=episodes,
            rate=f"{rate:,.0f} decisions/s",
            left=f"{minutes}:{rest:02d} left",
            score=self.score,
        )

    def _say(self, line: str) -> None:
        if self.console.is_terminal:
            self._progress.print(line)
        else:
            print(line, flush=True)
