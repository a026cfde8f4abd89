"""`spotweave plan-fl --with`: several federated applications that share the clouds' quotas."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agents.federated.mapping.initial import Plan
from agents.federated.mapping.joint import JointMapping, Task, map_in_order, map_jointly
from agents.federated.mapping.limits import InfeasibleMappingError
from envs.simulation.federations.clouds import Market
from envs.simulation.federations.documents import read_application, read_clouds
from envs.simulation.federations.errors import FederationError
from envs.simulation.federations.model import Federation
from training.federated.plan_fl import clients_text, clock, placement_document, server_text, table

OPTIONS = ("alpha", "deadline", "budget")


@dataclass(frozen=True)
class FleetPlan:
    """What was found for several applications.

    Attributes:
        tasks: the applications.
        in_order: their plans, each within what those before it leave; None if they do not fit so.
        misfit: why not; empty otherwise.
        joint: the joint optimum; None where it was not asked for.
    """

    tasks: tuple[Task, ...]
    in_order: tuple[Plan, ...] | None
    misfit: str
    joint: JointMapping | None


def plan_fleet(
    application: Path,
    clouds: Path,
    others: Sequence[str],
    *,
    alpha: float = 0.5,
    deadline_s: float | None = None,
    budget_usd: float | None = None,
    joint: bool = False,
    server_market: Market = Market.ON_DEMAND,
    client_market: Market = Market.ON_DEMAND,
    time_limit_s: float | None = None,
) -> FleetPlan:
    """Read all files and place the applications.

    Args:
        application: the file of the one that chooses first.
        clouds: what they share.
        others: each a file, perhaps followed by its own alpha=, deadline= and budget=; where left out, alpha
            is the first one's, and there is no limit.
        alpha: weight of cost against time of the first one.
        deadline_s: seconds for all rounds of the first one.
        budget_usd: USD for all rounds of the first one.
        joint: whether to find the joint optimum as well.
        server_market: how servers' VMs are rented.
        client_market: how clients' VMs are rented.
        time_limit_s: as `map_initially`, for each in order.

    Raises:
        FederationError: for mistakes in the files and arguments, and for limits that cannot be kept; it names
            the application that does not fit and the quota in its way.
    """
    rented = read_clouds(clouds)

    def task(path: Path, alpha: float, deadline_s: float, budget_usd: float) -> Task:
        federation = Federation(read_application(path), rented, server_market, client_market)
        return Task(federation, alpha, deadline_s, budget_usd)

    tasks = [
        task(
            application,
            alpha,
            math.inf if deadline_s is None else deadline_s,
            math.inf if budget_usd is None else budget_usd,
        )
    ]
    for text in others:
        path, given = _parse(text)
        tasks.append(
            task(
                path,
                given.get("alpha", alpha),
                given.get("deadline", math.inf),
                given.get("budget", math.inf),
            )
        )
    misfit = ""
    in_order = None
    try:
        in_order = tuple(found.best for found in map_in_order(tasks, time_limit_s))
    except InfeasibleMappingError as error:
        if not joint:
            raise
        misfit = str(error)
    return FleetPlan(tuple(tasks), in_order, misfit, map_jointly(tasks) if joint else None)


def _parse(text: str) -> tuple[Path, dict[str, float]]:
    """'app.json deadline=3600' as a path and numbers."""
    try:
        words = shlex.split(text)
    except ValueError:
        raise FederationError(f"--with has a quote without its end: {text}") from None
    if not words:
        raise FederationError("--with is empty: expected a file, e.g. --with other.json")
    given: dict[str, float] = {}
    for word in words[1:]:
        name, _, value = word.partition("=")
        try:
            if name not in OPTIONS:
                raise ValueError
            given[name] = float(value)
        except ValueError:
            wanted = ", ".join(f"{option}=NUMBER" for option in OPTIONS)
            raise FederationError(f"--with has {word!r}: expected a file and then {wanted}") from None
    return Path(words[0]), given


def fleet_document(found: FleetPlan) -> dict[str, Any]:
    """The answer as JSON."""

    def documents(plans: Sequence[Plan]) -> list[dict[str, Any]]:
        return [
            {
                "application": task.name,
                "rounds": task.federation.application.rounds,
                "alpha": task.alpha,
                **placement_document(task.federation, plan),
            }
            for task, plan in zip(found.tasks, plans, strict=True)
        ]

    return {
        "in_order": None if found.in_order is None else documents(found.in_order),
        "does_not_fit_in_order": found.misfit or None,
        "joint": None if found.joint is None else documents(found.joint.plans),
        "joint_objective": None if found.joint is None else found.joint.objective,
    }


def fleet_text(found: FleetPlan) -> str:
    """The answer for people."""
    lines: list[str] = []
    if found.in_order is None:
        lines += ["one after the other:", found.misfit]
    else:
        lines += [
            "one after the other, each within what those before it leave",
            *_plans(found, found.in_order),
        ]
    if found.joint is not None:
        lines += [
            "",
            f"jointly, proved optimal in {found.joint.seconds:.2f} s",
            *_plans(found, found.joint.plans),
        ]
        if found.in_order is not None:
            total = sum(plan.outcome.objective for plan in found.in_order)
            saved = 1 - found.joint.objective / total if total else 0.0
            lines += ["", f"the joint mapping's sum of objectives is {saved:.2%} smaller"]
    return "\n".join(lines)


def _plans(found: FleetPlan, plans: Sequence[Plan]) -> list[str]:
    rows: list[tuple[str, ...]] = [
        (
            task.name,
            server_text(task.federation, plan),
            clients_text(task.federation, plan),
            f"{plan.outcome.round_s:.2f}",
            f"{plan.outcome.round_usd:.4f}",
            clock(plan.outcome.total_s),
            f"{plan.outcome.total_usd:.2f}",
            f"{plan.outcome.objective:.6f}",
        )
        for task, plan in zip(found.tasks, plans, strict=True)
    ]
    outcomes = [plan.outcome for plan in plans]
    rows.append(
        (
            "all",
            "",
            "",
            "",
            "",
            clock(max(outcome.total_s for outcome in outcomes)),
            f"{sum(outcome.total_usd for outcome in outcomes):.2f}",
            f"{sum(outcome.objective for outcome in outcomes):.6f}",
        )
    )
    headings = (
        "application",
        "server",
        "clients",
        "s per round",
        "USD per round",
        "all rounds",
        "USD",
        "objective",
    )
    return table(headings, rows)
