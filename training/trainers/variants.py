"""Plays episodes with many variants of a policy's weights, a lane each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from agents.vector_policy import VectorPolicy
from envs.simulation.world import BatchWorld, EpisodeKey


class Trial(NamedTuple):
    """A task: variants to be played.

    Attributes:
        first: number of the first episode; the two of a pair play the same.
        variants: (n, D) float32 weights; rows 2k and 2k + 1 are a pair.
        place: trials that are played at the same time in one process have different places.
    """

    first: int
    variants: NDArray[np.float32]
    place: int


class Played(NamedTuple):
    """What became of a trial: (n,) sums of rewards, decisions, and the metrics of each episode."""

    returns: NDArray[np.float64]
    decisions: int
    metrics: list[Mapping[str, float]]


class VariantPlayer:
    """Plays trials in worlds that are made where they are played; it can be pickled.

    Args:
        build: returns a world with the given number of lanes.
        policy: acts with the weights of a variant.
        seed: root of the run's random streams.
    """

    def __init__(self, build: Callable[[int], BatchWorld], policy: VectorPolicy, seed: int) -> None:
        self.build = build
        self.policy = policy
        self.seed = seed
        self._worlds: dict[tuple[int, int], BatchWorld] = {}

    def __getstate__(self) -> dict[str, object]:
        return {"build": self.build, "policy": self.policy, "seed": self.seed, "_worlds": {}}

    def _world(self, trial: Trial) -> BatchWorld:
        key = len(trial.variants), trial.place
        if key not in self._worlds:
            self._worlds[key] = self.build(len(trial.variants))
        return self._worlds[key]

    def __call__(self, trial: Trial) -> Played:
        """Play a trial's variants to the ends of their episodes."""
        world, variants = self._world(trial), trial.variants
        n = len(variants)
        world.reset([EpisodeKey(self.seed, "train", trial.first + lane // 2) for lane in range(n)])
        active = np.ones(n, np.bool_)
        actions = np.zeros(n, np.int64)
        returns = np.zeros(n)
        decisions = 0
        while active.any():
            lanes = np.flatnonzero(active)
            actions[lanes] = self.policy.act_with(variants, world.observation, lanes, lanes)
            rewards, done = world.step(actions, active)
            returns += rewards
            decisions += len(lanes)
            active &= ~done
        return Played(returns, decisions, [dict(world.metrics(lane)) for lane in range(n)])
