"""What all library trainers share: a world as the environment they expect, and training round by round."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
import torch
from torch import Tensor, nn

from spotweave.agents.library_policy import (
    CLIP,
    FlatPolicy,
    Flattening,
    Layers,
    n_features,
    new_policy,
    signed_log_features,
)
from spotweave.agents.policy import Policy
from spotweave.agents.registry import LibrarySettings
from spotweave.agents.rules import make_rule
from spotweave.envs.simulation.series import Bools
from spotweave.envs.simulation.snapshot import FloatArray
from spotweave.envs.simulation.streams import Streams
from spotweave.envs.simulation.world import BatchWorld, EpisodeKey
from spotweave.training.evaluation.episodes import choose, policy_seed
from spotweave.training.settings import TrainerSettings
from spotweave.training.trainers.trainer import RoundReport, mean_metrics

# What all library trainers share: one round at a time, so that the training session drives them too.


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


# A world as the plain Gymnasium environment that libraries expect: a vector in, a number out.


Info = dict[str, Any]


def nearest_valid(action: int, mask: Bools) -> int:
    """The action itself if it is valid, else the next valid one, counting on from it and round the end.

    A fixed function of the observation, so that for an agent that knows no masks an invalid action is simply
    a second name of a valid one: the world stays Markov and the values it learns stay right.

    Raises:
        ValueError: if nothing is valid, or the action is outside the mask.
    """
    if not 0 <= action < len(mask):
        raise ValueError(f"action {action} is outside 0..{len(mask) - 1}")
    if mask[action]:
        return action
    valid = np.flatnonzero(mask)
    if not len(valid):
        raise ValueError("no action is valid: the episode has ended, call reset")
    later = valid[valid > action]
    return int(later[0] if len(later) else valid[0])


class FlatWorldEnv(gymnasium.Env[FloatArray, np.int64]):
    """One lane of a world with flat observations, and actions on the first jobs of the window.

    ## Action Space
    Discrete(J' * (C + 1)): the first of the world's own actions, J' jobs being shown. An invalid
    action stands for the next valid one (`nearest_valid`); `action_masks()` tells which are valid.

    ## Observation Space
    Box(-6, 6, (D,)): see `Flattening`.

    ## Rewards
    The world's, times a constant.

    ## Starting State
    The next training episode of the seed: numbers first, first + stride, ...; `reset(seed=...)` starts over
    from `first` under another seed.

    ## Episode End
    Terminated with the world's episode; its metrics are in `info["metrics"]` and in `finished`.
    """

    metadata = {"render_modes": []}  # noqa: RUF012 - Gymnasium declares it so

    def __init__(
        self,
        build: Callable[[], BatchWorld],  # with at least one lane, of which lane 0 is played
        flattening: Flattening,
        reward_scale: float,  # what rewards are multiplied by
        seed: int = 0,
        first: int = 0,
        stride: int = 1,
    ) -> None:
        self.world = build()
        self.flattening = flattening
        self.reward_scale = reward_scale
        self.seed = seed
        self.first = first
        self.stride = stride
        self.finished: list[dict[str, float]] = []
        self._episode = first
        self._taken: list[int] = []
        size = n_features(flattening.n_jobs, flattening.n_clusters)
        self.observation_space = gymnasium.spaces.Box(-CLIP, CLIP, (size,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(flattening.n_actions)
        self._actions = np.zeros(self.world.n_lanes, np.int64)
        self._active = np.arange(self.world.n_lanes) == 0

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[FloatArray, Info]:
        """Start the next training episode, or with a seed the first one under that seed."""
        super().reset(seed=seed)
        if seed is not None:
            self.seed, self._episode = seed, self.first
        self.world.reset([EpisodeKey(self.seed, "train", self._episode)], [0])
        self._episode += self.stride
        self._taken = []
        return self._features(), {}

    def step(self, action: np.int64 | int) -> tuple[FloatArray, float, bool, bool, Info]:
        """Take one decision."""
        self._actions[0] = nearest_valid(int(action), self.action_masks())
        self._taken.append(int(self._actions[0]))
        rewards, dones = self.world.step(self._actions, self._active)
        done = bool(dones[0])
        info: Info = {}
        if done:
            metrics = {name: float(value) for name, value in self.world.metrics(0).items()}
            self.finished.append(metrics)
            info["metrics"] = metrics
        return self._features(), float(rewards[0]) * self.reward_scale, done, False, info

    def action_masks(self) -> Bools:
        """(J' * (C + 1),) which actions are valid now (the name that sb3-contrib looks for)."""
        valid: Bools = self.flattening.mask(self.world.observation)[0]
        return valid

    def state_dict(self) -> Info:
        """The running episode: its number and the actions taken in it, which determine all the rest."""
        return {"episode": self._episode - self.stride, "actions": list(self._taken)}

    def load_state_dict(self, state: Info) -> None:
        """Play the running episode again up to where `state_dict` was called."""
        self._episode = int(state["episode"])
        self.reset()
        for action in state["actions"]:
            self.step(action)

    def play_every(self, stride: int, first: int) -> None:
        """Play the episodes `first`, `first` + `stride`, ... from the next `reset` on, whatever its seed."""
        self.stride = stride
        self._episode = self.first = first

    def _features(self) -> FloatArray:
        features: FloatArray = self.flattening.features(self.world.observation)[0]
        return features


# Two episodes before training: the scales that flat features and rewards need.


@dataclass(frozen=True)
class Calibration:
    """What the episodes told."""

    flattening: Flattening  # fitted to their observations
    reward_scale: float  # constant that rewards are multiplied with: 1 / standard deviation of their rewards
    decisions: int  # decisions that the first one took


def calibrate(
    world: BatchWorld, policies: Sequence[Policy], key: EpisodeKey, n_jobs: int, pooled: bool = False
) -> Calibration:
    """Play a training episode in lane 0 with each policy; the world's other lanes are left alone.

    Policies are the guiding rule, for what matters, and a random one, for what the guide never visits. The
    agent shall see `n_jobs` jobs; a smaller window shows all of its own. `pooled`: see `Flattening.fit`.
    """
    n_jobs = min(n_jobs, world.spec.window)
    played = [_play(world, policy, key, n_jobs) for policy in policies]
    features = np.concatenate([rows for rows, _ in played])
    spread = float(np.concatenate([rewards for _, rewards in played]).std())
    return Calibration(
        Flattening.fit(features, n_jobs, world.spec.n_clusters, pooled),
        1.0 / spread if spread > 0.0 else 1.0,
        len(played[0][0]),
    )


def _play(world: BatchWorld, policy: Policy, key: EpisodeKey, n_jobs: int) -> tuple[FloatArray, FloatArray]:
    """(decisions, D) signed logarithms and (decisions,) rewards of one episode in lane 0."""
    lane = np.zeros(1, np.int64)
    active = np.zeros(world.n_lanes, np.bool_)
    active[0] = True
    actions = np.zeros(world.n_lanes, np.int64)
    rows, rewards = [], []
    world.reset([key], [0])
    policy.begin(0, policy_seed(key))
    ended = False
    while not ended:
        rows.append(signed_log_features(world.observation, n_jobs)[0])
        actions[:1] = choose(policy, world.observation, lane)
        reward, done = world.step(actions, active)
        rewards.append(float(reward[0]))
        ended = bool(done[0])
    return np.stack(rows), np.array(rewards, np.float32)


# Action masks for networks of libraries, read from the observation that the networks see anyway.

NEVER = -1e8  # score of an invalid action: finite, for an entropy shall stay a number


def masked(scores: Tensor, features: Tensor, never: float = NEVER) -> Tensor:
    """Scores (..., A) with those of invalid actions replaced; gradients reach the valid ones only.

    The last A numbers of flat observations, the features (..., D), are the mask (`Flattening`). Where nothing
    is valid, as an episode has ended or a sequence is padded, scores stay: nothing comes of them, but
    libraries draw actions there too.
    """
    valid = features[..., -scores.shape[-1] :] > 0
    return torch.where(valid | ~valid.any(dim=-1, keepdim=True), scores, never)
