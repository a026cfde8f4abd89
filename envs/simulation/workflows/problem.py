"""A workflow and its clusters as arrays, which planners and the simulated running share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from graphlib import CycleError, TopologicalSorter
from typing import NamedTuple

import numpy as np
from numba import njit

from spotweave.envs.simulation.compiled import linked
from spotweave.envs.simulation.series import Floats, Ints
from spotweave.envs.simulation.workflows.model import (
    Cluster,
    File,
    Platform,
    Stays,
    Step,
    Workflow,
    WorkflowError,
    files_by_name,
    input_gb,
    occupied,
    run_s,
)


class Problem(NamedTuple):
    """N steps and C clusters, numbered as in the workflow and the platform; E pairs of steps share files."""

    run_s: Floats  # [N, C] seconds (Eq. 3.2); infinite where the cluster may not run the step
    executors: Ints  # [N, C] that the step occupies; 0 where the cluster may not run it
    capacity: Ints  # [C] executors
    input_s: Floats  # [N, C] when the files that lie somewhere at the start can all be at the cluster
    first: Ints  # [N + 1] step i waits for the pairs first[i] to first[i + 1] - 1
    source: Ints  # [E] the step waited for
    gb: Floats  # [E] the largest of the files between the two; smaller ones arrive before it
    s_gb: Floats  # [C, C] seconds per GB from one cluster to another; 0 within one
    latency_s: Floats  # [C, C] seconds whatever the size; 0 within one
    topological: Ints  # [N] the steps, each after all that it waits for


def problem_of(workflow: Workflow, platform: Platform) -> Problem:
    """The arrays of a workflow that `require_runnable` accepts."""
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


# Simulated running: Liu 2022, Eq. 3.3 and the evaluation function E() of Algorithm 2. Compiled.


@linked()
def arrival_s(problem: Problem, step: int, there: int, cluster: Ints, end_s: Floats) -> float:
    """When all that a step reads is at a cluster: t' of Eq. 3.3.

    Args:
        problem: the workflow and its clusters.
        step: whose files.
        there: the cluster.
        cluster: [N] where the steps that it waits for run.
        end_s: [N] when they end.
    """
    latest = problem.input_s[step, there]
    for pair in range(problem.first[step], problem.first[step + 1]):
        writer = problem.source[pair]
        here = cluster[writer]
        moving_s = problem.latency_s[here, there] + problem.gb[pair] * problem.s_gb[here, there]
        latest = max(latest, end_s[writer] + moving_s)
    return float(latest)


@njit(cache=True, error_model="numpy")
def occupy(free_s: Floats, executors: int, ready_s: float, run_s: float) -> float:
    """Start a step as early as its executors are free, and give the start.

    Args:
        free_s: [executors of the cluster] when each is free, ascending; changed in place.
        executors: how many the step occupies.
        ready_s: it starts no earlier.
        run_s: for so long.
    """
    start_s = max(ready_s, free_s[executors - 1])
    # It takes those that became free last: the others can serve steps that are ready earlier.
    last = executors
    while last < len(free_s) and free_s[last] <= start_s:
        last += 1
    end_s = start_s + run_s
    place = last - executors
    while place + executors < len(free_s) and free_s[place + executors] < end_s:
        free_s[place] = free_s[place + executors]
        place += 1
    free_s[place : place + executors] = end_s
    return float(start_s)


# Sums of the same numbers in another order differ in the last digits.
ROUNDING_S = 1e-9


@njit(cache=True, error_model="numpy")
def simulate(
    problem: Problem,
    tail_s: Floats,
    limit_s: float,
    cluster: Ints,
    order: Ints,
    free_s: Floats,
    start_s: Floats,
    end_s: Floats,
) -> float:
    """Run all steps, and give the end of the last: E() of Eq. 3.4.

    Each cluster takes its steps in the order given; a step starts once its files are there and enough
    executors are free: job_st = max(t', cluster_at) of Eq. 3.3. Every schedule in which no step can start
    earlier by itself is that of the order of its starts, so nothing is lost by describing schedules so.

    Args:
        problem: the workflow and its clusters.
        tail_s: [N] the least from the end of each step to the end of all.
        limit_s: once the end must come later, it is given as infinite, and the rest is not run.
        cluster: [N] where each step runs.
        order: [N] the steps, each after all that it waits for.
        free_s: [C, executors of the largest cluster] work space.
        start_s: [N] filled in.
        end_s: [N] filled in.
    """
    free_s[:] = 0.0
    finish_s = 0.0
    for step in order:
        there = cluster[step]
        run_s = problem.run_s[step, there]
        ready_s = arrival_s(problem, step, there, cluster, end_s)
        free = free_s[there, : problem.capacity[there]]
        start_s[step] = occupy(free, problem.executors[step, there], ready_s, run_s)
        end_s[step] = start_s[step] + run_s
        if end_s[step] + tail_s[step] > limit_s + ROUNDING_S:
            return np.inf
        finish_s = max(finish_s, end_s[step])
    return finish_s


# Whether a workflow can be carried out: its graph, and for each step the clusters that may run it.


def writers(workflow: Workflow) -> dict[str, Step]:
    """The step that writes each file, by the file's name. Raises WorkflowError where two write one."""
    found: dict[str, Step] = {}
    for step in workflow.steps:
        for name in step.writes:
            if name in found:
                raise WorkflowError(
                    f"both {found[name].name!r} and {step.name!r} write the file {name!r}, expected one step"
                )
            found[name] = step
    return found


def predecessors(workflow: Workflow) -> dict[str, tuple[str, ...]]:
    """The names of the steps whose files each step reads. Raises as `writers`."""
    by_file = writers(workflow)
    return {
        step.name: tuple(dict.fromkeys(by_file[name].name for name in step.reads if name in by_file))
        for step in workflow.steps
    }


def require_sound(workflow: Workflow) -> Workflow:
    """The workflow itself, if its graph makes sense whatever the clusters are.

    Raises:
        WorkflowError: for no steps, names given twice, files that are unknown, come from nowhere, or both lie
            somewhere and are written, files that a step writes and that stay, and cycles.
    """
    if not workflow.steps:
        raise WorkflowError("the workflow has no steps, expected at least one")
    _require_unique("step", (step.name for step in workflow.steps))
    _require_unique("file", (file.name for file in workflow.files))
    files = {file.name: file for file in workflow.files}
    for step in workflow.steps:
        for name in (*step.reads, *step.writes):
            if name not in files:
                raise WorkflowError(
                    f"step {step.name!r} names the file {name!r}, which is not among the files: add it there"
                )
        _require_unique(f"file read by step {step.name!r}", step.reads)
    written = writers(workflow)
    for file in workflow.files:
        if file.name in written and file.at:
            raise WorkflowError(
                f"file {file.name!r} is written by step {written[file.name].name!r} and lies at "
                f"{', '.join(file.at)} from the start, expected one of the two"
            )
        if file.name not in written and not file.at:
            raise WorkflowError(
                f"file {file.name!r} is written by no step and lies nowhere: say at which clusters it lies"
            )
        if file.name in written and file.stays != Stays.FREE:
            raise WorkflowError(
                f"file {file.name!r} stays, but is written by step {written[file.name].name!r}: say instead "
                f"which clusters may run the steps that write and read it"
            )
    try:
        TopologicalSorter(predecessors(workflow)).prepare()
    except CycleError as error:
        raise WorkflowError(
            f"the steps {' -> '.join(reversed(error.args[1]))} wait for each other in a cycle: remove a file"
        ) from error
    return workflow


def require_runnable(workflow: Workflow, platform: Platform) -> None:
    """Check that each step has a cluster that may run it.

    Raises:
        WorkflowError: for unknown clusters, a step that fits nowhere, and private data that no cluster with
            room for the step may read.
    """
    names = [cluster.name for cluster in platform.clusters]
    known = ", ".join(names)
    for file in workflow.files:
        for name in file.at:
            if name not in names:
                raise WorkflowError(f"file {file.name!r} lies at {name!r}, expected one of {known}")
            if file.stays == Stays.REGION and not platform.cluster(name).region:
                raise WorkflowError(
                    f"file {file.name!r} may not leave its region, but cluster {name!r} has none: name it"
                )
    private = private_files(workflow)
    for step in workflow.steps:
        for name in (*step.clusters, *step.profile.run_s):
            if name not in names:
                raise WorkflowError(f"step {step.name!r} names the cluster {name!r}, expected one of {known}")
        fitting = [cluster for cluster in platform.clusters if fits(step, cluster)]
        if not fitting:
            needed = "a run time there" if step.profile.run_s else f"{step.profile.executors or 1} executors"
            raise WorkflowError(
                f"step {step.name!r} fits nowhere: no cluster that may run it has {needed} with "
                f"{step.profile.memory_gib:g} GiB each"
            )
        if not any(may_read(step, cluster, private, platform) for cluster in fitting):
            named = [
                f"{file.name!r} ({file.stays}: {', '.join(file.at)})"
                for file in (private[name] for name in step.reads if name in private)
            ]
            raise WorkflowError(
                f"step {step.name!r} reads private data that no cluster with room for it may read: "
                f"{' and '.join(named)}; room is at {', '.join(cluster.name for cluster in fitting)}"
            )


def allowed(workflow: Workflow, platform: Platform) -> dict[str, tuple[str, ...]]:
    """For each step, by name, the clusters that may run it: room, its own list, and private data."""
    private = private_files(workflow)
    return {
        step.name: tuple(
            cluster.name
            for cluster in platform.clusters
            if fits(step, cluster) and may_read(step, cluster, private, platform)
        )
        for step in workflow.steps
    }


def fits(step: Step, cluster: Cluster) -> bool:
    """Whether the cluster has the step's executors and memory, and the step does not name others."""
    profile = step.profile
    return (
        (profile.executors or 1) <= cluster.executors
        and profile.memory_gib <= cluster.memory_gib
        and (not step.clusters or cluster.name in step.clusters)
        and (not profile.run_s or cluster.name in profile.run_s)
    )


def private_files(workflow: Workflow) -> dict[str, File]:
    """The files that may not be moved everywhere, by name."""
    return {file.name: file for file in workflow.files if file.stays != Stays.FREE}


def may_read(step: Step, cluster: Cluster, private: Mapping[str, File], platform: Platform) -> bool:
    """Whether all private data that the step reads may be at the cluster."""
    return all(may_hold(private[name], cluster, platform) for name in step.reads if name in private)


def may_hold(file: File, cluster: Cluster, platform: Platform) -> bool:
    """Whether a copy of the file may be at the cluster."""
    if file.stays == Stays.FREE or cluster.name in file.at:
        return True
    regions = {platform.cluster(name).region for name in file.at}
    return file.stays == Stays.REGION and cluster.region in regions


def _require_unique(what: str, names: Iterable[str]) -> None:
    for name, times in Counter(names).items():
        if times > 1:
            raise WorkflowError(f"the {what} {name!r} is given {times} times, expected once")
