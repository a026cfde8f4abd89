"""A tiny world without physics: three clusters, one job at a time, a random but named gain per choice."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from spotweave.agents.policy import Policy
from spotweave.envs.simulation import columns as col
from spotweave.envs.simulation.snapshot import Observation, empty_observation
from spotweave.envs.simulation.streams import Streams, episode_sequence
from spotweave.envs.simulation.world import EpisodeKey, WorldSpec

N_CLUSTERS = 3


class OnlyPlayed:
    """A world without what planners need."""

    def copy_lanes(self, sources: NDArray[np.int64], targets: NDArray[np.int64]) -> None:
        raise NotImplementedError("this world cannot copy lanes")

    def limit_arrivals(self, lanes: NDArray[np.int64], further: int) -> None:
        raise NotImplementedError("this world cannot limit arrivals")


class FakeWorld(OnlyPlayed):
    """Episode `index` takes 5 + index % 4 decisions; the gain of cluster c at step t is drawn beforehand.

    EXECUTION_S shows the negative gain, so a policy that picks the smallest is clairvoyant. "None" is
    masked out. Metrics: score (sum of gains, higher is better), tmdl, ajer (lower is better).
    """

    def __init__(self, n_lanes: int, broken_metric: bool = False) -> None:
        self.n_lanes = n_lanes
        self.broken_metric = broken_metric
        self.spec = WorldSpec(
            name="fake",
            window=1,
            n_clusters=N_CLUSTERS,
            cluster_names=("a", "b", "c"),
            components=("score",),
            weights=(1.0,),
            scales=(1.0,),
            metrics=("score", "tmdl", "ajer"),
            higher_is_better=(True, False, False),
            time_unit="slice",
        )
        self.observation: Observation = empty_observation(1, N_CLUSTERS, (n_lanes,))
        self.gains: list[NDArray[np.float64]] = [np.zeros((0, N_CLUSTERS))] * n_lanes
        self.step_of = [0] * n_lanes
        self.score = [0.0] * n_lanes
        self.misses = [0] * n_lanes
        self.resets: list[tuple[int, EpisodeKey]] = []

    @staticmethod
    def draw(key: EpisodeKey) -> NDArray[np.float64]:
        generator = Streams(episode_sequence(key.seed, key.split, key.index)).generator("job_sizes")
        return generator.uniform(0.0, 10.0, (5 + key.index % 4, N_CLUSTERS))

    def reset(self, keys: Sequence[EpisodeKey], lanes: Sequence[int] | None = None) -> None:
        for key, lane in zip(keys, range(self.n_lanes) if lanes is None else lanes, strict=True):
            self.gains[lane] = self.draw(key)
            self.step_of[lane], self.score[lane], self.misses[lane] = 0, 0.0, 0
            self.resets.append((lane, key))
            self._show(lane)

    def _show(self, lane: int) -> None:
        self.observation["jobs"][lane, 0, col.PRESENT] = 1
        self.observation["pairs"][lane, 0, :, col.EXECUTION_S] = -self.gains[lane][self.step_of[lane]]
        self.observation["action_mask"][lane] = [1, 1, 1, 0]

    def step(
        self, actions: NDArray[np.int64], active: NDArray[np.bool_] | None = None
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        rewards, done = np.zeros(self.n_lanes), np.ones(self.n_lanes, np.bool_)
        for lane in range(self.n_lanes):
            if active is not None and not active[lane]:
                continue
            gain = self.gains[lane][self.step_of[lane], actions[lane]]
            rewards[lane] = gain
            self.score[lane] += gain
            self.misses[lane] += int(gain < 5.0)
            self.step_of[lane] += 1
            done[lane] = self.step_of[lane] == len(self.gains[lane])
            if not done[lane]:
                self._show(lane)
        return rewards, done

    def decided_jobs(self) -> NDArray[np.int64]:
        return np.full(self.n_lanes, -1)

    def marks(self) -> NDArray[np.float64]:
        return np.zeros((self.n_lanes, 1))

    def values(self, lane: int, jobs: NDArray[np.int64], marks: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.zeros((len(jobs), 1))

    def metrics(self, lane: int) -> Mapping[str, float]:
        score = float("nan") if self.broken_metric else self.score[lane]
        return {
            "ajer": 100.0 - score / len(self.gains[lane]),
            "tmdl": float(self.misses[lane]),
            "score": score,
        }

    def fingerprint(self, key: EpisodeKey) -> str:
        return hashlib.sha256(self.draw(key).tobytes()).hexdigest()


class Clairvoyant(Policy):
    """The cluster where `EXECUTION_S` of the first job is least."""

    name = "clairvoyant"

    def act_batch(self, observations: Observation, lanes: NDArray[np.int64]) -> NDArray[np.int64]:
        best: NDArray[np.int64] = observations["pairs"][:, 0, :, col.EXECUTION_S].argmin(axis=1)
        return best


class Fixed(Policy):
    """Always the same action, valid or not."""

    def __init__(self, action: int, name: str = "fixed") -> None:
        self.action = action
        self.name = name

    def act_batch(self, observations: Observation, lanes: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.full(len(lanes), self.action)


class Wanderer(Policy):
    """Draws from its own stream, kept per lane."""

    name = "wanderer"

    def __init__(self) -> None:
        self.generators: dict[int, np.random.Generator] = {}

    def begin(self, lane: int, seed: int) -> None:
        self.generators[lane] = np.random.default_rng(seed)

    def act_batch(self, observations: Observation, lanes: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.array([self.generators[int(lane)].integers(N_CLUSTERS) for lane in lanes])
