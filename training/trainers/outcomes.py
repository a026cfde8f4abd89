"""Training from the outcomes of jobs: play, wait what becomes of each job, and learn it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from agents.learning.outcome_regression import OutcomeRegression, OutcomeReplay
from agents.outcomes.decide import Label
from agents.outcomes.forward import n_inputs
from agents.outcomes.labels import joined, put_rows, rows_of, targets_of
from agents.outcomes.network import OutcomeNetwork
from agents.outcomes.policy import OutcomePolicy
from envs.simulation.market.world import MarketWorld
from envs.simulation.streams import Streams
from envs.simulation.world import EpisodeKey
from training.settings import TrainerSettings
from training.trainers.trainer import RoundReport, mean_metrics

DrawWorld = Callable[[int], MarketWorld]


class Decisions(NamedTuple):
    """D decisions of a round."""

    label: Label  # what is kept of each
    lane: NDArray[np.int64]  # (D,)
    job: NDArray[np.int64]  # (D,)
    tried: NDArray[np.bool_]  # (D,) whether it explored
    marks: NDArray[np.float64]  # (D, N_MARKS) totals of the job before it


class OutcomeTrainer:
    """Plays rounds of ordinary episodes, each in a market drawn for it, and learns what jobs came to.

    A decision explores by chance, at most once per job: it takes any candidate. What is learned is the job's
    own outcome from the decision to its end, which is much less noisy than that of the whole system. Before
    `self_play_share` of the episodes the rule plays, then the policy itself, so that what is learned becomes
    the outcome under the policy. Playing and learning run at the same time, on a core each: a round is played
    with what was learned before the last one. A policy that is trained already goes on from there, with the
    scaler it has.

    Between rounds its `state_dict` holds everything: N rounds, stop, resume, N rounds equals 2N rounds.

    Args:
        draw_world: from the number of a round to a world of `settings.lanes` lanes.
        policy: what learns.
        settings: the trainer's settings.
        seed: root of all random streams of the run.
        device: where the networks learn.
    """

    def __init__(
        self,
        draw_world: DrawWorld,
        policy: OutcomePolicy,
        settings: TrainerSettings,
        seed: int,
        device: torch.device,
    ) -> None:
        streams = Streams(seed)
        torch.manual_seed(streams.key("network_weights") % 2**63)
        self.draw_world, self.policy, self.settings = draw_world, policy, settings
        self.seed, self.device = seed, device
        members = len(policy.network.vectors)
        self.networks = [OutcomeNetwork(policy.network.sizes).to(device) for _ in range(members)]
        if policy.network.trained:
            for network, vector in zip(self.networks, policy.network.vectors, strict=True):
                network.set_vector(vector)
        self.regression = OutcomeRegression(self.networks, settings.learning_rate.start)
        self.replay = OutcomeReplay(
            settings.replay_capacity, n_inputs(policy.network.sizes), streams.generator("replay")
        )
        self.rng = streams.generator("exploration")
        self.episodes_done = 0

    def round(self) -> RoundReport:
        """Play the next `lanes` episodes, and meanwhile learn from those before, on a core of its own."""
        progress = self.episodes_done / self.settings.episodes
        rate = self.settings.learning_rate.at(progress)
        epsilon = self.settings.epsilon_1.at(progress)
        world = self.draw_world(self.episodes_done // self.settings.lanes)
        follow_rule = progress < self.settings.outcomes.self_play_share
        with ThreadPoolExecutor(1, initializer=torch.set_num_threads, initargs=(1,)) as core:
            learning = core.submit(self._learn, rate) if self.replay.size else None
            decisions = self._play(world, epsilon, follow_rule)
            losses = learning.result() if learning else {}
        for features, targets in self._labelled(world, decisions):
            self.replay.add(features, targets)
        if learning:
            self.policy.network.set_vectors(np.stack([network.vector() for network in self.networks]))
        elif not self.policy.network.trained:
            rows = torch.from_numpy(self.replay.features[: self.replay.size]).to(self.device).float()
            for network in self.networks:
                network.fit_scaler(rows)
        self.episodes_done += self.settings.lanes
        return RoundReport(
            episodes=self.settings.lanes,
            decisions=len(decisions.lane),
            metrics=mean_metrics(world, self.settings.lanes),
            losses=losses,
            epsilon_1=epsilon,
            learning_rate=rate,
        )

    def _play(self, world: MarketWorld, epsilon: float, follow_rule: bool) -> Decisions:
        n = self.settings.lanes
        world.reset([EpisodeKey(self.seed, "train", self.episodes_done + lane) for lane in range(n)])
        active = np.ones(n, np.bool_)
        explored = np.zeros((n, world.config.workload.most_tasks), np.bool_)
        actions = np.zeros(n, np.int64)
        log: list[tuple[NDArray[Any], ...]] = []
        labels: list[Label] = []
        n_targets = world.spec.n_clusters + 1
        while active.any():
            lanes = np.flatnonzero(active)
            label = self.policy.empty_label(len(lanes))
            best = np.full(len(lanes), -1.0)
            chosen = self.policy.explore(world.observation, lanes, best, label, follow_rule)
            jobs = world.lanes.window[lanes, chosen // n_targets]
            draws = self.rng.random((2, len(lanes)))
            tries = (draws[0] < epsilon) & ~explored[lanes, jobs] & (label.scale > 0.0)
            if tries.any():
                other = self.policy.empty_label(int(tries.sum()))
                chosen[tries] = self.policy.explore(world.observation, lanes[tries], draws[1][tries], other)
                put_rows(label, tries, other)
                explored[lanes[tries], jobs[tries]] = True
            actions[lanes] = chosen
            _, done = world.step(actions, active)
            log.append((lanes, jobs, tries, world.marks()[lanes]))
            labels.append(label)
            active &= ~done
        return Decisions(joined(labels), *(np.concatenate(column) for column in zip(*log, strict=True)))

    def _labelled(
        self, world: MarketWorld, decisions: Decisions
    ) -> Iterator[tuple[NDArray[np.float32], NDArray[np.float32]]]:
        """Features and targets of what was tried, and of some of the rest of each episode."""
        label, lane_of, jobs, tried, marks = decisions
        for lane in range(self.settings.lanes):
            rows = np.flatnonzero(lane_of == lane)
            # Before its exploration a job's outcome is not the policy's.
            from_row = np.zeros(world.lanes.job.shape[1], np.int64)
            from_row[jobs[rows[tried[rows]]]] = rows[tried[rows]]
            rows = rows[(rows >= from_row[jobs[rows]]) & (label.scale[rows] > 0.0)]
            others = rows[~tried[rows]]
            room = max(0, self.settings.outcomes.kept_per_episode - int(tried[rows].sum()))
            if len(others) > room:
                others = self.rng.choice(others, room, replace=False)
            rows = np.sort(np.concatenate([rows[tried[rows]], others]))
            outcomes = -world.values(lane, jobs[rows], marks[rows])
            mine = rows_of(label, rows)
            yield mine.features, targets_of(mine, outcomes, self.policy.weighing)

    def _learn(self, rate: float) -> dict[str, float]:
        self.regression.set_learning_rate(rate)
        steps = self.settings.gradient_steps * self.settings.lanes
        total = torch.zeros(2, device=self.device)
        for _ in range(steps):
            size = self.settings.batch_size
            batches = [self.replay.sample(size, self.device) for _ in self.networks]
            total += self.regression.step(batches)
        usd, misses = (total / steps).tolist()
        return {"usd": usd, "misses": misses}

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to go on bit for bit after the latest round."""
        return {
            "regression": self.regression.state_dict(),
            "replay": self.replay.state_dict(),
            "exploration": self.rng.bit_generator.state,
            "episodes_done": self.episodes_done,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` gave."""
        self.regression.load_state_dict(state["regression"])
        self.replay.load_state_dict(state["replay"])
        self.rng.bit_generator.state = state["exploration"]
        self.episodes_done = int(state["episodes_done"])
        if self.episodes_done > self.settings.lanes:  # nothing is learned in the first round
            self.policy.network.set_vectors(np.stack([network.vector() for network in self.networks]))
