"""Workflows carried out on recorded spot offers: rules, the learned policy, and a lower bound."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean
from typing import Any

import numpy as np
from scipy.optimize import linprog

from agents.named import named_rule
from agents.policy import Policy
from agents.stored import policy_file
from envs.simulation.workflows.episodes.case import HOUR_S, Case
from envs.simulation.workflows.families import FAMILIES
from envs.simulation.world import WorldSpec
from envs.workflows_episodes import DrawnWorkflows, WorkflowsConfig, build_workflows
from training.checkpoint import load_policy
from training.evaluation.episodes import Suite, run_suite
from training.studies.cells import table
from training.studies.federated.playing import paired

TEST = Suite("workflows", "test", seed=2022, episodes=40)
"""Parameters and the checkpoint were chosen on validation episodes, which have other seeds and other days."""
LANES = 20
RELEASED = "workflows"
RULES = {
    "heft_on_demand": "HEFT on demand",
    "heft_spot": "HEFT on spot",
    "cheapest_place": "cheapest",
    "workflow_cost": "`workflow_cost`",
}
LEARNED = "mtdqn"
OURS = ("workflow_cost", LEARNED)
AGAINST = ("heft_spot", "cheapest_place")
METRICS = ("cost_usd", "missed", "makespan_s", "interruptions", "launches")


def make() -> dict[str, Any]:
    """All families and policies on the same test episodes; paired comparisons, and the bound."""
    spec = build_workflows(WorkflowsConfig()).spec
    policies = [named_rule(name) for name in RULES] + [_learned(spec)]
    families: dict[str, Any] = {}
    pooled: dict[str, dict[str, list[float]]] = {policy.name: _columns() for policy in policies}
    for family in FAMILIES:
        config = WorkflowsConfig(family=family)
        world, source = build_workflows(config, LANES), DrawnWorkflows(config)
        columns = {policy.name: _columns() for policy in policies}
        for policy in policies:
            for result in run_suite(world, policy, TEST):
                for metric in METRICS:
                    columns[policy.name][metric].append(result.metrics[metric])
                    pooled[policy.name][metric].append(result.metrics[metric])
        bounds = [lower_bound_usd(source.case(key)) for key in TEST.episode_keys()]
        families[family] = {**_measured(columns), "bound_usd": fmean(bounds)}
    return {"episodes": TEST.episodes, "families": families, "all": _measured(pooled)}


def _learned(spec: WorldSpec) -> Policy:
    policy = load_policy(policy_file(RELEASED), spec)
    policy.name = LEARNED
    return policy


def _columns() -> dict[str, list[float]]:
    return {metric: [] for metric in METRICS}


def _measured(columns: Mapping[str, dict[str, list[float]]]) -> dict[str, Any]:
    """Means by policy, and the cost of ours against others, per cent."""
    against = {
        ours: {
            other: paired(columns[ours], columns[other], {"cost_usd": "percent"})["cost_usd"]
            for other in (*AGAINST, *OURS)
            if other != ours
        }
        for ours in OURS
    }
    means = {
        name: {metric: fmean(values) for metric, values in mine.items()} for name, mine in columns.items()
    }
    missed = {name: int(sum(mine["missed"])) for name, mine in columns.items()}
    return {"means": means, "missed": missed, "against": against}


def lower_bound_usd(case: Case) -> float:
    """What no policy that keeps the deadline undercuts, even one that knows the whole episode.

    Each step's true time is paid for once, at the lowest price at which an offer that may run it is to be had
    before the deadline; launches, idle time, moved files, interruptions and the order of the steps cost
    nothing. Owned clusters take the work, divided at will, that saves most: a linear program.
    """
    usd_s = np.array([quotes.least_usd_hour(case.deadline_s) for quotes in case.quotes]) / HOUR_S
    true_s = case.problem.run_s * case.actual[:, None]
    rented = np.where(case.owned | ~case.may, np.inf, true_s * np.maximum(usd_s, 1e-12)).min(1)
    rented = np.where(np.isfinite(rented), rented, 0.0)
    step, owned = np.nonzero(case.may & case.owned)
    if not len(step):
        return float(rented.sum())
    # Columns: the share of a step that an owned cluster does.
    count = np.arange(len(step))
    once, room = np.zeros((len(rented), len(step))), np.zeros((len(usd_s), len(step)))
    once[step, count] = 1.0
    room[owned, count] = true_s[step, owned]
    limits = np.array([offer.quota * case.deadline_s for offer in case.offers])
    found = linprog(
        -rented[step], A_ub=np.vstack([once, room]), b_ub=np.concatenate([np.ones(len(rented)), limits])
    )
    return max(0.0, float(rented.sum() + found.fun))


def body(document: Mapping[str, Any]) -> str:
    """USD by family and policy; then how ours lie against the others, and what all came to."""
    names = [*RULES, LEARNED]
    titles = [*RULES.values(), f"`{LEARNED}`"]
    header = ["mean USD", *titles, "bound", f"`{LEARNED}` against HEFT on spot", "against cheapest"]
    rows = []
    for family, cell in document["families"].items():
        means = [f"{cell['means'][name]['cost_usd']:.2f}" for name in names]
        against = [_change(cell["against"][LEARNED][other]) for other in AGAINST]
        rows.append([family, *means, f"{cell['bound_usd']:.2f}", *against])
    every = document["all"]
    bound = fmean(cell["bound_usd"] for cell in document["families"].values())
    means = [f"{every['means'][name]['cost_usd']:.2f}" for name in names]
    against = [_change(every["against"][LEARNED][other]) for other in AGAINST]
    rows.append(["**all**", *means, f"{bound:.2f}", *against])
    details = [
        [
            title,
            str(every["missed"][name]),
            f"{every['means'][name]['makespan_s'] / HOUR_S:.2f}",
            f"{every['means'][name]['interruptions']:.2f}",
            f"{every['means'][name]['launches']:.1f}",
        ]
        for name, title in zip(names, titles, strict=True)
    ]
    pairs = [
        [
            f"`{ours}`",
            *(_change(every["against"][ours][other]) for other in AGAINST),
            _change(every["against"][ours]["workflow_cost"]) if ours == LEARNED else "",
        ]
        for ours in OURS
    ]
    heads = ["all of them", "missed deadlines", "hours", "steps interrupted", "instances rented"]
    return "\n\n".join(
        [
            table(header, rows),
            table(heads, details),
            table(["cost, all of them", "against HEFT on spot", "cheapest", "`workflow_cost`"], pairs),
        ]
    )


def _change(measured: Mapping[str, Any]) -> str:
    low, high = measured["interval"]
    return f"{measured['mean']:+.1f} % [{low:+.1f}, {high:+.1f}]"
