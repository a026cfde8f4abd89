"""Spot jobs made by hand, and a policy whose choices are drawn at random."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spotweave.agents.spot.belief import FEATURES, SET_FEATURES
from spotweave.agents.spot.model import Beliefs, SpotModel
from spotweave.envs.simulation import columns as col
from spotweave.envs.simulation.spot.lanes import Habits, SpotJob
from spotweave.envs.simulation.spot.world import SpotWorld
from spotweave.envs.simulation.world import EpisodeKey

KEY = EpisodeKey(0, "test", 0)


def job_of(
    has_spot: NDArray[np.bool_],
    work_s: int = 300,
    restart_s: int = 30,
    tick_s: int = 100,
    price: NDArray[np.float64] | None = None,
    habits: Habits | None = None,
) -> SpotJob:
    """A job on (N, Z) availability; spot costs 1 USD/h unless told, on demand 3."""
    usd_hour = np.ones(has_spot.shape) if price is None else price
    return SpotJob(has_spot, usd_hour, 3.0, work_s, tick_s, restart_s, habits=habits)


def up(*rows: str) -> NDArray[np.bool_]:
    """(N, Z) availability from a string per zone: "110" is up, up, down."""
    return np.array([[mark == "1" for mark in row] for row in rows]).T


def act(world: SpotWorld, *actions: int) -> list[float]:
    """Rewards of the actions, lane 0."""
    rewards = []
    for action in actions:
        reward, done = world.step(np.array([action]))
        rewards.append(float(reward[0]))
    assert bool(done[0]) == (world.observation["jobs"][0, 0, col.PRESENT] == 0.0)
    return rewards


@dataclass
class GivenJobs:
    """A source of the jobs of a list, by the index of the episode."""

    jobs: list[SpotJob]

    @property
    def zones(self) -> tuple[str, ...]:
        return tuple(f"zone {z}a" for z in range(self.jobs[0].has_spot.shape[1]))

    @property
    def most_ticks(self) -> int:
        return max(job.n_ticks for job in self.jobs)

    def job(self, key: EpisodeKey) -> SpotJob:
        return self.jobs[key.index]


def world_of(*jobs: SpotJob, lanes: int = 1) -> SpotWorld:
    return SpotWorld(GivenJobs(list(jobs)), lanes, 1.0)


def begun(job: SpotJob) -> SpotWorld:
    """A world in the first question about this job."""
    world = world_of(job)
    world.reset([KEY])
    return world


def random_model(rng: np.random.Generator, tick_s: int, restart_s: int) -> SpotModel:
    """A model that was never fitted: random beliefs, random choices."""
    beliefs = Beliefs(
        rng.normal(size=FEATURES),
        rng.normal(size=FEATURES),
        rng.normal(size=SET_FEATURES),
        np.array([0.3, 0.7]),
        np.array([0.5]),
        np.array([0.4]),
        risk=2.0,
        crowd=2,
        tick_s=tick_s,
    )
    table = rng.integers(0, 3, (1, 3, 5, 6, beliefs.n_states)).astype(np.uint8)
    return SpotModel(beliefs, np.array([restart_s]), table, tick_s)
