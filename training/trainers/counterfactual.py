"""Training by counterfactual rollouts: try every choice of a decision in copies of the same world."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from agents.learning.advantage_regression import AdvantageRegression
from agents.learning.exploration import GuidedExploration
from agents.learning.labelled_replay import LabelledReplay
from agents.policy import Policy
from envs.simulation.snapshot import take_rows
from envs.simulation.streams import Streams
from envs.simulation.world import BatchWorld, EpisodeKey
from training.evaluation.episodes import policy_seed
from training.settings import TrainerSettings
from training.trainers.trainer import Learner, RoundReport, mean_metrics

SCALER_ROWS = 1024
FIRST_LABEL_CHANCE = 0.05


@dataclass(frozen=True)
class _Pending:
    """A decision whose choices wait in copies: what was seen, the clusters tried, actions, lanes."""

    seen: dict[str, NDArray[Any]]
    targets: NDArray[np.int64]
    actions: NDArray[np.int64]
    copies: NDArray[np.int64]


class CounterfactualTrainer:
    """Plays rounds of episodes; at sampled decisions it tries the choices in copies of the world.

    A copy shares everything random with the original, takes one choice, then follows the rollout policy (the
    guiding rule, later the learned policy itself) until the jobs of the near future have ended. What the
    whole system came to, minus the mean over the choices, labels the decision: the expected label is the
    advantage over the rollout policy, so acting greedily on it improves on that policy.

    Args:
        world: `lanes_needed(settings)` lanes of the training world: first those that play, then the copies.
        learner: what learns, with the weights of the objective.
        settings: the trainer's settings.
        guide: the guiding rule.
        seed: root of all random streams of the run.

    Attributes:
        draw_world: from the number of a round to the world that it is played in, with as many lanes and at
            most as many clusters as `world`; None, or one that gives None: always `world`.
    """

    def __init__(
        self,
        world: BatchWorld,
        learner: Learner,
        settings: TrainerSettings,
        guide: Policy,
        seed: int,
    ) -> None:
        streams = Streams(seed)
        self.world = self.configured_world = world
        self.draw_world: Callable[[int], BatchWorld | None] | None = None
        self.settings = settings
        self.guide = guide
        self.seed = seed
        self.device = learner.device
        self.regression = AdvantageRegression(
            learner.network, learner.weights, settings.learning_rate.start, settings.target_clip
        )
        self.policy = learner.policy(self.regression.averaged_network)
        self.replay = LabelledReplay(
            settings.replay_capacity,
            world.spec.n_clusters,
            settings.counterfactual.candidates,
            len(world.spec.components),
            streams.generator("replay"),
        )
        self.exploration = GuidedExploration(guide, streams.generator("exploration"))
        self.episodes_done = 0
        self.label_chance = FIRST_LABEL_CHANCE
        self._pending: list[_Pending] = []
        self._copies_used = 0

    @staticmethod
    def lanes_needed(settings: TrainerSettings) -> int:
        """Lanes of the world: those that play and the copies."""
        return settings.lanes + settings.counterfactual.copies

    def round(self) -> RoundReport:
        """Play the next `lanes` episodes, label some of their decisions, learn."""
        progress = self.episodes_done / self.settings.episodes
        if self.draw_world is not None:
            drawn = self.draw_world(self.episodes_done // self.settings.lanes)
            self.world = self.configured_world if drawn is None else drawn
        first = self.replay.size == 0
        epsilon_1 = 1.0 if first else self.settings.epsilon_1.at(progress)
        decisions = self._play(epsilon_1, self.settings.epsilon_2.at(progress), progress)
        metrics = mean_metrics(self.world, self.settings.lanes)
        losses: dict[str, float] = {}
        if self.replay.size:  # short episodes may offer no choice to label in the first rounds
            if first:
                rows = self.replay.rng.integers(0, self.replay.size, SCALER_ROWS)
                batch = self.replay.rows(rows, self.device)
                self.regression.network.fit_scalers(batch.inputs)
                self.regression.fit_scales(batch)
            losses = dict(zip(self.world.spec.components, self._learn(progress), strict=True))
        self.episodes_done += self.settings.lanes
        wanted = self.settings.counterfactual.states_per_episode * self.settings.lanes
        self.label_chance = min(1.0, wanted / decisions)
        return RoundReport(
            episodes=self.settings.lanes,
            decisions=decisions,
            metrics=metrics,
            losses=losses,
            epsilon_1=epsilon_1,
            learning_rate=self.settings.learning_rate.at(progress),
        )

    def _play(self, epsilon_1: float, epsilon_2: float, progress: float) -> int:
        world, n_lanes = self.world, self.settings.lanes
        keys = [EpisodeKey(self.seed, "train", self.episodes_done + lane) for lane in range(n_lanes)]
        world.reset(keys, list(range(n_lanes)))
        for lane, key in enumerate(keys):
            self.guide.begin(lane, policy_seed(key))
        active = np.zeros(world.n_lanes, np.bool_)
        active[:n_lanes] = True
        actions = np.zeros(world.n_lanes, np.int64)
        decisions = 0
        while active.any():
            lanes = np.flatnonzero(active)
            seen = take_rows(world.observation, lanes)
            actions[lanes] = self.exploration.choose(self.policy, seen, lanes, epsilon_1, epsilon_2)
            labelled = self.exploration.rng.random(len(lanes)) < self.label_chance
            for lane in lanes[labelled].tolist():
                if world.n_lanes - n_lanes - self._copies_used < self.settings.counterfactual.candidates:
                    self._roll_out(progress)
                self._branch(lane, int(actions[lane]))
            _, done = world.step(actions, active)
            decisions += len(lanes)
            active &= ~done
        self._roll_out(progress)
        return decisions

    def _branch(self, lane: int, taken: int) -> None:
        """Copy a lane once for each choice that the policy has for the decided job, or for a sample."""
        observation = self.world.observation
        n_targets = self.world.spec.n_clusters + 1
        row = taken // n_targets
        shown = take_rows(observation, slice(lane, lane + 1))
        targets = np.flatnonzero(self.policy.choices(shown)[0, row])
        limit = self.settings.counterfactual.candidates
        if len(targets) > limit:
            targets = self.exploration.rng.choice(targets, limit, replace=False)
            if taken % n_targets not in targets:
                targets[0] = taken % n_targets
            targets = np.sort(targets)
        if len(targets) < 2:
            return
        copies = self.settings.lanes + self._copies_used + np.arange(len(targets))
        self._copies_used += len(targets)
        self.world.copy_lanes(np.full(len(targets), lane), copies)
        seen = {
            "clusters": observation["clusters"][lane].copy(),
            "occupation": observation["occupation"][lane].copy(),
            "jobs": observation["jobs"][lane, row].copy(),
            "pairs": observation["pairs"][lane, row].copy(),
        }
        if self.policy.appraiser is not None:
            seen["appraisal"] = self.policy.appraiser(shown, row + 1)[0, row]
        self._pending.append(_Pending(seen, targets, row * n_targets + targets, copies))

    def _roll_out(self, progress: float) -> None:
        """Play all copies to their ends and label the decisions they came from."""
        if not self._pending:
            return
        world, counterfactual = self.world, self.settings.counterfactual
        lanes = np.concatenate([pending.copies for pending in self._pending])
        actions = np.zeros(world.n_lanes, np.int64)
        actions[lanes] = np.concatenate([pending.actions for pending in self._pending])
        active = np.zeros(world.n_lanes, np.bool_)
        active[lanes] = True
        world.limit_arrivals(lanes, counterfactual.further_arrivals)
        for lane in lanes.tolist():
            self.guide.begin(lane, 0)
        rollout = self.policy if progress >= counterfactual.self_play_share else self.guide
        _, done = world.step(actions, active)
        jobs = world.decided_jobs()[lanes].copy()
        running = lanes[~done[lanes]]
        with ThreadPoolExecutor(counterfactual.threads) as pool:
            parts = np.array_split(running, counterfactual.threads)
            list(pool.map(lambda part: self._play_out(part, rollout), parts))
        outcomes = world.system_outcome(lanes, jobs)
        start = 0
        for pending in self._pending:
            end = start + len(pending.targets)
            self.replay.add(**pending.seen, choices=pending.targets, outcomes=outcomes[start:end])
            start = end
        self._pending.clear()
        self._copies_used = 0

    def _play_out(self, lanes: NDArray[np.int64], rollout: Policy) -> None:
        """Play some lanes to their ends. Lanes are independent and the compiled code frees the interpreter's
        lock, so several threads may do this at once.
        """
        active = np.zeros(self.world.n_lanes, np.bool_)
        active[lanes] = True
        actions = np.zeros(self.world.n_lanes, np.int64)
        while len(lanes):
            actions[lanes] = rollout.act_lanes(self.world.observation, lanes)
            _, done = self.world.step(actions, active)
            active &= ~done
            lanes = lanes[active[lanes]]

    def _learn(self, progress: float) -> list[float]:
        self.regression.set_learning_rate(self.settings.learning_rate.at(progress))
        steps = self.settings.gradient_steps * self.settings.lanes
        total = torch.zeros(self.policy.network.n_outputs, device=self.device)
        for _ in range(steps):
            total += self.regression.step(self.replay.sample(self.settings.batch_size, self.device))
        return [float(x) for x in (total / max(1, steps)).tolist()]

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to go on bit for bit after the latest round."""
        return {
            "regression": self.regression.state_dict(),
            "replay": self.replay.state_dict(),
            "exploration": self.exploration.rng.bit_generator.state,
            "torch_rng": torch.get_rng_state(),
            "episodes_done": self.episodes_done,
            "label_chance": self.label_chance,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` gave."""
        self.regression.load_state_dict(state["regression"])
        self.replay.load_state_dict(state["replay"])
        self.exploration.rng.bit_generator.state = state["exploration"]
        torch.set_rng_state(state["torch_rng"])
        self.episodes_done = int(state["episodes_done"])
        self.label_chance = float(state["label_chance"])
