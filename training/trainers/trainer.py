"""What a round of training reports, and what all trainers have in common."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from spotweave.agents.registry import AgentSettings
from spotweave.envs.environments import Environment
from spotweave.training.checkpoint import TrainedPolicy
from spotweave.training.progress import Pace
from spotweave.training.settings import TrainerSettings


@dataclass(frozen=True)
class Task:
    """What a trainer is made from."""

    entry: Environment  # the environment
    config: Any  # its settings, of type `entry.config_class`
    agent: AgentSettings  # what learns
    settings: TrainerSettings  # how it learns
    seed: int  # root of all random streams of the run
    device: torch.device  # where networks compute
    # the state of the policy that learning goes on from; None: from scratch
    start: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class RoundReport:
    """One round: episodes played at the same time, then learning."""

    episodes: int  # episodes played
    decisions: int  # decisions taken in them
    metrics: Mapping[str, float]  # the world's metrics, averaged over the episodes (played with exploration)
    losses: Mapping[str, float]  # loss per value head; none of a round that learned nothing
    epsilon_1: float  # exploration used
    learning_rate: float  # learning rate used
    drawn: bool = False  # whether the world was drawn for the round, and is not the configured one


class Trainer(Protocol):
    """What the training command drives.

    One whose policy cannot act before its first round says so by an attribute `acts_untrained` that is False.
    """

    episodes_done: int

    @property
    def policy(self) -> TrainedPolicy:
        """Greedy policy of the current weights."""

    def round(self) -> RoundReport:
        """Play the next episodes of all lanes, and learn from them."""

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to go on bit for bit."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` gave."""


def mean_metrics(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The mean of each metric over episodes, or over worlds."""
    return {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}


# The progress bar of a training run, and plain lines where there is no terminal.


class TrainingProgress:
    """Shows episode, speed, time left and the current score against the guiding rule.

    `done` of the `total` episodes were done before, if the run is resumed.
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
        self._pace = Pace()

    def __enter__(self) -> TrainingProgress:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def guide(self, name: str, objective: float) -> None:
        """Note the guiding rule's objective on validation."""
        self.guide_line = f"{name} {objective:,.1f}"
        self._say(f"guiding rule on validation: {self.objective} {objective:,.1f} ({name})")

    def validated(self, objective: float, gain_pct: float, kept_pct: float, episode: int) -> None:
        """Say what a validation came to: the gain over the guide, and that of the policy kept so far."""
        gain = f"gain {gain_pct:+.1f} % (kept {kept_pct:+.1f} %; {self.guide_line})"
        self.score = f"{self.objective} {objective:,.1f}, {gain}"
        self._say(f"episode {episode}: {self.score}")

    def advance(self, episodes: int, rate: float, seconds: float, limit_s: float) -> None:
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
        if not self.console.is_terminal and self._pace.due():
            line = f"episode {episodes} of {total:.0f}, {rate:,.0f} decisions/s, {minutes}:{rest:02d} left"
            print(line, file=sys.stderr, flush=True)

    def _say(self, line: str) -> None:
        if self.console.is_terminal:
            self._progress.print(line)
        else:
            print(line, flush=True)
