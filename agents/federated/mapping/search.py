"""Branch and bound over the server's region and the round's time: the exact solver of the initial mapping.

Eq. 6.3-6.19 multiply the clients' choice by the server's (6.5, 6.17) and by the round's time (6.4). What
these factors depend on is branched on, which leaves a linear program (`quotas`):

- Servers of one region with the same aggregation time see the same round times; they are a family.
- The optimal time of a round is the time of some client on some type, so it is one of finitely many. A node
  is one family and a window of such times. Its bound charges the shortest of them and allows the types that
  keep the longest. Halving windows closes the difference.
- Without a quota in the way every task takes its cheapest allowed type: no solver is needed. Otherwise HiGHS
  solves the relaxation, whose prices of the quotas (Lagrange multipliers) sharpen the bounds of all other
  nodes, and in narrow windows the integer program.

Best bound first; when no open node can be better than the best placement found, that one is proved optimal.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from spotweave.agents.federated.mapping.problem import (
    TOLERANCE,
    Candidate,
    Costs,
    Counts,
    MappingProblem,
    QuotaProgram,
)
from spotweave.envs.simulation.series import Bools, Floats

_REMEMBERED = 6  # Lagrange multipliers kept; each costs a pass over the types per node


@dataclass(frozen=True)
class Searched:
    """What a search ended with."""

    # the best placement; None if none keeps the limits (proved only if `lower_bound` is inf)
    best: Candidate | None
    lower_bound: float  # no placement has a smaller objective
    nodes: int  # windows that were looked into

    @property
    def gap(self) -> float:
        """(objective - lower bound) / objective: 0 means proved optimal."""
        if self.best is None:
            return 0.0 if np.isinf(self.lower_bound) else float("inf")
        objective = self.best.outcome.objective
        return max(0.0, objective - self.lower_bound) / objective if objective > 0 else 0.0


@dataclass(frozen=True)
class _Family:
    """Servers that see the same times."""

    region: int  # theirs
    aggregation_s: float  # theirs
    servers: Bools  # [V] which types they are
    base_s: Floats  # [G, V] seconds of a client's round but for aggregation
    times_s: Floats  # [times] what a round can last, but for aggregation, within the deadline


class _Node(NamedTuple):
    """A family and a window of its times. Ordered by its bounds."""

    objective: float
    usd: float
    number: int
    family: _Family
    first: int
    last: int


class Search:
    """One search.

    Args:
        problem: what is mapped.
        excluded: placements that may not be the answer, for runners-up.
        time_limit_s: stop proving after so long; what was found by then is returned with its bound.
        gap: stop proving when the best is proved to be within this part of the optimum.
    """

    def __init__(
        self,
        problem: MappingProblem,
        excluded: Collection[Candidate] = (),
        time_limit_s: float | None = None,
        gap: float = 0.0,
    ) -> None:
        self._problem = problem
        self._federation = problem.federation
        self._gap = gap
        # Types that are not offered are never allowed; inf * 0 s would be no number.
        self._client_rates, self._server_rates = (
            np.where(np.isfinite(rates), rates, 0.0)
            for rates in (problem.federation.client_usd_s, problem.federation.server_usd_s)
        )
        self._excluded = [candidate.counts for candidate in excluded]
        self._excluded_keys = {counts.tobytes() for counts in self._excluded}
        self._until = None if time_limit_s is None else time.monotonic() + time_limit_s
        self._multipliers: list[Floats] = []
        self._heap: list[_Node] = []
        self._numbers = 0
        self._best: Candidate | None = None

    def run(self) -> Searched:
        """Search until the best placement is proved, or time is up."""
        for family in self._families():
            if len(family.times_s):
                self._open(family, 0, len(family.times_s) - 1)
        nodes = 0
        unproved = np.inf
        while self._heap:
            node = heapq.heappop(self._heap)
            if self._best is not None and node.objective > self._best.outcome.objective + TOLERANCE:
                break
            if self._hopeless(node.objective, node.usd):
                continue
            late = self._until is not None and time.monotonic() > self._until
            if late or self._close_enough(node.objective):
                unproved = min(unproved, node.objective)
                break
            nodes += 1
            unproved = min(unproved, self._look_into(node))
        best = np.inf if self._best is None else self._best.outcome.objective
        return Searched(self._best, min(unproved, best), nodes)

    def _families(self) -> list[_Family]:
        problem, federation = self._problem, self._federation
        small = (problem.amounts <= problem.limits[:, None]).all(axis=0)
        families = []
        for region in np.unique(federation.region[problem.servers]).tolist():
            base = problem.exec_s + federation.comm_s[federation.region, region]
            shortest = base.min(axis=1).max()
            times = np.unique(base[(base >= shortest) & np.isfinite(base)])
            here = problem.servers & small & (federation.region == region)
            for aggregation_s in np.unique(federation.aggregation_s[here]).tolist():
                longest = problem.round_limits.seconds * (1 + 1e-12) - aggregation_s
                kept = times[: np.searchsorted(times, longest, side="right")]
                servers = here & (federation.aggregation_s == aggregation_s)
                families.append(_Family(region, aggregation_s, servers, base, kept))
        return families

    def _open(self, family: _Family, first: int, last: int, at_least: float = 0.0) -> None:
        """Put a window on the heap with its bound, unless it can be ruled out at once."""
        seconds, costs, allowed = self._window(family, first, last)
        usd = self._bound(costs, allowed)
        objective = max(at_least, self._problem.objective(usd, seconds))
        if not self._promising(objective, usd):
            return
        self._numbers += 1
        heapq.heappush(self._heap, _Node(objective, usd, self._numbers, family, first, last))

    def _window(self, family: _Family, first: int, last: int) -> tuple[float, Costs, Bools]:
        """Shortest time of the window; costs of a task then; [G + 1, V] types within its longest time."""
        federation = self._federation
        seconds = float(family.times_s[first] + family.aggregation_s)
        messages = federation.message_usd[federation.provider, federation.region_provider[family.region]]
        costs = Costs(self._client_rates * seconds + messages, self._server_rates * seconds)
        return seconds, costs, np.vstack([family.base_s <= family.times_s[last], family.servers])

    def _bound(self, costs: Costs, allowed: Bools) -> float:
        """A lower bound on the USD of a round: the best of all known prices of the quotas, and of none."""
        problem = self._problem
        best = -np.inf
        for prices in (np.zeros(len(problem.quotas)), *self._multipliers):
            priced = prices @ problem.amounts
            rows = np.where(allowed[:-1], costs.client + priced, np.inf).min(axis=1)
            server = np.where(allowed[-1], costs.server + priced, np.inf).min()
            best = max(best, float(problem.sizes[:-1] @ rows + server - prices @ problem.limits))
        return best

    def _promising(self, objective: float, usd: float) -> bool:
        return usd <= self._problem.round_limits.usd * (1 + 1e-12) and not self._hopeless(objective, usd)

    def _hopeless(self, objective: float, usd: float) -> bool:
        """Whether nothing with these bounds is better than the best so far (of equals, the cheaper is)."""
        if self._best is None:
            return False
        best = self._best.outcome
        if objective > best.objective + TOLERANCE:
            return True
        return objective > best.objective - TOLERANCE and usd >= best.round_usd * (1 - 1e-12)

    def _close_enough(self, lower_bound: float) -> bool:
        if self._best is None or not self._gap:
            return False
        return lower_bound >= self._best.outcome.objective * (1 - self._gap)

    def _look_into(self, node: _Node) -> float:
        """Take the best placement, split the window. Gives the bound of what stays unproved (inf: none)."""
        problem, family = self._problem, node.family
        seconds, costs, allowed = self._window(family, node.first, node.last)
        usd = self._bound(costs, allowed)
        objective = max(node.objective, problem.objective(usd, seconds))
        if not self._promising(objective, usd):
            return np.inf
        single = node.first == node.last
        counts = self._cheapest(family, costs, allowed)
        solved = self._offer(counts)
        if not solved and (single or not problem.fits(counts)):
            program = QuotaProgram(problem, costs, allowed, self._excluded)
            relaxed = program.relaxed()
            if relaxed is None:
                return np.inf
            if relaxed.multipliers.any():
                self._multipliers = [relaxed.multipliers, *self._multipliers][:_REMEMBERED]
                usd = max(usd, self._bound(costs, allowed))
                objective = max(objective, problem.objective(usd, seconds))
            if not self._promising(objective, usd):
                return np.inf
            if relaxed.whole is not None:
                solved = self._offer(relaxed.whole)
            else:
                rounded = program.rounded(relaxed)
                if rounded is not None:
                    self._offer(rounded)
            narrow = single or self._narrow(node, seconds, usd, objective)
            if narrow and not solved and self._promising(objective, usd):
                left_s = None if self._until is None else self._until - time.monotonic()
                exact = program.exact(self._cutoff_usd(seconds), self._gap / 2, left_s)
                if exact.counts is not None:
                    self._offer(exact.counts)
                elif exact.proved:
                    return np.inf
                usd = max(usd, exact.usd)
                objective = max(objective, problem.objective(usd, seconds))
                # Within the gap that was asked for is not proved: what is left stays in the bound.
                solved = exact.proved and not self._gap
        if not self._promising(objective, usd):
            return np.inf
        if single:
            return np.inf if solved else objective
        middle = (node.first + node.last) // 2
        self._open(family, node.first, middle, objective)
        self._open(family, middle + 1, node.last, objective)
        return np.inf

    def _narrow(self, node: _Node, seconds: float, usd: float, objective: float) -> bool:
        """Whether wholeness hides more of the optimum than the window's width: halving is no use then."""
        if self._best is None:
            return False
        times = node.family.times_s
        longer = float(times[node.last] - times[node.first])
        wider = self._problem.objective(
            usd * (1 + longer / seconds) if seconds > 0 else usd, seconds + longer
        )
        return wider - objective < 0.5 * (self._best.outcome.objective - objective)

    def _cutoff_usd(self, seconds: float) -> float:
        """USD of a round of this many seconds from which on it is no better than the best so far."""
        if self._best is None or self._problem.alpha == 0:
            return np.inf
        federation, alpha = self._federation, self._problem.alpha
        left = self._best.outcome.objective + 10 * TOLERANCE - (1 - alpha) * seconds / federation.t_max
        return float(left * federation.cost_max / alpha)

    def _cheapest(self, family: _Family, costs: Costs, allowed: Bools) -> Counts:
        """Every task on its cheapest type; a client, among equally cheap ones, where it ends first."""
        problem = self._problem
        priced = np.where(allowed[:-1], costs.client, np.inf)
        cheapest = priced == priced.min(axis=1, keepdims=True)
        chosen = np.where(cheapest, family.base_s, np.inf).argmin(axis=1)
        server = np.where(allowed[-1], costs.server, np.inf).argmin()
        counts = np.zeros(allowed.shape, np.int64)
        counts[np.arange(len(counts)), [*chosen, server]] = problem.sizes
        return counts

    def _offer(self, counts: Counts) -> bool:
        """Make a placement the best so far if it is; whether the quotas and `excluded` allow it."""
        problem = self._problem
        if counts.tobytes() in self._excluded_keys or not problem.fits(counts):
            return False
        placement = problem.placement(counts)
        outcome = self._federation.outcome(placement, problem.alpha)
        if problem.round_limits.allow(outcome.round_s, outcome.round_usd):
            candidate = Candidate(counts, placement, outcome)
            if candidate.better_than(self._best):
                self._best = candidate
        return True
