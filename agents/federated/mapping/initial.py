"""Initial mapping of Multi-FedLS, solved exactly: a VM for every task (Brum 2023, section 6.2).

Minimises alpha * cost / cost_max + (1 - alpha) * time / T_max of a round (Eq. 6.3 and 6.8) within deadline,
budget and quotas (Eq. 6.9-6.19). Differences from the print:

- Eq. 6.4 lacks cost_jkl in the server's term; Eq. 2 of the mapping paper (Brum 2022) has it, and so has this.
- T_max is the longest round that a placement can have, as the text says. The authors' program adds the
  largest computation, communication and aggregation time, which need not meet in one placement.
- The thesis divides deadline and budget by the rounds. Where the first round is slower, what it takes more is
  taken off first, so that the whole application keeps both. The optimum is then over the rounds that are left
  by the first round of the placement found, which may be a little too careful.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

from spotweave.agents.federated.mapping.limits import InfeasibleMappingError, explain
from spotweave.agents.federated.mapping.problem import Candidate, MappingProblem, RoundLimits
from spotweave.agents.federated.mapping.search import Search, Searched
from spotweave.envs.simulation.federations.application import FederationError
from spotweave.envs.simulation.federations.model import Federation, Outcome, Placement


@dataclass(frozen=True)
class Plan:
    """A placement and what it gives."""

    placement: Placement
    outcome: Outcome


@dataclass(frozen=True)
class InitialMapping:
    """The best placement of an application, the next best ones, and how far the best is proved."""

    best: Plan  # the optimal placement (if `proved`)
    runners_up: tuple[Plan, ...]  # the next best placements, best first; fewer if there are fewer
    gap: float  # (objective - proved lower bound) / objective of the best; 0 when proved optimal
    proved: bool  # whether the best is proved optimal
    nodes: int  # windows that the search looked into
    seconds: float  # wall time of finding and proving the best


def map_initially(
    federation: Federation,
    alpha: float = 0.5,
    deadline_s: float = math.inf,
    budget_usd: float = math.inf,
    runners_up: int = 0,
    time_limit_s: float | None = None,
    gap: float = 0.0,
) -> InitialMapping:
    """The optimal initial mapping of an application.

    Args:
        federation: application, clouds and markets.
        alpha: weight of cost against time, 0 to 1.
        deadline_s: seconds for all rounds.
        budget_usd: USD for all rounds.
        runners_up: how many of the next best placements to give as well. Placements that differ only by an
            exchange of equal clients are one.
        time_limit_s: stop proving after so long and give the best so far with its gap; again for the best and
            for each runner-up. None for no limit.
        gap: stop proving when the best is proved to be within this part of the optimum; 0 for optimal.

    Raises:
        InfeasibleMappingError: if no placement keeps the limits; it names the one in the way.
        FederationError: for arguments out of range, or none found in time.
    """
    if not 0 <= alpha <= 1:
        raise FederationError(f"alpha is {alpha}, expected 0 (only time counts) to 1 (only cost counts)")
    for what, value in (("deadline", deadline_s), ("budget", budget_usd)):
        if not value > 0:
            raise FederationError(f"the {what} is {value}, expected a number > 0")
    if not 0 <= gap < 1:
        raise FederationError(f"gap is {gap}, expected 0 (prove the optimum) up to less than 1")
    if runners_up < 0:
        raise FederationError(f"runners_up is {runners_up}, expected 0 or more")
    rounds = federation.application.rounds
    more_s = more_usd = 0.0
    while True:
        limits = RoundLimits((deadline_s - more_s) / rounds, (budget_usd - more_usd) / rounds)
        found = _solve(federation, alpha, limits, runners_up, time_limit_s, gap)
        plans = (found.best, *found.runners_up)
        late = [plan.outcome for plan in plans if not _keeps(plan.outcome, deadline_s, budget_usd)]
        if not late:
            return found
        # Rounding errors apart, each pass takes more off the limits, so that this ends.
        more_s = max(more_s, *(outcome.first_round_s - outcome.round_s for outcome in late))
        more_usd = max(more_usd, *(outcome.first_round_usd - outcome.round_usd for outcome in late))


def _keeps(outcome: Outcome, deadline_s: float, budget_usd: float) -> bool:
    return RoundLimits(deadline_s, budget_usd).allow(
        outcome.total_s * (1 - 1e-9), outcome.total_usd * (1 - 1e-9)
    )


def _solve(
    federation: Federation,
    alpha: float,
    limits: RoundLimits,
    runners_up: int,
    time_limit_s: float | None,
    gap: float,
) -> InitialMapping:
    problem = MappingProblem(federation, alpha, limits)
    began = time.monotonic()
    result = Search(problem, (), time_limit_s, gap).run()
    seconds = time.monotonic() - began
    if result.best is None:
        if math.isfinite(result.lower_bound):
            raise FederationError(f"no placement was found within {time_limit_s} s: allow more time")
        raise explain(federation, limits)
    ranked: list[Candidate] = [result.best]
    while len(ranked) <= runners_up:
        next_best: Searched = Search(problem, ranked, time_limit_s, gap).run()
        if next_best.best is None:
            break
        ranked.append(next_best.best)
    plans = tuple(Plan(item.placement, item.outcome) for item in ranked)
    return InitialMapping(plans[0], plans[1:], result.gap, result.gap <= 1e-10, result.nodes, seconds)


__all__ = ["InfeasibleMappingError", "InitialMapping", "Plan", "map_initially"]
