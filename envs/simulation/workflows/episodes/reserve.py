"""When spot capacity may still be tried: the time that on-demand instances need for what is left.

On-demand instances are not limited here, so that each step can have a new one. What a step needs at most is
a launch, its files from another region and the longest run; spot is tried only where all of that, and what
comes after it, fits behind the moment at which it would be lost latest. From a start that leaves so much
time, no sequence of allowed answers misses the deadline. The idea is HADS' (Teylo 2021, section 6.2.5).
"""

from __future__ import annotations

import numpy as np

from envs.simulation.workflows.episodes.case import HOUR_S, Case, Floats
from envs.simulation.workflows.model import WorkflowError


class Reserve:
    """What on demand needs at most.

    Args:
        case: the episode.

    Raises:
        WorkflowError: for a step that only spot offers may run.

    Attributes:
        need_s: [N] from the moment a step is ready until it has ended.
        tail_s: [N] from a step's end until all that waits for it has ended.
    """

    def __init__(self, case: Case) -> None:
        conditions = case.conditions
        longest = 1 + conditions.runtime_error
        # Wherever the steps before it ran; given files lie in their regions from the start.
        near = case.given_s[:, case.region] == 0.0
        taken_s = conditions.latency_s + case.gb / conditions.gb_s
        moving_s = [np.where(near[k], 0.0, taken_s[k, None]).max(0, initial=0.0) for k in case.reads]
        whole_s = case.launch_s + np.stack(moving_s) + case.problem.run_s * longest
        rented_s = np.where(case.spot | case.owned, np.inf, whole_s).min(1)
        owned_s = np.where(case.owned, whole_s, np.inf).min(1)
        # Where private data keep a step on an owned cluster, its wait for an executor is not covered.
        self.need_s: Floats = np.where(np.isfinite(rented_s), rented_s, owned_s)
        if not np.isfinite(self.need_s).all():
            name = case.workflow.steps[int(np.argmax(self.need_s))].name
            raise WorkflowError(
                f"step {name!r} may run on spot offers only: expected an owned cluster or on demand too"
            )
        self.tail_s: Floats = np.zeros(len(self.need_s))
        for step in case.problem.topological[::-1]:
            following = case.after[step]
            self.tail_s[step] = max((self.need_s[one] + self.tail_s[one] for one in following), default=0.0)

    @property
    def least_s(self) -> float:
        """The earliest deadline that is certainly kept."""
        return float((self.need_s + self.tail_s).max())


def on_demand_s(case: Case) -> float:
    """How long the workflow takes if no step waits for an instance, on demand, launched once, files near.

    HEFT on an unlimited number of on-demand instances comes close to it.
    """
    rented = np.where(case.spot | case.owned, np.inf, case.problem.run_s).min(1)
    run_s = np.where(np.isfinite(rented), rented, case.problem.run_s.min(1))
    rank = run_s.copy()
    for step in case.problem.topological[::-1]:
        rank[step] += max((rank[one] for one in case.after[step]), default=0.0)
    launch_s = case.launch_s[~case.spot & ~case.owned].min(initial=np.inf)
    return float(rank.max()) + (float(launch_s) if np.isfinite(launch_s) else 0.0)


def on_demand_usd(case: Case) -> float:
    """What the work costs on demand where that is cheapest, without launches; private data left out."""
    offers = [c for c, offer in enumerate(case.offers) if offer.market == "on_demand"]
    usd_s = [case.quotes[c].price_usd_hour(0.0) / case.speed[c] for c in offers]
    standard_s = (case.problem.run_s * case.speed).min(1)
    return float(standard_s.sum() * min(usd_s) / HOUR_S)
