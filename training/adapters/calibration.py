"""Two episodes before training: the scales that flat features and rewards need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from agents.flattening import Flattening, Floats, signed_log_features
from agents.policy import Policy
from envs.simulation.world import BatchWorld, EpisodeKey
from training.evaluation.episodes import choose, policy_seed


@dataclass(frozen=True)
class Calibration:
    """What the episodes told.

    Attributes:
        flattening: fitted to their observations.
        reward_scale: constant that rewards are multiplied with: 1 / standard deviation of their rewards.
        decisions: decisions that the first one took.
    """

    flattening: Flattening
    reward_scale: float
    decisions: int


def calibrate(
    world: BatchWorld, policies: Sequence[Policy], key: EpisodeKey, n_jobs: int, pooled: bool = False
) -> Calibration:
    """Play `key` in lane 0 with each policy.

    Args:
        world: its other lanes are left alone.
        policies: the guiding rule, for what matters, and a random one, for what the guide never visits.
        key: an episode of the training split.
        n_jobs: jobs that the agent shall see; a smaller window shows all of its own.
        pooled: see `Flattening.fit`.
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


def _play(world: BatchWorld, policy: Policy, key: EpisodeKey, n_jobs: int) -> tuple[Floats, Floats]:
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
