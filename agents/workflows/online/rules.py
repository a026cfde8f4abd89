"""The rules for workflows by name."""

from __future__ import annotations

from collections.abc import Callable

from agents.policy import Policy
from agents.workflows.online.cheapest import CheapestPlace
from agents.workflows.online.heft import HeftOnDemand, HeftSpot
from agents.workflows.online.workflow_cost import WorkflowCost

WORKFLOW_ENVIRONMENTS = ("workflows",)
"""Environments in which these rules are compared by default."""

WORKFLOW_RULES: dict[str, Callable[[], Policy]] = {
    HeftOnDemand.name: HeftOnDemand,
    HeftSpot.name: HeftSpot,
    CheapestPlace.name: CheapestPlace,
    WorkflowCost.name: WorkflowCost,
}

WORKFLOW_RULE_SOURCES = {
    "heft_on_demand": ("HEFT on demand", "Topcuoglu, Hariri and Wu 2002, step by step"),
    "heft_spot": ("HEFT on spot", "Topcuoglu, Hariri and Wu 2002, step by step; falls back to on demand"),
    "cheapest_place": ("Cheapest place", "common practice"),
    "workflow_cost": ("Expected cost of a workflow's steps", "Spotweave, docs/environments.md"),
}
"""Title and source of each."""
