"""The GIS workflow with private data: Liu 2022, Table 3.2."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from spotweave.agents.workflows.planners import PLANNERS, plan_workflow
from spotweave.envs.simulation.workflows import model
from spotweave.envs.simulation.workflows.checks import private_files
from spotweave.envs.simulation.workflows.plan import Plan, plan_of, require_possible
from spotweave.envs.simulation.workflows.problem import problem_of
from spotweave.training.studies.cells import table
from spotweave.training.studies.workflows.wordcount import GB_S, TRANSFER_S, off_by

NODES = {"first": 4, "second": 4, "central": 8}
THESIS = {
    "accumulation 1": ("first", 55.0),
    "accumulation 2": ("second", 59.0),
    "geographic mean": ("first", 23.0),
    "geographic median": ("central", 90.0),
    "final join": ("central", 45.0),
}
"""Printed cluster and seconds of each component."""
PRINTED_TOTAL_MIN = 2.8
PRINTED_ONE_CLUSTER_MIN = 3.3
SIZE_GB = 10.0  # not printed: private data stay, and the other half is read where it lies
SEEDS = range(20)


def case(*, one_cluster: bool = False) -> tuple[model.Workflow, model.Platform]:
    """Components with as many tasks as their cluster has nodes: Eq. 3.1 gives the printed times."""
    at = {name: "central" if one_cluster else name for name in NODES}
    half = SIZE_GB / 2
    files = (
        model.File("half 1", half, (at["first"],), model.Stays.CLUSTER),
        model.File("half 2", half, (at["second"],)),
        model.File("whole", SIZE_GB, ("central",), model.Stays.CLUSTER),
        *(model.File(name, 0.002) for name in ("sums 1", "sums 2", "means", "medians", "centers")),
    )
    edges = {
        "accumulation 1": (("half 1",), ("sums 1",)),
        "accumulation 2": (("half 2",), ("sums 2",)),
        "geographic mean": (("sums 1", "sums 2"), ("means",)),
        "geographic median": (("whole",), ("medians",)),
        "final join": (("means", "medians"), ("centers",)),
    }
    steps = tuple(
        model.Step(
            name,
            model.Profile((model.Stage(NODES[cluster], seconds),)),
            *edges[name],
            clusters=("central",) if name == "final join" else (),
        )
        for name, (cluster, seconds) in THESIS.items()
    )
    clusters = tuple(model.Cluster(name, NODES[name]) for name in (("central",) if one_cluster else NODES))
    return model.Workflow("gis", files, steps), model.Platform(clusters, model.Link(GB_S, TRANSFER_S))


def as_printed() -> Plan:
    """The print's own arrangement, run in simulation."""
    workflow, platform = case()
    names = [cluster.name for cluster in platform.clusters]
    problem = problem_of(workflow, platform)
    cluster = np.array([names.index(where) for where, _ in THESIS.values()])
    return require_possible(plan_of(workflow, platform, problem, cluster, problem.topological))


def make() -> dict[str, Any]:
    """The print's arrangement, ours, one cluster, and how often any planner moves private data."""
    plan = as_printed()
    planned = {
        name: [plan_workflow(name, *case(), seed) for seed in (SEEDS if name == "annealing" else SEEDS[:1])]
        for name in PLANNERS
    }
    private = private_files(plan.workflow)
    return {
        "components_s": {one.step: one.end_s - one.start_s for one in plan.placements},
        "total_min": plan.finish_s / 60,
        "planned_min": {name: plans[0].finish_s / 60 for name, plans in planned.items()},
        "one_cluster_min": plan_workflow("annealing", *case(one_cluster=True)).finish_s / 60,
        "plans": sum(len(plans) for plans in planned.values()),
        "private_moves": sum(
            move.file in private for plans in planned.values() for one in plans for move in one.moves()
        ),
    }


def body(document: Mapping[str, Any]) -> str:
    """Table 3.2: our plans beside the printed ones."""
    rows = [
        [name, f"{document['components_s'][name]:.0f} s", f"*{seconds:g} s*", ""]
        for name, (_, seconds) in THESIS.items()
    ]
    totals = (
        ("total, arranged as printed", document["total_min"], PRINTED_TOTAL_MIN),
        ("total on one cluster", document["one_cluster_min"], PRINTED_ONE_CLUSTER_MIN),
    )
    rows += [
        [f"**{name}**", f"{ours:.2f} min", f"*{printed:g} min*", off_by(ours, printed)]
        for name, ours, printed in totals
    ]
    rows += [
        [f"total, planned by {name}", f"{minutes:.2f} min", "", ""]
        for name, minutes in document["planned_min"].items()
    ]
    said = f"Private files moved in {document['plans']} plans: {document['private_moves']}."
    return table(["", "simulated", "*printed*", "off by"], rows) + "\n\n" + said
