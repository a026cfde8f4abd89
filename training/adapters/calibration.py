"""One episode under the guiding rule, before training: the scales that flat features and rewards need."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from agents.policy import Policy
from envs.simulation.world import BatchWorld, EpisodeKey
from training.adapters.flattening import Flattening, signed_log_features
from training.episodes import choose, policy_seed


@dataclass(frozen=True)
class Calibration:
    """What the episode told.

    Attributes:
        flattening: fitted to its observations.
        reward_scale: constant that rewards are multiplied with: 1 / standard deviation of its rewards.
        decisions: decisions it took.
    """

    flattening: Flattening
    reward_scale: float
    decisions: int


def calibrate(world: BatchWorld, guide: Policy, key: EpisodeKey, n_jobs: int) -> Calibration:
    """Play `key` in lane 0 with the guide.

    Args:
        world: its other lanes are left alone.
        guide: the guiding rule.
        key: an episode of the training split.
        n_jobs: jobs that the agent shall see; a smaller window shows all of its own.
    """
    n_jobs = min(n_jobs, world.spec.window)
    lane = np.zeros(1, np.int64)
    active = np.zeros(world.n_lanes, np.bool_)
    active[0] = True
    actions = np.zeros(world.n_lanes, np.int64)
    rows, rewards = [], []
    world.reset([key], [0])
    guide.begin(0, policy_seed(key))
    ended = False
    while not ended:
        rows.append(signed_log_features(world.observation, n_jobs)[:1])
        actions[:1] = choose(guide, world.observation, lane)
        reward, done = world.step(actions, active)
        rewards.append(float(reward[0]))
        ended = bool(done[0])
    spread = float(np.std(rewards))
    return Calibration(
        Flattening.fit(np.concatenate(rows), n_jobs, world.spec.n_clusters),
        1.0 / spread if spread > 0.0 else 1.0,
        len(rewards),
    )
