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
from typing import Literal

import numpy as np

from spotweave.agents.federated.mapping.problem import Candidate, MappingProblem, RoundLimits
from spotweave.agents.federated.mapping.search import Search, Searched
from spotweave.agents.linear_program import LinearProgram
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


# Why there is no placement: which limit is in the way, and by how much.


LimitName = Literal["quota", "deadline", "budget", "deadline and budget"]


class InfeasibleMappingError(FederationError):
    """No placement keeps the limits; the message is one line.

    Attributes:
        limit: which of them is in the way.
    """

    def __init__(self, limit: LimitName, message: str) -> None:
        super().__init__(message)
        self.limit: LimitName = limit


@dataclass(frozen=True)
class Shortfall:
    """A quota and how much more of it is needed."""

    owner: str
    what: str
    limit: int
    needed: int


def explain(federation: Federation, limits: RoundLimits) -> InfeasibleMappingError:
    """The error for a federation that has no placement within the quotas and `limits`.

    Each limit is tried alone, in the order quotas, deadline, budget, then the last two together: the first
    that cannot be kept is named with the smallest value that could be.
    """
    rounds = federation.application.rounds
    fastest = _best(federation, alpha=0.0, limits=RoundLimits())
    if fastest is None:
        return InfeasibleMappingError("quota", _quota_line(federation))
    if not limits.allow(fastest.round_s, 0.0):
        return InfeasibleMappingError(
            "deadline",
            f"the deadline of {limits.seconds * rounds:g} s is too short by "
            f"{(fastest.round_s - limits.seconds) * rounds:.2f} s: the fastest placement that the quotas "
            f"allow takes {fastest.round_s:.2f} s per round, "
            f"{fastest.round_s * rounds:.2f} s for {rounds} rounds",
        )
    cheapest = _best(federation, alpha=1.0, limits=RoundLimits())
    assert cheapest is not None
    if not limits.allow(0.0, cheapest.round_usd):
        return InfeasibleMappingError(
            "budget",
            f"the budget of {limits.usd * rounds:g} USD is too small by "
            f"{(cheapest.round_usd - limits.usd) * rounds:.4f} USD: the cheapest placement that the quotas "
            f"allow costs {cheapest.round_usd:.4f} USD per round, "
            f"{cheapest.round_usd * rounds:.4f} USD for {rounds} rounds",
        )
    in_time = _best(federation, alpha=1.0, limits=RoundLimits(seconds=limits.seconds))
    in_budget = _best(federation, alpha=0.0, limits=RoundLimits(usd=limits.usd))
    assert in_time is not None
    assert in_budget is not None
    return InfeasibleMappingError(
        "deadline and budget",
        f"the deadline of {limits.seconds * rounds:g} s and the budget of {limits.usd * rounds:g} USD cannot "
        f"be kept together: within the deadline the cheapest placement costs "
        f"{in_time.round_usd * rounds:.4f} USD ({(in_time.round_usd - limits.usd) * rounds:.4f} USD more), "
        f"within the budget the fastest takes "
        f"{in_budget.round_s * rounds:.2f} s ({(in_budget.round_s - limits.seconds) * rounds:.2f} s more)",
    )


def quota_shortfalls(federation: Federation) -> tuple[Shortfall, ...]:
    """What the quotas lack for any placement: one quota if raising it alone is enough, else the least in sum.

    Of several that would be enough alone it is the one that must be raised by the smallest part. Empty if
    there is a placement.
    """
    problem = MappingProblem(federation, 0.5)
    quotas = range(len(problem.quotas))
    if _raises(problem, ()) is not None:
        return ()
    alone = []
    for k in quotas:
        raised = _raises(problem, (k,))
        if raised is not None:
            alone.append((raised[k] / max(problem.quotas[k].limit, 1), k, raised))
    raised = min(alone)[2] if alone else _raises(problem, tuple(quotas))
    if raised is None:
        return ()
    return tuple(
        Shortfall(
            problem.quotas[k].owner,
            problem.quotas[k].what,
            problem.quotas[k].limit,
            more + problem.quotas[k].limit,
        )
        for k, more in raised.items()
        if more > 0
    )


def _quota_line(federation: Federation) -> str:
    tasks = f"{len(federation.application.clients)} clients and the server"
    parts = [
        f"{item.owner} allows {item.limit} {item.what}, at least {item.needed} are needed "
        f"({item.needed - item.limit} more)"
        for item in quota_shortfalls(federation)
    ]
    return f"the quotas have no room for {tasks}: {'; '.join(parts)}"


def _best(federation: Federation, alpha: float, limits: RoundLimits) -> Outcome | None:
    found = Search(MappingProblem(federation, alpha, limits)).run().best
    return None if found is None else found.outcome


def _raises(problem: MappingProblem, raisable: tuple[int, ...]) -> dict[int, int] | None:
    """The smallest raises (parts of their limits, summed) of these quotas that make room; None if none do."""
    groups, types = np.nonzero(np.isfinite(problem.exec_s))
    servers, program = np.flatnonzero(problem.servers), LinearProgram()
    clients = program.add_columns(len(groups), high=problem.sizes[groups], whole=True)
    server = program.add_columns(len(servers), whole=True)
    parts = [1.0 / max(problem.quotas[k].limit, 1) for k in raisable]
    raises = program.add_columns(len(raisable), high=np.inf, cost=parts, whole=True)
    for g, size in enumerate(problem.sizes[:-1]):
        program.add_row(dict.fromkeys(clients[groups == g], 1.0), float(size), float(size))
    program.add_row(dict.fromkeys(server, 1.0), 1.0, 1.0)
    placed, places = np.append(clients, server), np.append(types, servers)
    for k, limit in enumerate(problem.limits):
        row = dict(zip(placed, problem.amounts[k, places], strict=True))
        more = {raises[j]: -1.0 for j in range(len(raisable)) if raisable[j] == k}
        program.add_row(row | more, high=float(limit))
    values = program.solve()
    if values is None:
        return None
    return {k: round(values[column]) for k, column in zip(raisable, raises, strict=True)}
