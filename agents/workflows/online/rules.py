"""The rules for workflows (names: `agents.named`)."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np

from agents.workflows.online.cost import Seen, WorkflowParameters, WorkflowRule, weigh
from envs.simulation import columns as col
from envs.simulation.series import Bools, Floats

# Greedy: each step at once where it costs least.


class CheapestPlace(WorkflowRule):
    """Takes the place with the least price of launch, files and run, the sooner of equals; never waits."""

    name = "cheapest_place"

    def ranking(self, shown: Seen) -> Floats:
        """USD; "none" only where nothing else is valid."""
        usd = shown.pair[..., col.COST_USD] + 1e-9 * shown.pair[..., col.FINISH_S]
        return np.concatenate([usd, np.full((len(usd), 1), 1e11)], 1)


# HEFT (Topcuoglu, Hariri and Wu 2002) carried out step by step: on demand, and on spot.
#
# Steps are decided in order of upward rank, and each goes where it ends first, as published. A step is
# placed only once it is ready, given the current state, so interrupted and late steps are replanned.

_NOT_WANTED = 1e12
_WAIT = 1e11


class _EarliestFinish(WorkflowRule):
    """Earliest finish among the wanted places, then the cheapest; other places only if it must."""

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


# The rule `workflow_cost`: the answer with the lowest expected cost.


class WorkflowCost(WorkflowRule):
    """Takes the choice with the lowest expected cost (see `agents.workflows.online.cost`)."""

    name = "workflow_cost"

    def __init__(self, parameters: WorkflowParameters | None = None) -> None:
        self.parameters = parameters if parameters is not None else WorkflowParameters()

    def ranking(self, shown: Seen) -> Floats:
        """Expected USD."""
        return weigh(shown, self.parameters).cost
