"""Why there is no placement: which limit is in the way, and by how much."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from spotweave.agents.federated.mapping.problem import MappingProblem, RoundLimits
from spotweave.agents.federated.mapping.search import Search
from spotweave.agents.linear_program import LinearProgram
from spotweave.envs.simulation.federations.application import FederationError
from spotweave.envs.simulation.federations.model import Federation, Outcome

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
