"""One episode under several policies, for the pictures of a report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np

from agents.policy import Policy
from envs.simulation.timeline import Timeline
from envs.simulation.world import BatchWorld, EpisodeKey
from training.evaluation.episodes import choose, policy_seed


@runtime_checkable
class RecordsTimeline(Protocol):
    """A world that can tell what happened in the latest episode of a lane."""

    def timeline(self, lane: int) -> Timeline:
        """The episode in a lane, until now or until its end."""


def record_timelines(world: BatchWorld, policies: Sequence[Policy], key: EpisodeKey) -> dict[str, Timeline]:
    """Play one episode in lane 0 under each policy: what the world recorded, by policy.

    Raises:
        TypeError: if the world keeps no timeline.
    """
    if not isinstance(world, RecordsTimeline):
        raise TypeError(f"world {world.spec.name!r} offers no timeline")
    timelines = {}
    for policy in policies:
        _play(world, policy, key)
        timelines[policy.name] = world.timeline(0)
    return timelines


def _play(world: BatchWorld, policy: Policy, key: EpisodeKey) -> None:
    """Play one episode in lane 0."""
    lane = np.zeros(1, np.int64)
    active = np.zeros(world.n_lanes, np.bool_)
    active[0] = True
    actions = np.zeros(world.n_lanes, np.int64)
    world.reset([key], [0])
    policy.begin(0, policy_seed(key))
    ended = False
    while not ended:
        actions[:1] = choose(policy, world.observation, lane)
        _, done = world.step(actions, active)
        ended = bool(done[0])
