"""What a round of training reports, and what all trainers have in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from envs.simulation.world import BatchWorld
from training.checkpoint import TrainedPolicy


@dataclass(frozen=True)
class RoundReport:
    """One round: episodes played at the same time, then learning.

    Attributes:
        episodes: episodes played.
        decisions: decisions taken in them.
        metrics: the world's metrics, averaged over the episodes (played with exploration).
        losses: loss per value head.
        epsilon_1: exploration used.
        learning_rate: learning rate used.
    """

    episodes: int
    decisions: int
    metrics: Mapping[str, float]
    losses: Mapping[str, float]
    epsilon_1: float
    learning_rate: float


class Trainer(Protocol):
    """What the training command drives."""

    episodes_done: int

    @property
    def policy(self) -> TrainedPolicy:
        """What is being trained, greedy."""

    def round(self) -> RoundReport:
        """Play and learn once."""

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to go on bit for bit."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` gave."""


def mean_metrics(world: BatchWorld, lanes: int) -> dict[str, float]:
    """Metrics averaged over the finished episodes of the first `lanes` lanes."""
    rows = [world.metrics(lane) for lane in range(lanes)]
    return {name: float(np.mean([row[name] for row in rows])) for name in world.spec.metrics}
