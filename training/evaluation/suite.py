"""Suites: frozen, hashed sets of episodes on which policies are measured."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from dataclasses import dataclass

from envs.simulation.streams import SPLITS, Split
from envs.simulation.world import BatchWorld, EpisodeKey


@dataclass(frozen=True)
class Suite:
    """A named set of episodes: numbers 0 .. episodes-1 of a split under one published seed.

    Attributes:
        name: what reports print.
        split: "train", "validation" or "test"; splits share neither seeds nor trace time.
        seed: published seed, >= 0.
        episodes: how many, >= 1.
    """

    name: str
    split: Split
    seed: int
    episodes: int

    def __post_init__(self) -> None:
        if self.split not in SPLITS:
            raise ValueError(f"unknown split {self.split!r}: expected one of {', '.join(SPLITS)}")
        if self.seed < 0:
            raise ValueError(f"the seed of a suite must be >= 0, got {self.seed}")
        if self.episodes < 1:
            raise ValueError(f"a suite needs at least 1 episode, got episodes={self.episodes}")

    def episode_keys(self) -> list[EpisodeKey]:
        """The episodes, in order."""
        return [EpisodeKey(self.seed, self.split, index) for index in range(self.episodes)]


SUITES: dict[str, Suite] = {
    suite.name: suite
    for suite in (
        Suite("train", "train", seed=1001, episodes=30),
        Suite("validation", "validation", seed=2002, episodes=30),
        Suite("test", "test", seed=3003, episodes=50),
    )
}
"""The published suites. Never choose a seed, a checkpoint or a parameter on "test"."""


def find_suite(name: str, episodes: int | None = None) -> Suite:
    """A published suite, or its first `episodes` episodes (more than published simply continue the numbers).

    Raises:
        ValueError: for an unknown name or fewer than 1 episode.
    """
    if name not in SUITES:
        raise ValueError(f"unknown suite {name!r}: expected one of {', '.join(SUITES)}")
    suite = SUITES[name]
    return suite if episodes is None else dataclasses.replace(suite, episodes=episodes)


def suite_hash(world: BatchWorld, suite: Suite) -> str:
    """SHA-256 over the world's facts and everything random in every episode of the suite.

    Two reports with the same hash measured on the same workload, prices, availability and revocations; the
    suite's name does not enter.
    """
    digest = hashlib.sha256()
    facts = dataclasses.asdict(world.spec)
    del facts["forecast"]  # what is shown of an episode changes nothing in it
    digest.update(json.dumps(facts, sort_keys=True, separators=(",", ":")).encode())
    for key in suite.episode_keys():
        digest.update(f"\n{key.split}/{key.seed}/{key.index}:{world.fingerprint(key)}".encode())
    return digest.hexdigest()
