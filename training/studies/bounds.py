"""What the best possible policy is compared with: a plan that knows the future, and what none can pass."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from agents.policy import Policy
from envs.environments import ENVIRONMENTS
from envs.simulation.market.world import MarketWorld
from envs.simulation.slices.world import SliceWorld
from envs.simulation.world import BatchWorld, EpisodeKey
from training.config import UsageError, world_config
from training.evaluation.clairvoyant import NAME, ClairvoyantPlanner, unhindered_score
from training.evaluation.episodes import EpisodeResult, Progress
from training.evaluation.suite import Suite
from training.studies.evaluations import EvaluationCache, Played
from training.studies.experiment import ClairvoyantSettings


@dataclass(frozen=True)
class Bounds:
    """What no policy has reached, and what none can.

    Attributes:
        base: the policy that the planner followed, and what identifies it.
        further: jobs that still arrived in a copy after a decision.
        planned: the planner's episodes: the first of the suite.
        unhindered: the objective of every episode of the suite if nothing waits and nothing is missed; None
            in markets, where it would say little.
    """

    base: Mapping[str, object]
    further: int
    planned: Played
    unhindered: tuple[float, ...] | None

    @property
    def episodes(self) -> int:
        """How many the planner played."""
        return len(self.planned.decisions)


@dataclass(frozen=True)
class Base:
    """The policy that the planner follows in copies of the world.

    Attributes:
        identity: everything its episodes depend on.
        facts: name, and for a trained policy what identifies it.
        make: loads it for a world.
    """

    identity: str
    facts: Mapping[str, object]
    make: Callable[[BatchWorld], Policy]


def measure_bounds(
    cache: EvaluationCache,
    env: Mapping[str, Any],
    suite: Suite,
    settings: ClairvoyantSettings,
    base: Base,
    progress: Progress | None = None,
) -> Bounds:
    """Plan the first episodes of a suite, or take the plans from the cache, and bound the objective of all.

    Args:
        cache: where played episodes are kept.
        env: the resolved world.
        suite: all episodes.
        settings: how many are planned, and how far ahead.
        base: what the planner follows.
        progress: called before planning and after each episode.

    Raises:
        UsageError: for a world that is neither one of slices nor a market.
    """
    entry, config = ENVIRONMENTS[env["name"]], world_config(env)
    world = entry.build(config, 1)
    if not isinstance(world, SliceWorld | MarketWorld):
        raise UsageError(f"experiment.clairvoyant: +env={env['name']} has no bound, so leave it out")
    first = dataclasses.replace(suite, episodes=min(settings.episodes, suite.episodes))
    large: list[BatchWorld] = []

    def play(key: EpisodeKey) -> EpisodeResult:
        if not large:  # many lanes: made only if there is something to plan
            large.append(entry.build(config, ClairvoyantPlanner.lanes_needed(1, world.spec.n_clusters)))
        return ClairvoyantPlanner(large[0], base.make(large[0]), settings.further).play([key])[0]

    identity = f"{NAME}, {settings.further} further arrivals, following {base.identity}"
    planned = cache.keep_each(world, env, first, identity, play, progress)
    unhindered = None
    if isinstance(world, SliceWorld):
        unhindered = tuple(unhindered_score(world, key) for key in suite.episode_keys())
    return Bounds(base.facts, settings.further, planned, unhindered)
