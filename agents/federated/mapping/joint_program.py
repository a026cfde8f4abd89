"""Several applications' tasks to VM types under shared quotas: one integer program.

The smallest sum of all objectives (Eq. 6.3, each normalised by its own Eq. 6.8) is looked for. A round's
optimal time is the time of one client on one type, so an application is in one of finitely many modes:
server's region, aggregation time and round time. With the mode given all costs are linear
(`mapping_search`); a binary z[i, m] chooses it, and HiGHS solves for all applications i at once

    minimise    sum cost[i, m, g, v] n[i, m, g, v] + time[i, m] z[i, m]
    subject to  sum_m z[i, m] = 1                                  one mode each
                sum_v n[i, m, g, v] = size[i, g] z[i, m]           (6.11, 6.12), the server is one more group
                sum usd[i, m, g, v] n[i, m, g, v] <= budget z      (6.10)
                sum amounts[q, v] n[i, m, g, v] <= limit[q]        (6.13-6.16), summed over all applications

What is no better than the applications' optima alone, with what the mapping in order loses on them, is left
out beforehand; that is nearly everything where the quotas hardly bind.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import highspy
import numpy as np
from numpy.typing import NDArray

from agents.federated.mapping.initial import Plan
from agents.federated.mapping.limits import InfeasibleMappingError
from agents.federated.mapping.problem import TOLERANCE, MappingProblem
from envs.simulation.federations.errors import FederationError

MAX_COLUMNS = 150_000
"""A program with more is not small enough to be solved exactly here."""
_SCALE = 1e3
_EPSILON = 1e-9


def shared_limits(problems: Sequence[MappingProblem]) -> dict[tuple[str, str], int]:
    """All quotas by owner and kind. Raises FederationError where two clouds give one different limits."""
    limits: dict[tuple[str, str], int] = {}
    for problem in problems:
        for quota in problem.quotas:
            known = limits.setdefault((quota.owner, quota.what), quota.limit)
            if known != quota.limit:
                raise FederationError(
                    f"{quota.owner} allows {known} {quota.what} in one file and {quota.limit} in another: "
                    f"applications that share clouds must agree on their quotas"
                )
    return limits


@dataclass(frozen=True)
class _Mode:
    """An application's server region, aggregation time and round time, with what tasks then cost.

    Attributes:
        owner: number of the application.
        seconds: of its round.
        usd: [G + 1, V] of one task of each group, and of the server.
        allowed: [G + 1, V].
    """

    owner: int
    seconds: float
    usd: NDArray[np.float64]
    allowed: NDArray[np.bool_]


class JointProgram:
    """The integer program over all applications.

    Args:
        problems: one for each.
        names: theirs, for messages.
        least: objectives that none of them can be below.
        most: a sum of objectives that is known to be possible, or infinite.

    Raises:
        FederationError: if it has more than MAX_COLUMNS columns, or clouds disagree on a quota.
    """

    def __init__(
        self, problems: Sequence[MappingProblem], names: Sequence[str], least: Sequence[float], most: float
    ) -> None:
        self._problems = problems
        self._names = names
        self._limits = shared_limits(problems)
        self._modes = [
            mode
            for k, problem in enumerate(problems)
            for mode in _modes(k, problem, most - (sum(least) - least[k]))
        ]
        columns = sum(int(mode.allowed.sum()) + 1 for mode in self._modes)
        if columns > MAX_COLUMNS:
            raise FederationError(
                f"planning these {len(problems)} applications jointly takes a program of {columns} columns, "
                f"at most {MAX_COLUMNS} are practical: plan them one after the other"
            )

    def solve(self) -> list[Plan]:
        """The best plan of each application.

        Raises:
            InfeasibleMappingError: if not all fit; the message names the quotas in the way.
        """
        problems, modes = self._problems, self._modes
        model = highspy.Highs()  # type: ignore[no-untyped-call]
        for option, value in (
            ("output_flag", False),
            ("threads", 1),
            ("mip_rel_gap", 0.0),
            ("mip_abs_gap", 0.0),
            ("primal_feasibility_tolerance", _EPSILON),
            ("dual_feasibility_tolerance", _EPSILON),
            ("mip_feasibility_tolerance", _EPSILON),
        ):
            model.setOptionValue(option, value)
        in_quota: dict[tuple[str, str], tuple[list[int], list[float]]] = {
            key: ([], []) for key in self._limits
        }
        of_owner: list[list[int]] = [[] for _ in problems]
        columns: list[tuple[int, NDArray[np.int64], NDArray[np.int64]]] = []
        for mode in modes:
            problem = problems[mode.owner]
            first = model.getNumCol()
            of_owner[mode.owner].append(first)
            _column(model, problem.objective(0.0, mode.seconds), 1)
            groups, types = np.nonzero(mode.allowed)
            columns.append((first, groups, types))
            usd = mode.usd[groups, types]
            for group, amount in zip(groups.tolist(), usd.tolist(), strict=True):
                _column(model, problem.objective(amount, 0.0), float(problem.sizes[group]))
            for group, size in enumerate(problem.sizes.tolist()):
                own = first + 1 + np.flatnonzero(groups == group)
                _row(model, 0.0, 0.0, [*own.tolist(), first], [*np.ones(len(own)).tolist(), -float(size)])
            if math.isfinite(problem.round_limits.usd):
                own = first + 1 + np.arange(len(groups))
                budget = problem.round_limits.usd * (1 + 1e-12)
                _row(model, -math.inf, 0.0, [*own.tolist(), first], [*usd.tolist(), -budget])
            for quota, amounts in zip(problem.quotas, problem.amounts, strict=True):
                taken = amounts[types]
                indices, values = in_quota[quota.owner, quota.what]
                indices += (first + 1 + np.flatnonzero(taken)).tolist()
                values += taken[taken > 0].tolist()
        for firsts in of_owner:
            _row(model, 1.0, 1.0, firsts, [1.0] * len(firsts))
        for key, (indices, values) in in_quota.items():
            _row(model, -math.inf, float(self._limits[key]), indices, values)
        model.run()
        status = model.getModelStatus()
        if status == highspy.HighsModelStatus.kInfeasible:
            raise _no_room(problems, ", ".join(self._names), self._limits)
        if status != highspy.HighsModelStatus.kOptimal:
            raise RuntimeError(f"HiGHS ended the joint mapping with {status}")
        values_of = np.rint(np.array(model.getSolution().col_value)).astype(np.int64)
        plans: list[Plan | None] = [None] * len(problems)
        for mode, (first, groups, types) in zip(modes, columns, strict=True):
            if values_of[first]:
                problem = problems[mode.owner]
                counts = np.zeros(mode.allowed.shape, np.int64)
                counts[groups, types] = values_of[first + 1 : first + 1 + len(groups)]
                placement = problem.placement(counts)
                plans[mode.owner] = Plan(placement, problem.federation.outcome(placement, problem.alpha))
        assert all(plan is not None for plan in plans)
        return [plan for plan in plans if plan is not None]


def _modes(owner: int, problem: MappingProblem, most: float) -> list[_Mode]:
    """The modes of an application that could have an objective up to `most`."""
    federation, modes = problem.federation, []
    client_usd_s, server_usd_s = (
        np.where(np.isfinite(usd_s), usd_s, 0.0)
        for usd_s in (federation.client_usd_s, federation.server_usd_s)
    )
    clients, servers = problem.dominators
    for region in np.unique(federation.region[problem.servers]).tolist():
        base = problem.exec_s + federation.comm_s[federation.region, region]
        messages = federation.message_usd[federation.provider, federation.region_provider[region]]
        here = problem.servers & (federation.region == region)
        for aggregation_s in np.unique(federation.aggregation_s[here]).tolist():
            family = here & (federation.aggregation_s == aggregation_s)
            for time_s in np.unique(base[np.isfinite(base) & (base >= base.min(axis=1).max())]).tolist():
                seconds = time_s + aggregation_s
                if not problem.round_limits.allow(seconds, 0.0):
                    break
                allowed = np.vstack([base <= time_s, family])
                client_usd = np.broadcast_to(client_usd_s * seconds + messages, base.shape)
                usd = np.vstack([client_usd, server_usd_s * seconds])
                cheapest = np.where(allowed, usd, np.inf).min(axis=1) @ problem.sizes
                if problem.objective(float(cheapest), seconds) > most + TOLERANCE:
                    continue
                allowed[:-1] &= ~((allowed[:-1].astype(np.float32) @ clients.T) > 0)
                allowed[-1] &= ~((allowed[-1].astype(np.float32) @ servers.T) > 0)
                modes.append(_Mode(owner, seconds, usd, allowed))
    return modes


def _no_room(
    problems: Sequence[MappingProblem], names: str, limits: dict[tuple[str, str], int]
) -> InfeasibleMappingError:
    """The least raises of the quotas (parts of their limits, summed) that make room for all applications."""
    model = highspy.Highs()  # type: ignore[no-untyped-call]
    model.setOptionValue("output_flag", False)
    model.setOptionValue("threads", 1)
    in_quota: dict[tuple[str, str], tuple[list[int], list[float]]] = {}
    for number, (key, limit) in enumerate(limits.items()):
        _column(model, 1.0 / max(limit, 1), highspy.kHighsInf)
        in_quota[key] = ([number], [-1.0])
    for problem in problems:
        can = np.vstack([np.isfinite(problem.exec_s), problem.servers])
        for size, row in zip(problem.sizes.tolist(), can, strict=True):
            types, first = np.flatnonzero(row), model.getNumCol()
            for _ in types:
                _column(model, 0.0, float(size))
            own = list(range(first, first + len(types)))
            _row(model, float(size), float(size), own, [1.0] * len(own))
            for quota, amounts in zip(problem.quotas, problem.amounts, strict=True):
                indices, values = in_quota[quota.owner, quota.what]
                indices += own
                values += amounts[types].tolist()
    for key, (indices, values) in in_quota.items():
        _row(model, -math.inf, float(limits[key]), indices, values)
    model.run()
    if model.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        raise RuntimeError(f"HiGHS ended the search for a quota in the way with {model.getModelStatus()}")
    solution = model.getSolution().col_value
    parts = [
        f"{owner} allows {limit} {what}, at least {limit + round(solution[k])} are needed "
        f"({round(solution[k])} more)"
        for k, ((owner, what), limit) in enumerate(limits.items())
        if round(solution[k])
    ]
    if parts:
        line = f"the quotas have no room for all applications together ({names}): {'; '.join(parts)}"
        return InfeasibleMappingError("quota", line)
    return InfeasibleMappingError(
        "deadline and budget",
        f"within the quotas not all applications ({names}) can keep their deadlines and budgets at once: "
        f"relax one, or plan one of them later",
    )


def _column(model: highspy.Highs, cost: float, upper: float) -> None:
    """A whole number from 0 to `upper`; the objective is scaled as HiGHS's tolerances are absolute."""
    model.addVar(0.0, upper)
    number = model.getNumCol() - 1
    model.changeColCost(number, cost * _SCALE)
    model.changeColIntegrality(number, highspy.HighsVarType.kInteger)


def _row(
    model: highspy.Highs, lower: float, upper: float, indices: Sequence[int], values: Sequence[float]
) -> None:
    model.addRow(
        max(lower, -highspy.kHighsInf), upper, len(indices), np.array(indices, np.int32), np.array(values)
    )
