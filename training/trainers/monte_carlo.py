"""Training by Monte-Carlo values of single decisions (Liu 2022, Algorithm 3 and Fig. 5.5)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from spotweave.agents.learning import DecisionReplay, GuidedExploration, ValueRegression
from spotweave.agents.networks import ValuePolicy
from spotweave.agents.policy import Policy
from spotweave.envs.simulation.snapshot import take_rows
from spotweave.envs.simulation.streams import Streams
from spotweave.envs.simulation.world import BatchWorld, EpisodeKey
from spotweave.training.evaluation.episodes import policy_seed
from spotweave.training.settings import TrainerSettings
from spotweave.training.trainers.trainer import RoundReport, mean_metrics

SCALER_ROWS = 4096  # decisions on which the input normalisation is fitted


class MonteCarloTrainer:
    """Plays rounds of episodes with guided exploration and regresses what each decision was worth.

    Between rounds its `state_dict` holds everything: N rounds, stop, resume, N rounds equals 2N rounds.
    """

    def __init__(
        self,
        world: BatchWorld,  # `settings.lanes` lanes
        policy: ValuePolicy,
        weights: Sequence[float],  # (K,) of the sum that a network of one output learns
        settings: TrainerSettings,
        guide: Policy,
        seed: int,
    ) -> None:
        streams = Streams(seed)
        self.world = world
        self.settings = settings
        self.seed = seed
        self.device = policy.device
        self.policy = policy
        self.regression = ValueRegression(
            policy.network,
            weights,
            settings.optimizer,
            settings.learning_rate.start,
            settings.loss,
            settings.target_clip,
        )
        self.replay = DecisionReplay(
            settings.replay_capacity,
            world.spec.n_clusters,
            len(world.spec.components),
            streams.generator("replay"),
        )
        self.exploration = GuidedExploration(guide, streams.generator("exploration"))
        self.episodes_done = 0
        self.loss_names = world.spec.components if policy.network.n_outputs > 1 else ("value",)

    def round(self) -> RoundReport:
        """Play the next `lanes` episodes, then learn from the replay."""
        progress = self.episodes_done / self.settings.episodes
        epsilon_1 = self.settings.epsilon_1.at(progress)
        if self.episodes_done == 0:
            epsilon_1 = 1.0  # the input normalisation is not fitted yet: the network cannot act
        decisions = self._play(epsilon_1, self.settings.epsilon_2.at(progress))
        metrics = mean_metrics([self.world.metrics(lane) for lane in range(self.world.n_lanes)])
        if self.episodes_done == 0:
            rows = self.replay.rng.integers(0, self.replay.size, min(SCALER_ROWS, self.replay.size))
            self.policy.network.fit_scalers(self.replay.rows(rows, self.device)[0])
        losses = self._learn(progress)
        self.episodes_done += self.world.n_lanes
        return RoundReport(
            episodes=self.world.n_lanes,
            decisions=decisions,
            metrics=metrics,
            losses=dict(zip(self.loss_names, losses, strict=True)),
            epsilon_1=epsilon_1,
            learning_rate=self.settings.learning_rate.at(progress),
        )

    def _play(self, epsilon_1: float, epsilon_2: float) -> int:
        world, n_targets = self.world, self.world.spec.n_clusters + 1
        keys = [EpisodeKey(self.seed, "train", self.episodes_done + lane) for lane in range(world.n_lanes)]
        world.reset(keys)
        for lane, key in enumerate(keys):
            self.exploration.guide.begin(lane, policy_seed(key))
        active = np.ones(world.n_lanes, np.bool_)
        log: list[tuple[Any, ...]] = []
        while active.any():
            lanes = np.flatnonzero(active)
            seen = take_rows(world.observation, active)
            chosen = self.exploration.choose(self.policy, seen, lanes, epsilon_1, epsilon_2)
            job_rows = (np.arange(len(lanes)), chosen // n_targets)
            ids = self.replay.add(
                clusters=seen["clusters"],
                occupation=seen["occupation"],
                jobs=seen["jobs"][job_rows],
                pairs=seen["pairs"][job_rows],
                targets=chosen % n_targets,
            )
            actions = np.zeros(world.n_lanes, np.int64)
            actions[lanes] = chosen
            _, done = world.step(actions, active)
            log.append((lanes, ids, world.decided_jobs()[lanes], world.marks()[lanes]))
            active &= ~done
        lane_of, ids, jobs, marks = (np.concatenate(column) for column in zip(*log, strict=True))
        for lane in range(world.n_lanes):
            of_lane = lane_of == lane
            self.replay.fill(ids[of_lane], world.values(lane, jobs[of_lane], marks[of_lane]))
        return len(ids)

    def _learn(self, progress: float) -> list[float]:
        self.regression.set_learning_rate(self.settings.learning_rate.at(progress))
        steps = self.settings.gradient_steps * self.world.n_lanes
        total = torch.zeros(self.policy.network.n_outputs, device=self.device)
        for _ in range(steps):
            total += self.regression.step(*self.replay.sample(self.settings.batch_size, self.device))
        return [float(x) for x in (total / max(1, steps)).tolist()]

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to go on bit for bit after the latest round."""
        return {
            "regression": self.regression.state_dict(),
            "replay": self.replay.state_dict(),
            "exploration": self.exploration.rng.bit_generator.state,
            "torch_rng": torch.get_rng_state(),
            "episodes_done": self.episodes_done,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` gave."""
        self.regression.load_state_dict(state["regression"])
        self.replay.load_state_dict(state["replay"])
        self.exploration.rng.bit_generator.state = state["exploration"]
        torch.set_rng_state(state["torch_rng"])
        self.episodes_done = int(state["episodes_done"])
