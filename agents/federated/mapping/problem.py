"""The initial mapping's data with its symmetry removed: equal clients are one group, a plan counts them.

Fifty equal clients on three VM types can be permuted in astronomically many ways that are all the same plan.
Counting how many of a group are on a type leaves one. The server is the last row of such counts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import highspy
import numpy as np
from numpy.typing import NDArray

from spotweave.agents.linear_program import LinearProgram, solver_of
from spotweave.envs.simulation.federations.model import Federation, Outcome, Placement
from spotweave.envs.simulation.series import Bools, Floats, Ints

TOLERANCE = 1e-11  # objectives (which are about 0 to 1) that differ by less are equal

Counts = Ints  # [G + 1, V] how many of each group are on each type; the last row is the server's


@dataclass(frozen=True)
class Quota:
    """A limit on what runs at once (Eq. 6.13-6.16)."""

    owner: str  # e.g. "provider 'GCP'"
    what: str  # "GPUs" or "vCPUs"
    limit: int  # how many may be rented
    amounts: Floats  # [V] how many one VM of each type counts


@dataclass(frozen=True)
class RoundLimits:
    """Deadline and budget of one round (T_round, B_round); infinite for none."""

    seconds: float = math.inf
    usd: float = math.inf

    def allow(self, round_s: float, round_usd: float) -> bool:
        """Whether a round of this many seconds and USD keeps both, but for rounding errors."""
        return round_s <= self.seconds * (1 + 1e-12) and round_usd <= self.usd * (1 + 1e-12)


class MappingProblem:
    """One federation, one weight, the limits of a round. G groups of equal clients, V types, Q quotas.

    Attributes:
        groups: clients of each group.
        sizes: [G + 1] how many they are, and 1 for the server.
        exec_s: [G, V] seconds of a round's computation; inf where they cannot run.
        quotas: those that are finite.
        amounts: [Q, V] what one VM of each type takes of each quota.
        limits: [Q].
        servers: [V] types that the server can be on.
    """

    def __init__(self, federation: Federation, alpha: float, limits: RoundLimits | None = None) -> None:
        self.federation = federation
        self.alpha = alpha
        self.round_limits = limits or RoundLimits()
        members: dict[tuple[str, float], list[int]] = {}
        for k, client in enumerate(federation.application.clients):
            members.setdefault((client.data_region, client.baseline_s), []).append(k)
        self.groups = tuple(tuple(group) for group in members.values())
        self.sizes = np.array([*(len(group) for group in self.groups), 1])
        self.exec_s = federation.exec_s[[group[0] for group in self.groups]]
        self.quotas = _quotas(federation)
        types = len(federation.clouds.vm_types)
        self.amounts = np.array([quota.amounts for quota in self.quotas]).reshape(len(self.quotas), types)
        self.limits = np.array([quota.limit for quota in self.quotas], float)
        self.servers = np.isfinite(federation.server_usd_s)

    def objective(self, usd: float, seconds: float) -> float:
        """Eq. 6.3 with both parts normalised by Eq. 6.8."""
        federation = self.federation
        return float(self.alpha * usd / federation.cost_max + (1 - self.alpha) * seconds / federation.t_max)

    def fits(self, counts: Counts) -> bool:
        """Whether the counts keep all quotas."""
        return bool((self.amounts @ counts.sum(axis=0) <= self.limits).all())

    def placement(self, counts: Counts) -> Placement:
        """The placement in which each group's first clients are on its first types."""
        chosen = [0] * len(self.federation.application.clients)
        for group, row in zip(self.groups, counts, strict=False):
            types = np.repeat(np.arange(len(row)), row)
            for client, vm_type in zip(group, types, strict=True):
                chosen[client] = int(vm_type)
        return Placement(int(counts[-1].argmax()), tuple(chosen))

    @cached_property
    def dominators(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """For clients and for the server: [V, V] 1 where the second type can replace the first.

        It is in the same region, so that messages cost and last the same, is no dearer and takes no more of
        any quota; whether it is fast enough depends on the client. Of equal types the first replaces all.
        """
        federation = self.federation
        same = federation.region[:, None] == federation.region
        for amounts in self.amounts:
            same &= amounts[None, :] <= amounts[:, None]
        n = len(same)
        first = np.arange(n)[None, :] < np.arange(n)[:, None]
        tables = []
        for rate in (federation.client_usd_s, federation.server_usd_s):
            better = same & (rate[None, :] <= rate[:, None])
            tables.append(np.asarray(better & (~(better & better.T) | first), np.float32))
        return tables[0], tables[1]


def _quotas(federation: Federation) -> tuple[Quota, ...]:
    clouds = federation.clouds
    owners: list[tuple[str, int | None, int | None, Sequence[bool]]] = [
        (f"provider {item.name!r}", item.max_gpus, item.max_vcpus, (federation.provider == k).tolist())
        for k, item in enumerate(clouds.providers)
    ]
    owners += [
        (f"region {item.name!r}", item.max_gpus, item.max_vcpus, (federation.region == k).tolist())
        for k, item in enumerate(clouds.regions)
    ]
    quotas = []
    for owner, max_gpus, max_vcpus, inside in owners:
        for what, limit, each in (
            ("GPUs", max_gpus, federation.gpus),
            ("vCPUs", max_vcpus, federation.vcpus),
        ):
            if limit is not None:
                quotas.append(Quota(owner, what, limit, np.where(inside, each, 0).astype(float)))
    return tuple(quotas)


@dataclass(frozen=True)
class Candidate:
    """A placement that keeps every limit."""

    # how many of each group are where; equal for placements that differ by an exchange of equal clients only
    counts: Counts
    placement: Placement  # one of those
    outcome: Outcome  # what it gives

    def better_than(self, other: Candidate | None) -> bool:
        """A smaller objective; where they are equal, the cheaper one, then the faster one."""
        if other is None:
            return True
        mine, theirs = self.outcome, other.outcome
        if abs(mine.objective - theirs.objective) > TOLERANCE:
            return mine.objective < theirs.objective
        if not math.isclose(mine.round_usd, theirs.round_usd, rel_tol=1e-12):
            return mine.round_usd < theirs.round_usd
        return mine.round_s < theirs.round_s


# Tasks to VM types under quotas, with the round's time and the server's region given: an integer program.
#
# With both given, the products of Eq. 6.4, 6.5 and 6.17 are gone: a task on a type costs a constant, and
# types that are too slow are left out. What remains of Eq. 6.3-6.19 is linear, and HiGHS solves it:
#
#     minimise    sum cost[g, v] n[g, v]
#     subject to  sum_v n[g, v] = size[g]                   for each group and the server (6.11, 6.12)
#                 sum amounts[q, v] n[g, v] <= limit[q]     for each quota (6.13-6.16)
#                 n[g, v] whole, 0 where g is too slow on v (6.17-6.19)


_SCALE = 1e3
_INFEASIBLE = highspy.HighsModelStatus.kInfeasible
_EPSILON = 1e-9


@dataclass(frozen=True)
class Costs:
    """USD of one task on each type, for a round of a given time: [V] of a client, [V] of the server."""

    client: Floats
    server: Floats


@dataclass(frozen=True)
class Relaxed:
    """Solution of the linear relaxation of a quota program."""

    multipliers: Floats  # [Q] USD that one more of each quota would save
    values: Floats  # [columns] its solution
    whole: Counts | None  # the same as counts where it is whole, and so solves the program; else None


@dataclass(frozen=True)
class Exact:
    """What the integer program gave: counts (None if none were found) and a proved lower bound in USD.

    With a cutoff, no counts and a bound of the cutoff say that there are none below it.
    """

    counts: Counts | None
    usd: float
    proved: bool


class QuotaProgram:
    """One program.

    Args:
        problem: groups and quotas.
        costs: of one task.
        allowed: [G + 1, V] where each group, and the server, may be.
        excluded: counts that may not be the answer of `exact`.
    """

    def __init__(
        self, problem: MappingProblem, costs: Costs, allowed: Bools, excluded: Sequence[Counts] = ()
    ) -> None:
        self._problem = problem
        self._excluded = [counts for counts in excluded if allowed[counts > 0].all()]
        columns = allowed.copy()
        if not self._excluded:
            clients, server = problem.dominators
            columns[:-1] &= ~((allowed[:-1].astype(np.float32) @ clients.T) > 0)
            columns[-1] &= ~((allowed[-1].astype(np.float32) @ server.T) > 0)
        self._groups, self._types = np.nonzero(columns)
        is_server = self._groups == len(problem.groups)
        self._cost = np.where(is_server, costs.server[self._types], costs.client[self._types])
        # Costs are counted from each row's cheapest: what all choices share would only hide differences.
        low = np.full(len(problem.sizes), np.inf)
        np.minimum.at(low, self._groups, self._cost)
        self._base = float(low @ problem.sizes)
        above = self._cost - low[self._groups]
        self._scale = _SCALE / above.max() if above.max() > 0 else 1.0
        self._scaled = above * self._scale

    def relaxed(self) -> Relaxed | None:
        """Solve the linear relaxation; None if not even that has a solution."""
        solver = _solved(self._program().model(), solve_relaxation=True)
        if solver.getModelStatus() == _INFEASIBLE:
            return None
        solution = solver.getSolution()
        duals = np.array(solution.row_dual)[len(self._problem.sizes) :]
        values = np.array(solution.col_value)
        counts = self._counts(np.rint(values))
        near = np.abs(values - np.rint(values)).max(initial=0.0) < 1e-7
        whole = counts if near and self._valid(counts) else None
        return Relaxed(np.maximum(-duals, 0.0) / self._scale, values, whole)

    def rounded(self, relaxed: Relaxed) -> Counts | None:
        """Good counts near a relaxed solution: groups that it splits are placed again around the others."""
        split = np.unique(self._groups[np.abs(relaxed.values - np.rint(relaxed.values)) > 1e-7])
        fixed = ~np.isin(self._groups, split)
        model = self._program().model()
        lower, upper = np.array(model.col_lower_), np.array(model.col_upper_)
        lower[fixed] = upper[fixed] = np.rint(relaxed.values[fixed])
        model.col_lower_, model.col_upper_ = lower, upper
        return self._found(_solved(model, mip_rel_gap=1e-3, time_limit=1.0))

    def exact(
        self, cutoff_usd: float = np.inf, relative_gap: float = 0.0, time_limit_s: float | None = None
    ) -> Exact:
        """Solve the program to a gap while time permits; what is dearer than `cutoff_usd` does not count."""
        program = self._program()
        self._exclude(program)
        cutoff = float((cutoff_usd - self._base) * self._scale)
        limit_s = np.inf if time_limit_s is None else max(time_limit_s, 0.1)
        solver = _solved(
            program.model(), mip_rel_gap=relative_gap, objective_bound=cutoff, time_limit=limit_s
        )
        status = solver.getModelStatus()
        if status == _INFEASIBLE:
            return Exact(None, cutoff_usd, True)
        bound = solver.getInfo().mip_dual_bound / self._scale + self._base
        return Exact(self._found(solver), min(bound, cutoff_usd), status == highspy.HighsModelStatus.kOptimal)

    def _program(self) -> LinearProgram:
        """Columns are the pairs (groups[j], types[j]); rows the groups, the server, then the quotas."""
        problem, program = self._problem, LinearProgram()
        sizes = problem.sizes.astype(float)
        columns = program.add_columns(
            len(self._groups), high=sizes[self._groups], cost=self._scaled, whole=True
        )
        program.add_rows(len(sizes), self._groups, columns, 1.0, low=sizes, high=sizes)
        amounts = problem.amounts[:, self._types]
        rows, uses = np.nonzero(amounts)
        program.add_rows(len(amounts), rows, uses, amounts[rows, uses], high=problem.limits)
        return program

    def _exclude(self, program: LinearProgram) -> None:
        """Other counts are smaller than the excluded ones on at least one of the types that those use."""
        pairs = zip(self._groups.tolist(), self._types.tolist(), strict=True)
        column_of = {pair: column for column, pair in enumerate(pairs)}
        for counts in self._excluded:
            groups, types = np.nonzero(counts)
            fewer = program.add_columns(len(groups), whole=True).tolist()
            for g, v, binary in zip(groups.tolist(), types.tolist(), fewer, strict=True):
                # binary = 1 asks for fewer than counts[g, v] there, binary = 0 for nothing
                size = float(self._problem.sizes[g])
                drop = size - float(counts[g, v]) + 1.0
                program.add_row({column_of[g, v]: 1.0, binary: drop}, high=size)
            program.add_row(dict.fromkeys(fewer, 1.0), low=1.0)

    def _found(self, solver: highspy.Highs) -> Counts | None:
        if solver.getInfo().primal_solution_status != highspy.SolutionStatus.kSolutionStatusFeasible:
            return None
        counts = self._counts(np.rint(np.array(solver.getSolution().col_value)[: len(self._groups)]))
        if not self._valid(counts):
            raise RuntimeError("HiGHS returned counts that break a quota or lose a task")
        return counts

    def _counts(self, values: Floats) -> Counts:
        counts = np.zeros((len(self._problem.sizes), self._problem.exec_s.shape[1]), np.int64)
        counts[self._groups, self._types] = values.astype(np.int64)
        return counts

    def _valid(self, counts: Counts) -> bool:
        return self._problem.fits(counts) and bool((counts.sum(axis=1) == self._problem.sizes).all())


def _solved(model: highspy.HighsLp, **options: float) -> highspy.Highs:
    # Tolerances are absolute and costs are scaled to 0..1000: exact to about 1e-12 of the largest difference.
    names = ("primal_feasibility", "dual_feasibility", "mip_feasibility")
    tolerances = {f"{name}_tolerance": _EPSILON for name in names}
    solver = solver_of(model, **{"mip_rel_gap": 0.0, "mip_abs_gap": 0.0, **tolerances, **options})
    solver.run()
    return solver
