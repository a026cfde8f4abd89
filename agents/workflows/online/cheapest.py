"""Greedy: each step at once where it costs least."""

from __future__ import annotations

import numpy as np

from agents.workflows.online.rule import Floats, Seen, WorkflowRule
from envs.simulation import columns as col


class CheapestPlace(WorkflowRule):
    """Takes the place with the least price of launch, files and run, the sooner of equals; never waits."""

    name = "cheapest_place"

    def ranking(self, shown: Seen) -> Floats:
        """USD; "none" only where nothing else is valid."""
        usd = shown.pair[..., col.COST_USD] + 1e-9 * shown.pair[..., col.FINISH_S]
        return np.concatenate([usd, np.full((len(usd), 1), 1e11)], 1)
