"""Recorded workflows in WfFormat, the JSON of WfCommons (Coleman et al. 2022): versions 1.0 to 1.6."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from envs.simulation.workflows.checks import require_sound
from envs.simulation.workflows.model import File, Profile, Stage, Step, Workflow, WorkflowError
from spotweave.documents import Number, StrictModel, checked

VERSIONS = ("1.0", "1.1", "1.2", "1.3", "1.4", "1.5", "1.6")
BYTES_PER_GB = 1e9
BYTES_PER_GIB = 2.0**30


class _Task(StrictModel):
    parents: list[str]
    children: list[str]
    reads: list[str]
    writes: list[str]
    run_s: Number
    cores: Number
    memory_bytes: Number


class _Instance(StrictModel):
    name: str
    tasks: dict[str, _Task]
    sizes: dict[str, Number]


def is_instance(document: object) -> bool:
    """Whether a parsed JSON file says that it is in WfFormat."""
    return isinstance(document, dict) and "schemaVersion" in document


def workflow_of_instance(document: object, home: str) -> Workflow:
    """The workflow that a parsed instance describes.

    A task becomes a step that takes as long as recorded on executors of speed 1, one for each of its cores.
    Where a task waits for a parent without reading what it wrote, an empty file stands for that.

    Args:
        document: the parsed JSON.
        home: the cluster at which all files lie that no task writes.

    Raises:
        WorkflowError: one line that names the field, its value and what is expected.
    """
    try:
        return require_sound(_workflow(document, home))
    except (KeyError, TypeError, AttributeError) as error:
        raise WorkflowError(f"the instance does not follow WfFormat: {error!r}") from error


def _workflow(document: object, home: str) -> Workflow:
    top: Mapping[str, Any] = document if isinstance(document, dict) else {}
    version = top.get("schemaVersion")
    if version not in VERSIONS:
        raise WorkflowError(f"schemaVersion is {version!r}, expected one of {', '.join(VERSIONS)}")
    tasks, sizes = (_since_1_5 if version in ("1.5", "1.6") else _until_1_4)(top["workflow"], str(version))
    found = checked(_Instance, {"name": top["name"], "tasks": tasks, "sizes": sizes}, WorkflowError)
    reads = {
        name: [one for one in task.reads if one not in task.writes] for name, task in found.tasks.items()
    }
    writes = {name: list(task.writes) for name, task in found.tasks.items()}
    # Parents and children should agree; an edge of either list is one.
    parents = {name: list(task.parents) for name, task in found.tasks.items()}
    for name, task in found.tasks.items():
        for child in task.children:
            if child not in parents:
                raise WorkflowError(f"task {name!r} has the child {child!r}, which is no task")
            if name not in parents[child]:
                parents[child].append(name)
    for name in parents:
        for parent in parents[name]:
            if parent not in parents:
                raise WorkflowError(f"task {name!r} has the parent {parent!r}, which is no task")
            if not set(reads[name]) & set(writes[parent]):
                edge = f"{parent} before {name}"
                found.sizes[edge] = 0.0
                reads[name].append(edge)
                writes[parent].append(edge)
    written = {file for files in writes.values() for file in files}
    used = dict.fromkeys(file for files in (*reads.values(), *writes.values()) for file in files)
    for file in used:
        if file not in found.sizes:
            raise WorkflowError(f"file {file!r} has no size: add it to the files")
    return Workflow(
        found.name,
        tuple(
            File(file, found.sizes[file] / BYTES_PER_GB, () if file in written else (home,)) for file in used
        ),
        tuple(
            Step(name, _profile(task), tuple(dict.fromkeys(reads[name])), tuple(writes[name]))
            for name, task in found.tasks.items()
        ),
    )


def _profile(task: _Task) -> Profile:
    cores = max(1, math.ceil(task.cores))
    memory_gib = task.memory_bytes / BYTES_PER_GIB / cores
    return Profile((Stage(cores, task.run_s),), executors=cores, memory_gib=memory_gib)


def _since_1_5(workflow: Mapping[str, Any], _: str) -> tuple[dict[str, dict[str, Any]], dict[str, Any]]:
    """Tasks by id, sizes by file id; what ran is apart from what was specified."""
    specification = workflow["specification"]
    if "execution" not in workflow:
        raise WorkflowError("the instance has no execution, so that its run times are unknown")
    ran = {entry["id"]: entry for entry in workflow["execution"]["tasks"]}
    tasks = {}
    for entry in specification["tasks"]:
        name = entry["id"]
        if name not in ran:
            raise WorkflowError(f"task {name!r} has no run time: its execution is not recorded")
        tasks[name] = {
            "parents": entry["parents"],
            "children": entry.get("children", []),
            "reads": entry.get("inputFiles", []),
            "writes": entry.get("outputFiles", []),
            "run_s": ran[name]["runtimeInSeconds"],
            "cores": ran[name].get("coreCount", 1),
            "memory_bytes": ran[name].get("memoryInBytes", 0),
        }
    return tasks, {entry["id"]: entry["sizeInBytes"] for entry in specification.get("files", [])}


def _until_1_4(workflow: Mapping[str, Any], version: str) -> tuple[dict[str, dict[str, Any]], dict[str, Any]]:
    """As `_since_1_5`; tasks name each other, and files with a direction belong to a task."""
    old = version != "1.4"
    run_s, size = ("runtime", "size") if old else ("runtimeInSeconds", "sizeInBytes")
    # In thousands of bytes before version 1.4.
    memory, unit = ("memory", 1000) if old else ("memoryInBytes", 1)
    tasks, sizes = {}, {}
    # Called jobs before version 1.3.
    for entry in workflow["jobs" if "jobs" in workflow else "tasks"]:
        files = [(one.get("path", "") + one["name"], one) for one in entry.get("files", [])]
        sizes.update({name: one[size] for name, one in files})
        tasks[entry["name"]] = {
            "parents": entry.get("parents", []),
            "children": entry.get("children", []),
            "reads": [name for name, one in files if one["link"] == "input"],
            "writes": [name for name, one in files if one["link"] == "output"],
            "run_s": entry[run_s],
            "cores": entry.get("cores", 1),
            "memory_bytes": entry.get(memory, 0) * unit,
        }
    return tasks, sizes
