"""A workflow and its clusters as arrays, which planners and the simulated running share."""

from __future__ import annotations

from graphlib import TopologicalSorter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from envs.simulation.workflows.checks import allowed, predecessors, writers
from envs.simulation.workflows.model import Platform, Workflow
from envs.simulation.workflows.performance import files_by_name, input_gb, occupied, run_s


class Problem(NamedTuple):
    """N steps and C clusters, numbered as in the workflow and the platform; E pairs of steps joined by files.

    Attributes:
        run_s: [N, C] seconds (Eq. 3.2); infinite where the cluster may not run the step.
        executors: [N, C] that the step occupies; 0 where the cluster may not run it.
        capacity: [C] executors.
        input_s: [N, C] when the files that lie somewhere at the start can all be at the cluster.
        first: [N + 1] step i waits for the pairs first[i] to first[i + 1] - 1.
        source: [E] the step waited for.
        gb: [E] the largest of the files between the two; smaller ones arrive before it.
        s_gb: [C, C] seconds per GB from one cluster to another; 0 within one.
        latency_s: [C, C] seconds whatever the size; 0 within one.
        topological: [N] the steps, each after all that it waits for.
    """

    run_s: NDArray[np.float64]
    executors: NDArray[np.int64]
    capacity: NDArray[np.int64]
    input_s: NDArray[np.float64]
    first: NDArray[np.int64]
    source: NDArray[np.int64]
    gb: NDArray[np.float64]
    s_gb: NDArray[np.float64]
    latency_s: NDArray[np.float64]
    topological: NDArray[np.int64]


def problem_of(workflow: Workflow, platform: Platform) -> Problem:
    """The arrays of a workflow that `checks.require_runnable` accepts."""
    clusters = platform.clusters
    number = {step.name: k for k, step in enumerate(workflow.steps)}
    files, written = files_by_name(workflow), writers(workflow)
    may = allowed(workflow, platform)
    shape = (len(workflow.steps), len(clusters))
    seconds, executors, ready_s = np.full(shape, np.inf), np.zeros(shape, np.int64), np.zeros(shape)
    first, source, gb = [0], list[int](), list[float]()
    for i, step in enumerate(workflow.steps):
        read_gb = input_gb(step, files)
        largest: dict[int, float] = {}
        for file in (files[name] for name in step.reads):
            if file.name in written:
                writer = number[written[file.name].name]
                largest[writer] = max(file.gb, largest.get(writer, 0.0))
        for c, cluster in enumerate(clusters):
            if cluster.name in may[step.name]:
                seconds[i, c] = run_s(step, read_gb, cluster)
                executors[i, c] = occupied(step, cluster)
            ready_s[i, c] = max(
                (
                    min(platform.transfer_s(files[name].gb, at, cluster.name) for at in files[name].at)
                    for name in step.reads
                    if name not in written
                ),
                default=0.0,
            )
        source += largest.keys()
        gb += largest.values()
        first.append(len(source))
    links = [[platform.between(a.name, b.name) for b in clusters] for a in clusters]
    order = TopologicalSorter(predecessors(workflow)).static_order()
    return Problem(
        seconds,
        executors,
        np.array([cluster.executors for cluster in clusters]),
        ready_s,
        np.array(first),
        np.array(source, np.int64),
        np.array(gb, np.float64),
        np.array([[1 / link.gb_s for link in row] for row in links]),
        np.array([[link.latency_s for link in row] for row in links]),
        np.array([number[name] for name in order]),
    )
