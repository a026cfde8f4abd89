"""Workflows carried out on recorded spot offers: rules, the learned policy, and a lower bound."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean
from typing import Any

import numpy as np
from scipy.optimize import linprog

from spotweave.agents.named import named_rule
from spotweave.agents.policy import Policy
from spotweave.agents.stored import policy_file
from spotweave.envs.simulation.workflows.families import FAMILIES
from spotweave.envs.simulation.workflows.options import HOUR_S, Case
from spotweave.envs.simulation.world import WorldSpec
from spotweave.envs.workflows_episodes import DrawnWorkflows, WorkflowsConfig, build_workflows
from spotweave.training.checkpoint import load_policy
from spotweave.training.evaluation.episodes import Suite, run_suite
from spotweave.training.studies.cells import Columns, columns_table, interval_cell, table
from spotweave.training.studies.federated.playing import paired

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
DETAILS: Columns = (
    ("all of them", "{title}"),
    ("missed deadlines", "{late}"),
    ("hours", "{hours:.2f}"),
    ("steps interrupted", "{interruptions:.2f}"),
    ("instances rented", "{launches:.1f}"),
)
METRICS = ("cost_usd", "missed", "makespan_s", "interruptions", "launches")


def make() -> dict[str, Any]:
    """All families and policies on the same test episodes; paired comparisons, and the bound."""
    spec = build_workflows(WorkflowsConfig()).spec
    policies = [*map(named_rule, RULES), _learned(spec)]
    families: dict[str, Any] = {}
    pooled: dict[str, dict[str, list[float]]] = {
        policy.name: {metric: [] for metric in METRICS} for policy in policies
    }
    for family in FAMILIES:
        config = WorkflowsConfig(family=family)
        world, source = build_workflows(config, LANES), DrawnWorkflows(config)
        columns = {}
        for policy in policies:
            results = run_suite(world, policy, TEST)
            columns[policy.name] = {metric: [one.metrics[metric] for one in results] for metric in METRICS}
            for metric, values in columns[policy.name].items():
                pooled[policy.name][metric] += values
        bounds = [lower_bound_usd(source.case(key)) for key in TEST.episode_keys()]
        families[family] = {**_measured(columns), "bound_usd": fmean(bounds)}
    return {"episodes": TEST.episodes, "families": families, "all": _measured(pooled)}


def _learned(spec: WorldSpec) -> Policy:
    policy = load_policy(policy_file(RELEASED), spec)
    policy.name = LEARNED
    return policy


def _measured(columns: Mapping[str, dict[str, list[float]]]) -> dict[str, Any]:
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
    titles = {**RULES, LEARNED: f"`{LEARNED}`"}
    every = document["all"]
    bound = fmean(cell["bound_usd"] for cell in document["families"].values())
    header = ["mean USD", *titles.values(), "bound", f"`{LEARNED}` against HEFT on spot", "against cheapest"]
    rows = [
        [
            family,
            *(f"{cell['means'][name]['cost_usd']:.2f}" for name in titles),
            f"{cell['bound_usd']:.2f}",
            *(interval_cell(cell["against"][LEARNED][other]) for other in AGAINST),
        ]
        for family, cell in {**document["families"], "**all**": {**every, "bound_usd": bound}}.items()
    ]
    details = [
        {**every["means"][name], "title": title, "late": every["missed"][name]}
        | {"hours": every["means"][name]["makespan_s"] / HOUR_S}
        for name, title in titles.items()
    ]
    pairs = [
        [
            f"`{ours}`",
            *(interval_cell(every["against"][ours][other]) for other in AGAINST),
            interval_cell(every["against"][ours]["workflow_cost"]) if ours == LEARNED else "",
        ]
        for ours in OURS
    ]
    return "\n\n".join(
        [
            table(header, rows),
            columns_table(DETAILS, details),
            table(["cost, all of them", "against HEFT on spot", "cheapest", "`workflow_cost`"], pairs),
        ]
    )
