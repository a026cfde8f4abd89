"""Plays suites with an engine: a task is a few episodes of a policy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from agents.policy import Policy
from agents.value_policy import ValuePolicy
from envs.simulation.world import BatchWorld, EpisodeKey
from training.config import UsageError
from training.engines.engine import Engine
from training.evaluation.episodes import EpisodeResult, Progress, run_episodes, run_suite
from training.evaluation.suite import Suite
from training.progress import PlayProgress, named_progress

EPISODES_PER_TASK = 5
"""A number that no number of workers changes: what a network sums up may depend on who is beside it."""


class Part(NamedTuple):
    """A task: some episodes of one policy in one of the worlds."""

    world: int
    policy: Policy
    keys: tuple[EpisodeKey, ...]


class SuitePlayer:
    """Plays episodes in worlds that are made where they are played; it can be pickled.

    Args:
        builds: each makes a world of so many lanes.
        lanes: episodes played at the same time in this process; no result depends on it.
    """

    def __init__(self, builds: Sequence[Callable[[int], BatchWorld]], lanes: int) -> None:
        self.builds = builds
        self.lanes = lanes
        self._worlds: dict[tuple[int, int], BatchWorld] = {}

    def __getstate__(self) -> dict[str, object]:
        return {"builds": self.builds, "lanes": self.lanes, "_worlds": {}}

    def world(self, number: int = 0, lanes: int | None = None) -> BatchWorld:
        """The world of builds[number] of this process."""
        key = number, self.lanes if lanes is None else lanes
        if key not in self._worlds:
            self._worlds[key] = self.builds[number](key[1])
        return self._worlds[key]

    def __call__(self, part: Part) -> list[EpisodeResult]:
        """The results of a task, in the order of its episodes."""
        return run_episodes(self.world(part.world, EPISODES_PER_TASK), part.policy, part.keys)

    def play(
        self,
        engine: Engine | None,
        who: Sequence[tuple[int, Policy]],
        suite: Suite,
        progress: PlayProgress | None = None,
    ) -> list[list[EpisodeResult]]:
        """The results of each (world, policy) of `who` on the suite, in the suite's order.

        Args:
            engine: where; None: in this process.
            who: worlds by their number, and policies.
            suite: the episodes.
            progress: told of every episode that ended, here, or of every task elsewhere.

        Raises:
            UsageError: if a policy computes on a GPU, which workers do not have.
            ValueError: what `run_episodes` refuses.
        """
        if engine is None:
            return [
                run_suite(self.world(world), policy, suite, named_progress(progress, policy.name))
                for world, policy in who
            ]
        for _, policy in who:
            if isinstance(policy, ValuePolicy) and policy.device.type != "cpu":
                raise UsageError(
                    f"policy {policy.name} computes on {policy.device}, which workers may not have: give "
                    "device=cpu, or play here, without engine= and workers="
                )
        keys = suite.episode_keys()
        starts = range(0, len(keys), EPISODES_PER_TASK)
        parts = [
            Part(world, policy, tuple(keys[start : start + EPISODES_PER_TASK]))
            for world, policy in who
            for start in starts
        ]
        done = Counter[str]()

        def arrived(number: int) -> None:
            part = parts[number]
            done[part.policy.name] += len(part.keys)
            if progress is not None:
                progress(part.policy.name, done[part.policy.name], len(keys))

        results = engine.map(self, parts, arrived)
        of_each = [results[first : first + len(starts)] for first in range(0, len(parts), len(starts))]
        return [[result for part in of_one for result in part] for of_one in of_each]

    def play_all(
        self,
        engine: Engine | None,
        policies: Sequence[Policy],
        suite: Suite,
        progress: PlayProgress | None = None,
    ) -> list[list[EpisodeResult]]:
        """`play` for several policies in the first world."""
        return self.play(engine, [(0, policy) for policy in policies], suite, progress)

    def play_one(
        self, engine: Engine | None, policy: Policy, suite: Suite, progress: Progress | None = None
    ) -> list[EpisodeResult]:
        """`play` for one policy in the first world."""
        told = None if progress is None else lambda _, done, total: progress(done, total)
        return self.play(engine, [(0, policy)], suite, told)[0]
