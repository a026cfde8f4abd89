"""What perfect foresight would gain: a planner that looks ahead in copies of the very world it plays in.

No policy may do this; it says how much room is left above one. The plan is achievable, so its score is a
lower bound on the best possible. `unhindered_score` is an upper bound.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from agents.policy import Policy
from envs.simulation.series import Floats, Ints
from envs.simulation.slices import columns as at
from envs.simulation.slices.world import SliceWorld
from envs.simulation.world import BatchWorld, EpisodeKey
from training.evaluation.episodes import EpisodeResult, finished_metrics, policy_seed

NAME = "clairvoyant"


class ClairvoyantPlanner:
    """Plays episodes with knowledge of their future.

    At each decision it takes the job that the base policy chose, puts it on every valid cluster, each in a
    copy of the world with the same future, lets the base policy go on until the jobs of the near future
    have ended, and takes the cluster whose copy came to the highest return. (A rollout algorithm on the
    true future: Bertsekas, Tsitsiklis and Wu 1997.) The base policy must decide by what it sees alone.

    Args:
        world: a world with `lanes_needed` lanes.
        base: the policy that copies follow.
        further: jobs that still arrive in a copy after the decision.
    """

    def __init__(self, world: BatchWorld, base: Policy, further: int = 60) -> None:
        if further < 0:
            raise ValueError(f"further arrivals must be >= 0, got {further}")
        self.world = world
        self.base = base
        self.further = further

    @staticmethod
    def lanes_needed(episodes: int, n_clusters: int) -> int:
        """Lanes for this many episodes at the same time: one that plays, and a copy for every choice."""
        return episodes * (1 + n_clusters + 1)

    def play(self, keys: Sequence[EpisodeKey]) -> list[EpisodeResult]:
        """Results of the episodes, in order, under the name "clairvoyant".

        Raises:
            ValueError: if the world has too few lanes.
        """
        world, n = self.world, len(keys)
        n_targets = world.spec.n_clusters + 1
        needed = self.lanes_needed(n, world.spec.n_clusters)
        if world.n_lanes < needed:
            raise ValueError(f"{n} episodes need a world of {needed} lanes, got {world.n_lanes}")
        world.reset(keys, list(range(n)))
        for lane, key in enumerate(keys):
            self.base.begin(lane, policy_seed(key))
        playing = np.zeros(world.n_lanes, np.bool_)
        playing[:n] = True
        actions = np.zeros(world.n_lanes, np.int64)
        returns, decisions = np.zeros(n), np.zeros(n, np.int64)
        while playing.any():
            lanes = np.flatnonzero(playing)
            planned = self.base.act_lanes(world.observation, lanes)
            actions[lanes] = self._look_ahead(lanes, planned, n, n_targets)
            rewards, done = world.step(actions, playing)
            returns[lanes] += rewards[lanes]
            decisions[lanes] += 1
            playing &= ~done
        return [
            EpisodeResult(
                NAME,
                key,
                finished_metrics(world, lane, NAME, key),
                float(returns[lane]),
                int(decisions[lane]),
            )
            for lane, key in enumerate(keys)
        ]

    def _look_ahead(self, lanes: Ints, planned: Ints, first_copy: int, n_targets: int) -> Ints:
        """The best action of each lane, given the base policy's."""
        world = self.world
        masks = world.observation["action_mask"]
        owners: list[int] = []
        tried: list[int] = []
        for lane, action in zip(lanes.tolist(), planned.tolist(), strict=True):
            start = action // n_targets * n_targets
            choices = start + np.flatnonzero(masks[lane, start : start + n_targets])
            # The base policy's own choice comes first: it wins ties.
            ordered = [action, *(choice for choice in choices.tolist() if choice != action)]
            owners += [lane] * len(ordered)
            tried += ordered
        copies = first_copy + np.arange(len(tried))
        world.copy_lanes(np.array(owners), copies)
        world.limit_arrivals(copies, self.further)
        outcome = self._roll_out(copies, np.array(tried))
        best = planned.copy()
        row_of = {lane: row for row, lane in enumerate(lanes.tolist())}
        highest = np.full(len(lanes), -np.inf)
        for owner, action, value in zip(owners, tried, outcome.tolist(), strict=True):
            row = row_of[owner]
            if value > highest[row]:
                highest[row], best[row] = value, action
        return best

    def _roll_out(self, copies: Ints, first_actions: Ints) -> Floats:
        """(n,) returns of the copies from their first action to the end of their last job."""
        world = self.world
        active = np.zeros(world.n_lanes, np.bool_)
        active[copies] = True
        actions = np.zeros(world.n_lanes, np.int64)
        actions[copies] = first_actions
        returns = np.zeros(world.n_lanes)
        while active.any():
            rewards, done = world.step(actions, active)
            returns += rewards
            active &= ~done
            going = np.flatnonzero(active)
            actions[going] = self.base.act_lanes(world.observation, going)
        return np.asarray(returns[copies])


def unhindered_score(world: SliceWorld, key: EpisodeKey) -> float:
    """The objective (the first metric) of an episode in which every job runs on its fastest cluster at once
    and nothing is missed.

    No policy can do better: an execution lasts at least as long as on the fastest cluster without a wait, and
    misses cost something. Uses lane 0 of the world.
    """
    world.reset([key], [0])
    slot = world.lanes.slot[0]
    standard = world.tables.job[slot, :, at.STANDARD]
    fastest = world.tables.pair[slot, :, :, at.EXECUTION].min(axis=1)
    # The rewards of such an episode; what an ended job's ratio weighs in the objective is the last weight.
    total = world.spec.objective_weights[-1] * (1.0 - fastest / standard).sum()
    return float(total if world.spec.higher_is_better[0] else 0.0 - total)
