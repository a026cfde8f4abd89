"""Initial mapping of several applications that share quotas: future work of Brum 2023 (section 8.3).

In order: each application gets the optimal mapping that is left by the quotas less what those before it hold.

Jointly: the smallest sum of all objectives (Eq. 6.3, each normalised by its own Eq. 6.8), where the
applications are small enough (`mapping_joint_program`).
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from agents.federated.mapping.initial import InitialMapping, Plan, map_initially
from agents.federated.mapping.joint_program import JointProgram, shared_limits
from agents.federated.mapping.limits import InfeasibleMappingError, quota_shortfalls
from agents.federated.mapping.problem import TOLERANCE, MappingProblem, RoundLimits
from envs.simulation.federations.clouds import Provider, Region
from envs.simulation.federations.model import Federation, Placement

_Owner = TypeVar("_Owner", Provider, Region)


@dataclass(frozen=True)
class Task:
    """One application to be mapped with others.

    Attributes:
        federation: application, clouds and markets.
        alpha: weight of cost against time, 0 to 1.
        deadline_s: seconds for all rounds.
        budget_usd: USD for all rounds.
        label: as messages show it; left out, the application's name.
    """

    federation: Federation
    alpha: float = 0.5
    deadline_s: float = math.inf
    budget_usd: float = math.inf
    label: str = ""

    @property
    def name(self) -> str:
        """As messages show it."""
        return self.label or self.federation.application.name


@dataclass(frozen=True)
class JointMapping:
    """The joint optimum.

    Attributes:
        plans: one for each application.
        objective: sum of theirs; proved optimal.
        seconds: wall time.
    """

    plans: tuple[Plan, ...]
    objective: float
    seconds: float


def map_in_order(tasks: Sequence[Task], time_limit_s: float | None = None) -> list[InitialMapping]:
    """The optimal mapping of each application within what those before it leave.

    Args:
        tasks: the first one chooses first.
        time_limit_s: as `map_initially`, for each.

    Raises:
        InfeasibleMappingError: if one does not fit; the message names it and the quota in the way.
        FederationError: as `map_initially`, and where clouds disagree on a quota.
    """
    shared_limits([MappingProblem(task.federation, task.alpha) for task in tasks])
    found: list[InitialMapping] = []
    for number, task in enumerate(tasks):
        held = [(other.federation, item.best.placement) for other, item in zip(tasks, found, strict=False)]
        federation = beside(task.federation, held)
        try:
            found.append(
                map_initially(
                    federation, task.alpha, task.deadline_s, task.budget_usd, time_limit_s=time_limit_s
                )
            )
        except InfeasibleMappingError as error:
            if number:
                # Raises if the application does not even fit alone: then the others are not in its way.
                _alone(task, number, time_limit_s)
                raise _does_not_fit(tasks, number, federation, error) from error
            raise
    return found


def beside(federation: Federation, held: Iterable[tuple[Federation, Placement]]) -> Federation:
    """The federation with quotas less what other applications' placements hold."""
    gpus: dict[str, int] = {}
    vcpus: dict[str, int] = {}
    for other, placement in held:
        clouds = other.clouds
        for vm_type in (placement.server, *placement.clients):
            vm = clouds.vm_types[vm_type]
            for owner in (f"region {vm.region}", f"provider {clouds.region[vm.region].provider}"):
                gpus[owner] = gpus.get(owner, 0) + vm.gpus
                vcpus[owner] = vcpus.get(owner, 0) + vm.vcpus
    clouds = federation.clouds

    def less(kind: str, owner: _Owner) -> _Owner:
        key = f"{kind} {owner.name}"
        return dataclasses.replace(
            owner,
            max_gpus=None if owner.max_gpus is None else owner.max_gpus - gpus.get(key, 0),
            max_vcpus=None if owner.max_vcpus is None else owner.max_vcpus - vcpus.get(key, 0),
        )

    return Federation(
        federation.application,
        dataclasses.replace(
            clouds,
            providers=tuple(less("provider", item) for item in clouds.providers),
            regions=tuple(less("region", item) for item in clouds.regions),
        ),
        federation.server_market,
        federation.client_market,
    )


def map_jointly(tasks: Sequence[Task]) -> JointMapping:
    """The mapping of all applications with the smallest sum of objectives.

    Deadlines and budgets are treated as by `map_initially`.

    Raises:
        InfeasibleMappingError: if not all fit; the message names the quotas in the way.
        FederationError: if the program is too large, or clouds disagree on a quota.
    """
    began = time.monotonic()
    alone = [_alone(task, number) for number, task in enumerate(tasks)]
    least = [item.best.outcome.objective for item in alone]
    try:
        ordered = [item.best for item in map_in_order(tasks)]
        most = sum(plan.outcome.objective for plan in ordered)
    except InfeasibleMappingError:
        ordered, most = [], math.inf
    if most <= sum(least) + TOLERANCE:
        return JointMapping(tuple(ordered), most, time.monotonic() - began)
    more_s, more_usd = [0.0] * len(tasks), [0.0] * len(tasks)
    while True:
        problems = [
            MappingProblem(task.federation, task.alpha, _round_limits(task, more_s[k], more_usd[k]))
            for k, task in enumerate(tasks)
        ]
        plans = JointProgram(problems, [task.name for task in tasks], least, most).solve()
        late = False
        for k, (task, plan) in enumerate(zip(tasks, plans, strict=True)):
            outcome = plan.outcome
            limits = RoundLimits(task.deadline_s, task.budget_usd)
            if not limits.allow(outcome.total_s * (1 - 1e-9), outcome.total_usd * (1 - 1e-9)):
                late = True
                more_s[k] = max(more_s[k], outcome.first_round_s - outcome.round_s)
                more_usd[k] = max(more_usd[k], outcome.first_round_usd - outcome.round_usd)
        if not late:
            objective = sum(plan.outcome.objective for plan in plans)
            return JointMapping(tuple(plans), objective, time.monotonic() - began)


def _round_limits(task: Task, more_s: float, more_usd: float) -> RoundLimits:
    rounds = task.federation.application.rounds
    return RoundLimits((task.deadline_s - more_s) / rounds, (task.budget_usd - more_usd) / rounds)


def _alone(task: Task, number: int, time_limit_s: float | None = None) -> InitialMapping:
    try:
        return map_initially(
            task.federation, task.alpha, task.deadline_s, task.budget_usd, time_limit_s=time_limit_s
        )
    except InfeasibleMappingError as error:
        raise InfeasibleMappingError(
            error.limit, f"application {number + 1} ({task.name}) cannot be placed even alone: {error}"
        ) from error


def _does_not_fit(
    tasks: Sequence[Task], number: int, federation: Federation, error: InfeasibleMappingError
) -> InfeasibleMappingError:
    """What is in the way of an application that would fit without those before it."""
    limits = shared_limits([MappingProblem(tasks[number].federation, 0.5)])
    parts = [
        f"of the {limits[item.owner, item.what]} {item.what} of {item.owner} "
        f"{limits[item.owner, item.what] - item.limit} are taken, at least {item.needed} are needed "
        f"({item.needed - item.limit} more)"
        for item in quota_shortfalls(federation)
    ]
    others = ", ".join(task.name for task in tasks[:number])
    return InfeasibleMappingError(
        error.limit,
        f"application {number + 1} ({tasks[number].name}) does not fit with those before it ({others}): "
        f"{'; '.join(parts) or error}",
    )
