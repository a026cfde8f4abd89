"""HEFT (Topcuoglu, Hariri and Wu 2002) carried out step by step: on demand, and on spot.

Steps are decided in order of upward rank, and each goes where it ends first, as published. A step is placed
only once it is ready, given the current state, so interrupted and late steps are replanned.
"""

from __future__ import annotations

from abc import abstractmethod

import numpy as np

from agents.workflows.online.rule import Bools, Floats, Seen, WorkflowRule
from envs.simulation import columns as col

_NOT_WANTED = 1e12
_WAIT = 1e11


class _EarliestFinish(WorkflowRule):
    """Where the step ends first among the wanted places, the cheaper of equals; others only if it must."""

    def ranking(self, shown: Seen) -> Floats:
        """Expected seconds until the step ends; with "none" behind all wanted places."""
        end_s = shown.pair[..., col.FINISH_S] + 1e-3 * shown.pair[..., col.COST_USD]
        end_s = end_s + np.where(self.wanted(shown), 0.0, _NOT_WANTED)
        return np.concatenate([end_s, np.full((len(end_s), 1), _WAIT)], 1)

    @abstractmethod
    def wanted(self, shown: Seen) -> Bools:
        """(n, C) places that it uses."""


class HeftOnDemand(_EarliestFinish):
    """On owned clusters and on-demand instances only."""

    name = "heft_on_demand"

    def wanted(self, shown: Seen) -> Bools:
        """Places that the provider cannot interrupt."""
        return np.asarray(shown.clusters[..., col.IS_SPOT] == 0)


class HeftSpot(_EarliestFinish):
    """On owned clusters and spot; on demand once there is no more time for spot."""

    name = "heft_spot"

    def wanted(self, shown: Seen) -> Bools:
        """Spot and owned clusters."""
        spot, owned = shown.clusters[..., col.IS_SPOT] > 0, shown.clusters[..., col.PROVIDER] == 0
        return np.asarray(spot | owned)
