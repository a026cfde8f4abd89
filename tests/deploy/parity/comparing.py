"""How far two plays of an episode are the same, decision by decision and column by column."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from envs.simulation.snapshot import ClusterField, JobField, PairField
from envs.simulation.world import EpisodeKey
from tests.deploy.parity.playing import Played, by_environment, by_live_loop, config_of, policy_named

_COLUMNS = {"clusters": ClusterField, "jobs": JobField, "pairs": PairField}


@dataclass(frozen=True)
class Comparison:
    """What was the same.

    Attributes:
        policy: its name.
        seed: of the episode.
        environment: the environment's play.
        live: the live loop's.
        same_steps: decisions that were the same before the first that was not: (time, job, choice).
        columns: columns of the observations in which entries differed at one of those, and how many.
        books: what the store alone says.
        ends_in_store: when each job ended, by the store.
        passes: of the loop.
    """

    policy: str
    seed: int
    environment: Played
    live: Played
    same_steps: int
    columns: dict[str, int]
    books: dict[str, float]
    ends_in_store: list[int]
    passes: int

    @property
    def metrics(self) -> dict[str, tuple[float, float]]:
        """Metrics that differ: (environment's, live loop's)."""
        ours, theirs = self.live.metrics, self.environment.metrics
        return {name: (theirs[name], ours[name]) for name in theirs if theirs[name] != ours[name]}


def compare(policy: str, seed: int, jobs: int, folder: Path) -> Comparison:
    """Play an episode of the test days twice."""
    config = config_of(jobs)
    key = EpisodeKey(seed, "test", 0)
    environment = by_environment(policy_named(policy, config), config, key)
    played, live = by_live_loop(policy, config, key, folder)
    same = 0
    for ours, theirs in zip(played.steps, environment.steps, strict=False):
        if ours != theirs:
            break
        same += 1
    try:
        return Comparison(
            policy=policy,
            seed=seed,
            environment=environment,
            live=played,
            same_steps=same,
            columns=_columns(environment, played, same),
            books=live.books(),
            ends_in_store=live.ends_in_store(),
            passes=live.scheduler.passes,
        )
    finally:
        live.store.close()


def _columns(environment: Played, live: Played, steps: int) -> dict[str, int]:
    found: dict[str, int] = {}
    for k in range(steps):
        theirs, ours = environment.observations[k], live.observations[k]
        for part in ("clusters", "jobs", "pairs", "occupation", "action_mask"):
            differs = np.asarray(theirs[part]) != np.asarray(ours[part])
            if not differs.any():
                continue
            columns = _COLUMNS.get(part)
            if columns is None:
                found[part] = found.get(part, 0) + int(differs.sum())
                continue
            for column in columns:
                count = int(differs[..., column].sum())
                if count:
                    name = f"{part}.{column.name}"
                    found[name] = found.get(name, 0) + count
    return found
