"""Tasks to VM types under quotas, with the round's time and the server's region given: an integer program.

With both given, the products of Eq. 6.4, 6.5 and 6.17 are gone: a task on a type costs a constant, and types
that are too slow are left out. What remains of Eq. 6.3-6.19 is linear, and HiGHS solves it:

    minimise    sum cost[g, v] n[g, v]
    subject to  sum_v n[g, v] = size[g]                   for each group and the server (6.11, 6.12)
                sum amounts[q, v] n[g, v] <= limit[q]     for each quota (6.13-6.16)
                n[g, v] whole, 0 where g is too slow on v (6.17-6.19)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import highspy
import numpy as np

from spotweave.agents.federated.mapping.problem import Counts, MappingProblem
from spotweave.agents.linear_program import LinearProgram, solver_of
from spotweave.envs.simulation.series import Bools, Floats

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
