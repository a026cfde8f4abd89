"""A toy world with a known optimum, small enough that every trainer learns it within seconds."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from spotweave.agents.networks import ValuePolicy
from spotweave.agents.policy import Policy
from spotweave.agents.rules import make_rule
from spotweave.envs.simulation import columns as col
from spotweave.envs.simulation.slices.config import SliceWorldConfig
from spotweave.envs.simulation.slices.world import SliceWorld
from spotweave.envs.simulation.snapshot import Category, Observation, empty_observation
from spotweave.envs.simulation.streams import Streams, episode_sequence
from spotweave.envs.simulation.world import BatchWorld, EpisodeKey, WorldSpec
from spotweave.training.evaluation.episodes import Suite, run_suite
from spotweave.training.settings import ScheduleSettings, TrainerSettings
from spotweave.training.trainers.monte_carlo import MonteCarloTrainer
from tests.agents.inputs import small_network
from tests.training.fake_world import Clairvoyant, OnlyPlayed

WINDOW = 2


class ToyWorld(OnlyPlayed):
    """Every job has a cost on each cluster, and using a cluster costs somebody else that cluster's price.

    Two jobs are shown at a time; "none" is never valid. Value components are (-own cost, -price to others):
    under weights (1, 1) the best choice minimises cost + price, under (1, 0) the cost alone. Costs stand in
    `EXECUTION_S`, prices in `PRICE_USD_HOUR`.

    Metrics: objective (mean of -(cost + price), higher is better) and regret (mean excess over the best
    choice, 0 for the optimum).
    """

    def __init__(self, n_lanes: int, n_jobs: int = 8, n_clusters: int = 3) -> None:
        self.n_lanes = n_lanes
        self.n_jobs = n_jobs
        self.spec = WorldSpec(
            name="toy",
            window=WINDOW,
            n_clusters=n_clusters,
            cluster_names=tuple(f"cluster-{c}" for c in range(n_clusters)),
            components=("own", "mutual"),
            weights=(1.0, 1.0),
            scales=(10.0, 10.0),
            metrics=("objective", "regret"),
            higher_is_better=(True, False),
            time_unit="s",
            objective_weights=(1.0, 1.0),
        )
        self.observation: Observation = empty_observation(WINDOW, n_clusters, (n_lanes,))
        self.costs = np.zeros((n_lanes, n_jobs, n_clusters))
        self.prices = np.zeros((n_lanes, n_clusters))
        self.chosen = np.full((n_lanes, n_jobs), -1, np.int64)
        self._decided = np.full(n_lanes, -1, np.int64)
        self._marks = np.zeros((n_lanes, 1))

    def draw(self, key: EpisodeKey) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Costs and prices of an episode."""
        streams = Streams(episode_sequence(key.seed, key.split, key.index))
        n_clusters = self.spec.n_clusters
        return (
            streams.generator("job_sizes").uniform(0.0, 20.0, (self.n_jobs, n_clusters)),
            streams.generator("prices").uniform(0.0, 20.0, n_clusters),
        )

    def reset(self, keys: Sequence[EpisodeKey], lanes: Sequence[int] | None = None) -> None:
        for key, lane in zip(keys, range(self.n_lanes) if lanes is None else lanes, strict=True):
            self.costs[lane], self.prices[lane] = self.draw(key)
            self.chosen[lane] = -1
            self._decided[lane] = -1
            self._show(lane)

    def waiting(self, lane: int) -> list[int]:
        """The jobs shown, by arrival."""
        undecided = np.flatnonzero(self.chosen[lane] < 0)
        return [int(job) for job in undecided[:WINDOW]]

    def _show(self, lane: int) -> None:
        shown, n_clusters = self.waiting(lane), self.spec.n_clusters
        for array in self.observation.values():
            array[lane] = 0  # type: ignore[index]
        self.observation["clusters"][lane, :, col.SEQUENCE] = np.arange(n_clusters) + 1
        self.observation["clusters"][lane, :, col.PRICE_USD_HOUR] = self.prices[lane]
        for row, job in enumerate(shown):
            self.observation["jobs"][lane, row, col.PRESENT] = 1
            self.observation["jobs"][lane, row, col.CATEGORY] = Category.GENERAL
            self.observation["pairs"][lane, row, :, col.EXECUTION_S] = self.costs[lane, job]
            first = row * (n_clusters + 1)
            self.observation["action_mask"][lane, first : first + n_clusters] = 1

    def step(
        self, actions: NDArray[np.int64], active: NDArray[np.bool_] | None = None
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        rewards, done = np.zeros(self.n_lanes), np.ones(self.n_lanes, np.bool_)
        self._decided[:] = -1
        for lane in range(self.n_lanes) if active is None else np.flatnonzero(active).tolist():
            action = int(actions[lane])
            if not self.observation["action_mask"][lane, action]:
                raise ValueError(f"action {action} of lane {lane} is invalid")
            row, cluster = divmod(action, self.spec.n_clusters + 1)
            job = self.waiting(lane)[row]
            self._marks[lane] = np.count_nonzero(self.chosen[lane] >= 0)
            self.chosen[lane, job] = cluster
            self._decided[lane] = job
            rewards[lane] = -(self.costs[lane, job, cluster] + self.prices[lane, cluster])
            self._show(lane)
            done[lane] = not self.waiting(lane)
        return rewards, done

    def decided_jobs(self) -> NDArray[np.int64]:
        return self._decided.copy()

    def marks(self) -> NDArray[np.float64]:
        """(N, 1) decisions taken in the lane before the latest one."""
        return self._marks.copy()

    def values(self, lane: int, jobs: NDArray[np.int64], marks: NDArray[np.float64]) -> NDArray[np.float64]:
        # Marks belong to their decisions: a trainer that mixes up rows or lanes is found out here.
        assert marks[:, 0].tolist() == list(range(len(jobs)))
        chosen = self.chosen[lane, jobs]
        return np.stack([-self.costs[lane, jobs, chosen], -self.prices[lane, chosen]], axis=1)

    def metrics(self, lane: int) -> Mapping[str, float]:
        played = np.flatnonzero(self.chosen[lane] >= 0)
        total = self.costs[lane] + self.prices[lane]
        paid = total[played, self.chosen[lane, played]]
        return {"objective": -float(paid.mean()), "regret": float((paid - total[played].min(1)).mean())}

    def fingerprint(self, key: EpisodeKey) -> str:
        return hashlib.sha256(b"".join(array.tobytes() for array in self.draw(key))).hexdigest()


class Myopic(Clairvoyant):
    """The rule that guides: the cheapest cluster for the first job, blind to what it costs others."""

    name = "myopic"


# Small trainers on the toy world and on the real slice world, for the tests of training.


CPU = torch.device("cpu")
SIZES: dict[str, Any] = {
    "features": "all",
    "lstm_size": 4,
    "shared_size": 32,
    "head_size": 16,
    "hidden_sizes": [32, 16],
}
TOY_SUITE = Suite("toy", "validation", seed=5, episodes=20)


def small_settings(**changes: Any) -> TrainerSettings:
    """Settings that learn the toy world within seconds."""
    settings = TrainerSettings(
        episodes=120,
        lanes=20,
        gradient_steps=3,
        batch_size=64,
        replay_capacity=4000,
        learning_rate=ScheduleSettings(3e-3, 3e-4),
    )
    for name, value in changes.items():
        setattr(settings, name, value)
    return settings


def monte_carlo(
    world: BatchWorld, settings: TrainerSettings, guide: Policy, kind: str = "rl_lsfc", seed: int = 0
) -> MonteCarloTrainer:
    spec, weights = world.spec, world.spec.weights
    torch.manual_seed(seed)
    network = small_network(kind, spec.n_clusters, spec.scales, weights, **SIZES)
    policy = ValuePolicy(network, weights if network.n_outputs > 1 else (1.0,), kind, CPU)
    return MonteCarloTrainer(world, policy, weights, settings, guide, seed)


def toy_monte_carlo(kind: str = "rl_lsfc", seed: int = 0, **changes: Any) -> MonteCarloTrainer:
    settings = small_settings(**changes)
    return monte_carlo(ToyWorld(settings.lanes), settings, Myopic(), kind, seed)


def slice_trainer(kind: str, seed: int = 0, guide: str = "maf", **changes: Any) -> MonteCarloTrainer:
    """A trainer on the chapter 5 world with few jobs."""
    settings = small_settings(
        **{"episodes": 12, "lanes": 3, "batch_size": 32, "replay_capacity": 100, **changes}
    )
    config = SliceWorldConfig(n_jobs=25, window=4)
    return monte_carlo(SliceWorld(config, settings.lanes), settings, make_rule(guide), kind, seed)


def toy_regret(policy: Policy) -> float:
    """Mean regret on episodes that no trainer has seen; the optimum has 0."""
    results = run_suite(ToyWorld(TOY_SUITE.episodes), policy, TOY_SUITE)
    return float(np.mean([result.metrics["regret"] for result in results]))
