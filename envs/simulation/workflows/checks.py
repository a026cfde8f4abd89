"""Whether a workflow can be carried out: its graph, and for each step the clusters that may run it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from graphlib import CycleError, TopologicalSorter

from spotweave.envs.simulation.workflows.model import (
    Cluster,
    File,
    Platform,
    Stays,
    Step,
    Workflow,
    WorkflowError,
)


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
