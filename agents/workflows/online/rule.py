"""What the rules for workflows share: one step or one idle instance is asked about at a time."""

from __future__ import annotations

from abc import abstractmethod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from agents.policy import Policy
from envs.simulation import columns as col
from envs.simulation.snapshot import Observation

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
HOUR_S = 3600.0


class Seen(NamedTuple):
    """n questions at C places, as float64.

    Attributes:
        valid: (n, C + 1), "none for now" last.
        clusters: (n, C, columns).
        job: (n, columns).
        pair: (n, C, columns).
        idle: (n,) whether an idle instance is asked about.
    """

    valid: Bools
    clusters: Floats
    job: Floats
    pair: Floats
    idle: Bools


def seen(observations: Observation) -> Seen:
    """The parts of observations that rules read."""
    job = observations["jobs"][:, 0].astype(np.float64)
    return Seen(
        observations["action_mask"].astype(bool),
        observations["clusters"].astype(np.float64),
        job,
        observations["pairs"][:, 0].astype(np.float64),
        job[:, col.IDLE] > 0,
    )


def idle_usd(shown: Seen) -> tuple[Floats, Floats]:
    """((n, C) USD for keeping an idle instance until it is wanted, (n,) for launching one then instead)."""
    usd_s = shown.clusters[..., col.PRICE_USD_HOUR] / HOUR_S
    here = shown.pair[..., col.HERE] > 0
    launch_usd = np.where(here, usd_s * shown.clusters[..., col.LAUNCH_S], 0.0).sum(1)
    return usd_s * shown.job[:, [col.ROUND_LEFT_S]], launch_usd


class WorkflowRule(Policy):
    """A rule that ranks the places for a step; an idle instance is kept if that costs less than a launch."""

    @abstractmethod
    def ranking(self, shown: Seen) -> Floats:
        """(n, C + 1): the valid answer with the least value is taken."""

    def act_batch(self, observations: Observation, lanes: NDArray[np.int64]) -> NDArray[np.int64]:
        """(n,) flat actions.

        Raises:
            ValueError: if an observation has no valid action.
        """
        shown = seen(observations)
        if not shown.valid.any(1).all():
            row = int(np.argmin(shown.valid.any(1)))
            raise ValueError(f"rule {self.name}: observation {row} offers no valid action, expected a step")
        keep_usd, launch_usd = idle_usd(shown)
        kept = np.concatenate([keep_usd, launch_usd[:, None]], 1)
        value = np.where(shown.idle[:, None], kept, self.ranking(shown))
        return np.asarray(np.where(shown.valid, value, np.inf).argmin(1), np.int64)
