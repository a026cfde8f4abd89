"""`spotweave plan fl`: the optimal placement of a federated application, in words or as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any

from spotweave.agents.federated.mapping.initial import InitialMapping, Plan
from spotweave.envs.simulation.federations.clouds import Market
from spotweave.envs.simulation.federations.model import Federation
from spotweave.training.progress import clock


def plan_document(federation: Federation, alpha: float, found: InitialMapping) -> dict[str, Any]:
    """The answer as JSON: the best placement, its figures, and the runners-up."""
    return {
        "application": federation.application.name,
        "rounds": federation.application.rounds,
        "alpha": alpha,
        "t_max_s": federation.t_max,
        "cost_max_usd": federation.cost_max,
        "gap": found.gap,
        "proved_optimal": found.proved,
        "solver_s": found.seconds,
        "best": placement_document(federation, found.best),
        "runners_up": [placement_document(federation, plan) for plan in found.runners_up],
    }


def plan_text(federation: Federation, alpha: float, found: InitialMapping) -> str:
    """The mapping as a text for people: places, figures, runners-up."""
    rounds = federation.application.rounds
    lines = [f"{federation.application.name}: {len(federation.application.clients)} clients, {rounds} rounds"]
    lines += table(
        ("task", "provider", "region", "VM type", "product", "market", "USD/hour"), _tasks(federation, found)
    )
    best = found.best.outcome
    proof = "proved optimal" if found.proved else f"proved within {found.gap:.3%} of the optimum"
    lines += [
        "",
        f"one round    {best.round_s:.2f} s    {best.round_usd:.4f} USD",
        f"all {rounds} rounds    {best.total_s:.2f} s ({clock(best.total_s)})    {best.total_usd:.2f} USD",
        f"objective    {best.objective:.6f} (alpha {alpha:g}), {proof} in {found.seconds:.2f} s",
    ]
    if found.runners_up:
        rows: list[tuple[str, ...]] = []
        for rank, plan in enumerate(found.runners_up, 2):
            server, *clients = federation.describe(plan.placement)
            figures = f"{plan.outcome.round_s:.2f}", f"{plan.outcome.round_usd:.4f}"
            rows.append((str(rank), server, counted(clients), *figures, _behind(plan, found.best)))
        headings = ("rank", "server", "clients", "s per round", "USD per round", "objective")
        lines += ["", "runners-up (equal clients may be exchanged)", *table(headings, rows)]
    return "\n".join(lines)


def _behind(plan: Plan, best: Plan) -> str:
    difference = plan.outcome.objective / best.outcome.objective - 1 if best.outcome.objective > 0 else 0.0
    return "equal" if difference < 1e-9 else f"+{difference:.2%}"


def _tasks(federation: Federation, found: InitialMapping) -> list[tuple[str, ...]]:
    placement = found.best.placement

    def row(who: str, vm_type: int, market: Market) -> tuple[str, ...]:
        task = _task(federation, who, vm_type, market)
        market_name, usd_hour = task.pop("market").replace("_", " "), task.pop("usd_hour")
        return (*task.values(), market_name, f"{usd_hour:.4f}")

    rows = [row("server", placement.server, federation.server_market)]
    by_type: dict[int, list[str]] = {}
    for client, vm_type in zip(federation.application.clients, placement.clients, strict=True):
        by_type.setdefault(vm_type, []).append(client.name)
    for vm_type, names in by_type.items():
        who = ", ".join(names) if len(names) <= 4 else f"{names[0]}, ... {names[-1]} ({len(names)} clients)"
        rows.append(row(who, vm_type, federation.client_market))
    return rows


def _task(federation: Federation, name: str, vm_type: int, market: Market) -> dict[str, Any]:
    vm = federation.clouds.vm_types[vm_type]
    return {
        "task": name,
        "provider": federation.clouds.region[vm.region].provider,
        "region": vm.region,
        "vm_type": vm.name,
        "product": vm.product,
        "market": str(market),
        "usd_hour": vm.usd_hour(market),
    }


def placement_document(federation: Federation, plan: Plan) -> dict[str, Any]:
    """Document with the place of every task and the placement's figures."""
    outcome, task = plan.outcome, partial(_task, federation)
    clients = zip(federation.application.clients, plan.placement.clients, strict=True)
    return {
        "server": task("server", plan.placement.server, federation.server_market),
        "clients": [task(client.name, vm_type, federation.client_market) for client, vm_type in clients],
        "round_s": outcome.round_s,
        "round_usd": outcome.round_usd,
        "first_round_s": outcome.first_round_s,
        "first_round_usd": outcome.first_round_usd,
        "total_s": outcome.total_s,
        "total_usd": outcome.total_usd,
        "objective": outcome.objective,
    }


def counted(names: Sequence[str]) -> str:
    """How many there are of each name: `3 vm121, 1 vm111`."""
    return ", ".join(f"{number} {name}" for name, number in Counter(names).items())


def table(headings: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    """Lines with aligned columns."""
    widths = [max(len(row[k]) for row in (headings, *rows)) for k in range(len(headings))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in (headings, *rows)
    ]
