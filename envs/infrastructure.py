"""Infrastructures drawn at random: any number of clusters under the load that Liu 2022 puts on its five."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from spotweave.envs.simulation.slices.config import Chapter4Config, SliceWorldConfig
from spotweave.envs.simulation.slices.world import SliceWorld
from spotweave.envs.simulation.world import WorldError, at_least

PAPER_POWER = 7862.5
"""Executors of chapter 5's clusters, each counted with hetero factor / 80."""
SMALLEST = 600
LARGEST = 2400
VALIDATION_MEMBERS = 5
EXECUTORS = 24_000
"""Many clusters are small ones: their sizes stay below EXECUTORS / C (but may reach 1.5 * SMALLEST)."""


def draw_infrastructure(base: SliceWorldConfig, n_clusters: int, seed: int) -> SliceWorldConfig:
    """`base` with clusters drawn at random, and arrivals and number of jobs scaled to their power.

    Capacities are multiples of 100 in [600, 2400] (fewer for many clusters), hetero factors are spread over
    [60, 100], two clusters in five are elastic. The mean interval of the Uniform pattern keeps executors
    asked for per slice, and the number of jobs the length of the episode, in proportion to the paper's.

    Args:
        base: everything else: workload, elasticity, value.
        n_clusters: C, at least 1.
        seed: of the draw, which is a function of (C, seed).

    Raises:
        WorldError: if C < 1, the seed is negative, or `base` has another arrival pattern than uniform.
    """
    if n_clusters < 1 or seed < 0:
        raise WorldError(f"expected at least 1 cluster and a seed >= 0, got {n_clusters} and {seed}")
    arrivals = base.workload.arrivals
    if arrivals.pattern != "uniform":
        raise WorldError(f"drawn infrastructures need uniform arrivals, got {arrivals.pattern!r}")
    rng = np.random.default_rng((n_clusters, seed))
    largest = min(LARGEST, max(1.5 * SMALLEST, EXECUTORS / n_clusters))
    capacities = 100 * rng.integers(SMALLEST // 100, int(largest) // 100 + 1, n_clusters)
    spread = 60.0 + 40.0 * (np.arange(n_clusters) + rng.random(n_clusters)) / n_clusters
    factors = np.round(rng.permutation(spread))
    elastic = rng.permutation(np.arange(n_clusters) < round(0.4 * n_clusters))
    power = float((capacities * factors).sum() / 80.0) / PAPER_POWER
    # The load of `base` relative to the paper's stays: a base with b = 40 is as relaxed here as it is there.
    interval = (arrivals.a + arrivals.b) / 2.0 / power
    return dataclasses.replace(
        base,
        capacities=capacities.tolist(),
        hetero_factors=factors.tolist(),
        elastic=elastic.tolist(),
        workload=dataclasses.replace(
            base.workload,
            arrivals=dataclasses.replace(arrivals, a=1, b=max(1, round(2.0 * interval - 1.0))),
        ),
    )


@dataclass
class AnyClustersConfig:
    """One infrastructure drawn at random, or many of them to train one policy for all."""

    # number of clusters; 0: train on `members` infrastructures of `smallest` to `largest` clusters, validate
    # on others
    clusters: int = 0
    seed: int = 0  # of the infrastructure, or of all members
    smallest: int = 3  # fewest clusters of a member
    largest: int = 50  # most clusters of a member
    members: int = 16  # infrastructures to train on
    # everything else: workload (arrivals are scaled), elasticity, value; its clusters are not used
    world: SliceWorldConfig = field(default_factory=SliceWorldConfig)

    def check(self) -> None:
        """Refuse numbers that make no sense. Raises WorldError naming the key."""
        at_least(self, "env", 0, "clusters", "seed")
        at_least(self, "env", 1, "members")
        if not 1 <= self.smallest <= self.largest:
            raise WorldError(f"expected 1 <= smallest <= largest, got {self.smallest} and {self.largest}")

    def drawn(self) -> SliceWorldConfig:
        """The infrastructure that `clusters` and `seed` name. Raises WorldError if `clusters` is 0."""
        self.check()
        if self.clusters == 0:
            raise WorldError(
                "clusters is 0, which stands for many infrastructures to train on: give a number to play "
                "in one"
            )
        return draw_infrastructure(self.world, self.clusters, self.seed)

    def members_of(self, split: Literal["train", "validation"]) -> list[AnyClustersConfig]:
        """The infrastructures of a split, from few to many clusters; no seed is in both.

        `clusters` > 0 stands for itself in both.
        """
        self.check()
        if self.clusters > 0:
            return [self]
        count = self.members if split == "train" else VALIDATION_MEMBERS
        sizes = np.geomspace(self.smallest, self.largest, count).round().astype(int).tolist()
        first = 2_000_000 * self.seed + (0 if split == "train" else 1_000_000)
        return [
            dataclasses.replace(self, clusters=size, seed=first + number) for number, size in enumerate(sizes)
        ]


def build_drawn(config: AnyClustersConfig, n_lanes: int = 1, record: bool = False) -> SliceWorld:
    """A world on the infrastructure that `config` names. Raises WorldError if it names none."""
    return SliceWorld(config.drawn(), n_lanes, record)


def build_chapter4(config: Chapter4Config, n_lanes: int = 1, record: bool = False) -> SliceWorld:
    """The homogeneous world of chapter 4 with the workload that `config` names."""
    return SliceWorld(config.world(), n_lanes, record)
