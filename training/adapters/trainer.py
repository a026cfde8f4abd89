"""What all library trainers share: one round at a time, so that the training session drives them too."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from spotweave.agents.flat_policy import FlatPolicy, Layers
from spotweave.agents.library_policy import new_policy
from spotweave.agents.policy import Policy
from spotweave.agents.rules import make_rule
from spotweave.agents.settings import LibrarySettings
from spotweave.envs.simulation.streams import Streams
from spotweave.envs.simulation.world import BatchWorld, EpisodeKey
from spotweave.training.adapters.flat_env import Calibration, FlatWorldEnv, calibrate
from spotweave.training.settings import TrainerSettings
from spotweave.training.trainers.trainer import RoundReport, mean_metrics


@dataclass(frozen=True)
class LibraryTask:
    """What a library shall learn, and with which settings."""

    build: Callable[[], BatchWorld]  # makes a world with one lane
    agent: LibrarySettings  # name, kind and the library's settings
    settings: TrainerSettings  # the trainer's settings
    guide: Policy  # plays a calibration episode
    seed: int  # root of all random streams of the run
    device: torch.device  # where the library computes

    @property
    def library_seed(self) -> int:
        """A 31-bit seed for the library's own generators."""
        return Streams(self.seed).key("exploration") % 2**31


class LibraryTrainer(ABC):
    """Lets a library play and learn until at least one more episode has ended, then copies its network."""

    def __init__(self, task: LibraryTask) -> None:
        self.task = task
        self.settings = task.settings
        self.calibration: Calibration = calibrate(
            task.build(),
            [task.guide, make_rule("random")],
            EpisodeKey(task.seed, "train", 0),
            task.agent.jobs,
            pooled=task.agent.kind == "decima",
        )
        torch.manual_seed(Streams(task.seed).key("network_weights") % 2**63)
        self.policy: FlatPolicy = new_policy(task.agent, self.calibration.flattening, task.device)
        # Of all rounds that have ended, in earlier sessions of the run too.
        self.episodes_done = 0
        self.decisions = 0

    @property
    def progress(self) -> float:
        """Share of the decisions, or else of the episodes, that are done, for schedules."""
        if self.settings.max_decisions:
            return self.decisions / self.settings.max_decisions
        return self.episodes_done / self.settings.episodes

    @property
    @abstractmethod
    def epsilon_1(self) -> float:
        """Chance to explore now; 0 for an agent that samples its actions."""

    @abstractmethod
    def play_and_learn(self) -> tuple[int, dict[str, float]]:
        """One call of the library: (decisions taken, losses by name, empty before the first update)."""

    @abstractmethod
    def environments(self) -> list[FlatWorldEnv]:
        """The environments that the library plays in."""

    @abstractmethod
    def weights(self) -> dict[str, Tensor]:
        """What the network that chooses actions has learned, under the names of the policy's network."""

    @abstractmethod
    def library_state(self) -> dict[str, Any]:
        """The library's part of `state_dict`: tensors and plain values."""

    @abstractmethod
    def load_library_state(self, state: dict[str, Any]) -> None:
        """Restore what `library_state` gave."""

    def close(self) -> None:  # noqa: B027 - most libraries leave nothing running
        """End whatever the library started."""

    def round(self) -> RoundReport:
        """Play and learn until at least one more episode has ended."""
        epsilon_1, rate = self.epsilon_1, self.settings.learning_rate.at(self.progress)
        decisions = 0
        losses: dict[str, float] = {}
        finished: list[dict[str, float]] = []
        while not finished:
            taken, losses = self.play_and_learn()
            decisions += taken
            for env in self.environments():
                finished += env.finished
                env.finished.clear()
        self.episodes_done += len(finished)
        self.decisions += decisions
        self.policy.take(self.weights())
        return RoundReport(len(finished), decisions, mean_metrics(finished), losses, epsilon_1, rate)

    def state_dict(self) -> dict[str, Any]:
        """State that a resumed run needs."""
        return {
            "library": self.library_state(),
            "episodes_done": self.episodes_done,
            "decisions": self.decisions,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a saved state."""
        self.episodes_done = int(state["episodes_done"])
        self.decisions = int(state["decisions"])
        self.load_library_state(state["library"])
        self.policy.take(self.weights())


def linears(network: nn.Module) -> Layers:
    """The linear layers of a network, first to last."""
    return [(m.weight.detach(), m.bias.detach()) for m in network.modules() if isinstance(m, nn.Linear)]
