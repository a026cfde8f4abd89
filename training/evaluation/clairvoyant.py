"""What perfect foresight would gain: a planner that looks ahead in copies of the very world it plays in.

No policy may do this; it says how much room is left above one. The plan is achievable, so its score is a
lower bound on the best possible. `unhindered_score` is an upper bound.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from spotweave.agents.policy import Policy
from spotweave.envs.simulation.series import Floats, Ints
from spotweave.envs.simulation.slices import columns as at
from spotweave.envs.simulation.slices.world import SliceWorld
from spotweave.envs.simulation.world import BatchWorld, EpisodeKey
from spotweave.training.evaluation.episodes import EpisodeResult, finished_metrics, policy_seed

NAME = "clairvoyant"


@dataclass(frozen=True)
class ClairvoyantPlanner:
    """Plays episodes with knowledge of their future.

    At each decision it takes the job that the base policy chose, puts it on every valid cluster, each in a
    copy of the world with the same future, lets the base policy go on until the jobs of the near future
    have ended, and takes the cluster whose copy came to the highest return. (A rollout algorithm on the
    true future: Bertsekas, Tsitsiklis and Wu 1997.) The base policy must decide by what it sees alone.
    """

    world: BatchWorld  # with `lanes_needed` lanes
    base: Policy  # which copies follow
    further: int  # jobs that still arrive in a copy after the decision

    def __post_init__(self) -> None:
        if self.further < 0:
            raise ValueError(f"further arrivals must be >= 0, got {self.further}")

    @staticmethod
    def lanes_needed(n_clusters: int) -> int:
        """Lanes for an episode: one that plays, and a copy for every choice."""
        return 1 + n_clusters + 1

    def play(self, key: EpisodeKey) -> EpisodeResult:
        """The result of an episode under the name "clairvoyant"; lane 0 plays it.

        Raises:
            ValueError: if the world has too few lanes.
        """
        world, lane = self.world, np.zeros(1, np.int64)
        needed = self.lanes_needed(world.spec.n_clusters)
        if world.n_lanes < needed:
            raise ValueError(f"an episode needs a world of {needed} lanes, got {world.n_lanes}")
        world.reset([key], [0])
        self.base.begin(0, policy_seed(key))
        playing = np.arange(world.n_lanes) == 0
        actions = np.zeros(world.n_lanes, np.int64)
        total, decisions = 0.0, 0
        while playing[0]:
            planned = self.base.act_lanes(world.observation, lane)
            actions[0] = self._look_ahead(int(planned[0]))
            rewards, done = world.step(actions, playing)
            total += float(rewards[0])
            decisions += 1
            playing &= ~done
        return EpisodeResult(NAME, key, finished_metrics(world, 0, NAME, key), total, decisions)

    def _look_ahead(self, planned: int) -> int:
        """The best action of lane 0, given the base policy's."""
        world = self.world
        n_targets = world.spec.n_clusters + 1
        start = planned // n_targets * n_targets
        choices = start + np.flatnonzero(world.observation["action_mask"][0, start : start + n_targets])
        # The base policy's own choice comes first: it wins ties.
        tried = np.array([planned, *choices[choices != planned]])
        copies = 1 + np.arange(len(tried))
        world.copy_lanes(np.zeros_like(copies), copies)
        world.limit_arrivals(copies, self.further)
        return int(tried[np.argmax(self._roll_out(copies, tried))])

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
