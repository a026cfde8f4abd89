"""How far two plays of an episode are the same, decision by decision and column by column."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from spotweave.envs.simulation import columns as col
from spotweave.envs.simulation.world import EpisodeKey
from tests.agents.inputs import CLUSTERS, JOBS, PAIRS
from tests.deploy.parity.playing import Played, by_environment, by_live_loop, config_of, policy_named

CHECKPOINT_S = 25.0
"""The largest checkpoint of the default workload takes 22 s."""
_Floats = NDArray[np.float32]
_COLUMNS = {"clusters": CLUSTERS, "jobs": JOBS, "pairs": PAIRS}


@dataclass(frozen=True)
class Comparison:
    """What was the same.

    Attributes:
        environment: the environment's play.
        live: the live loop's.
        columns: columns of the observations in which entries differed before the first decision that was
            another, and how many.
        books: what the store alone says.
        ends_in_store: when each job ended, by the store.
        caught: tasks that the safety net took off spot capacity.
        moved: tasks that changed their place while they ran.
    """

    environment: Played
    live: Played
    columns: dict[str, int]
    books: dict[str, float]
    ends_in_store: list[int]
    caught: int
    moved: int

    @property
    def metrics(self) -> dict[str, tuple[float, float]]:
        """Metrics that differ: (environment's, live loop's).

        The core is not told of decisions that leave a federated client as it is, and counts those on servers;
        all others are compared one by one.
        """
        ours, theirs = self.live.metrics, self.environment.metrics
        counted = "rounds_per_application" not in theirs
        return {
            name: (theirs[name], ours[name])
            for name in theirs
            if theirs[name] != ours[name] and (counted or name != "decisions")
        }

    @property
    def in_store(self) -> dict[str, tuple[float, float]]:
        """What the store alone, which knows nothing of the core, has otherwise: (environment's, store's)."""
        theirs = self.environment.metrics
        expected = {
            "succeeded": float(len(self.environment.ends_s)),
            "miss_tc": theirs["miss_tc"],
            "miss_batches": theirs["miss_batches"],
            "interruptions": theirs["interruptions"],
            "rented_usd": theirs["spot_usd"] + theirs["on_demand_usd"],
            "egress_usd": theirs["egress_usd"],
        }
        # Both sums of money are of whole charges, and each is rounded once when it becomes dollars.
        return {
            name: (value, self.books[name])
            for name, value in expected.items()
            if abs(value - self.books[name]) > 1e-9
        }


def compare(
    policy: str,
    seed: int,
    jobs: int,
    folder: Path,
    *,
    guards: bool = True,
    training: bool = False,
    bags: float = 0.0,
    workflows: float = 0.0,
    **rules: float,
) -> Comparison:
    """Play an episode of the test days twice."""
    config = config_of(jobs, guards=guards, training=training, bags=bags, workflows=workflows, **rules)
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
            environment=environment,
            live=played,
            columns=_columns(environment, played, same),
            books=live.books(),
            ends_in_store=live.ends_in_store(),
            caught=live.events("task.caught"),
            moved=live.events("task.moved"),
        )
    finally:
        live.store.close()


def _being_saved(theirs: _Floats, ours: _Floats) -> NDArray[np.bool_]:
    """(J, C, N_PAIR_FIELDS) what may differ of a job that runs: whether the checkpoint it writes counts.

    The world knows its end to the second; live it is estimated from the share that is done.
    """
    here = theirs[..., col.HERE] > 0
    close = np.abs(theirs[..., col.EXECUTION_S] - ours[..., col.EXECUTION_S]) <= CHECKPOINT_S
    may = np.zeros(theirs.shape, np.bool_)
    for column in (col.EXECUTION_S, col.EXECUTION_RATIO, col.FINISH_S, col.COST_USD):
        may[..., column] = here & close
    return may


def _columns(environment: Played, live: Played, steps: int) -> dict[str, int]:
    found: dict[str, int] = {}
    for k in range(steps):
        theirs, ours = environment.observations[k], live.observations[k]
        for part in ("clusters", "jobs", "pairs", "occupation", "action_mask"):
            differs = np.asarray(theirs[part]) != np.asarray(ours[part])
            if part == "pairs":
                differs = differs & ~_being_saved(np.asarray(theirs[part]), np.asarray(ours[part]))
            if not differs.any():
                continue
            columns = _COLUMNS.get(part)
            if columns is None:
                found[part] = found.get(part, 0) + int(differs.sum())
                continue
            for column, column_name in enumerate(columns):
                count = int(differs[..., column].sum())
                if count:
                    name = f"{part}.{column_name}"
                    found[name] = found.get(name, 0) + count
    return found
