"""Workflow files: checking and writing what JSON or YAML holds.

A workflow file:

    {"name": "gis", "deadline_s": 300,
     "files": {"tweets-1": {"gb": 5, "at": ["first"], "stays": true}, "sums-1": {"gb": 0.01}},
     "steps": {"accumulate-1": {"reads": ["tweets-1"], "writes": ["sums-1"], "sample_gb": 1,
                                "stages": [{"tasks": 8, "task_s": 5.5, "shuffle_s": 2}]}},
     "clusters": {"first": {"executors": 4}, "second": {"executors": 4, "price_usd_hour": 0.2}},
     "network": {"gb_s": 0.1, "latency_s": 20, "pairs": [{"between": ["first", "second"], "gb_s": 0.05}]}}

A step has either `stages` (Liu 2022, Eq. 3.2) or `run_s`, measured seconds by cluster. An unknown key is
refused: a misspelt one would otherwise be ignored.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from spotweave.documents import Number, Positive, StrictModel, checked
from spotweave.envs.simulation.workflows import model
from spotweave.envs.simulation.workflows.model import File, Profile, Stage, Step, Workflow, WorkflowError
from spotweave.envs.simulation.workflows.problem import require_runnable, require_sound

Some = Annotated[int, Field(ge=1)]
Names = tuple[str, ...]


class _File(StrictModel):
    gb: Number
    at: Names = ()
    stays: bool | model.Stays = model.Stays.FREE


class _Stage(StrictModel):
    tasks: Some
    task_s: Number
    shuffle_s: Number = 0.0


class _Profile(StrictModel):
    stages: Annotated[tuple[_Stage, ...] | None, Field(min_length=1)] = None
    run_s: Annotated[dict[str, Number] | None, Field(min_length=1)] = None
    sample_gb: Positive | None = None
    executors: Some | None = None
    memory_gib: Number = 0.0

    @model_validator(mode="after")
    def _either(self) -> Self:
        if (self.stages is None) == (self.run_s is None):
            which = "neither" if self.stages is None else "both"
            raise ValueError(f"expected either stages or run_s, {which} of them is given")
        return self

    def built(self) -> model.Profile:
        """As the simulation has it."""
        stages = tuple(model.Stage(**dict(stage)) for stage in self.stages or ())
        return model.Profile(stages, self.sample_gb, self.run_s or {}, self.executors, self.memory_gib)


class _Divisible(StrictModel):
    part_gb: Number
    collect: _Profile


class _Step(_Profile):
    reads: Names = ()
    writes: Names = ()
    clusters: Names = ()
    divisible: _Divisible | None = None


class _Cluster(StrictModel):
    executors: Some
    speed: Positive = 1.0
    network_factor: Number = 1.0
    memory_gib: Positive = math.inf
    region: str = ""
    price_usd_hour: Number = 0.0


class _Link(StrictModel):
    gb_s: Positive
    latency_s: Number = 0.0

    def built(self) -> model.Link:
        """As the simulation has it."""
        return model.Link(self.gb_s, self.latency_s)


class _Pair(_Link):
    between: tuple[str, str]


class _Network(_Link):
    pairs: tuple[_Pair, ...] = ()


class _Workflow(StrictModel):
    name: str = "workflow"
    deadline_s: Positive | None = None
    files: Annotated[dict[str, _File], Field(min_length=1)]
    steps: Annotated[dict[str, _Step], Field(min_length=1)]
    clusters: Annotated[dict[str, _Cluster], Field(min_length=1)]
    network: _Network


def workflow_of(document: object) -> tuple[model.Workflow, model.Platform]:
    """The workflow and the clusters that a parsed workflow file describes, checked.

    Raises:
        WorkflowError: one line that names the field, its value and what is expected.
    """
    found = checked(_Workflow, document, WorkflowError)
    workflow = model.Workflow(
        found.name,
        tuple(_file(name, entry) for name, entry in found.files.items()),
        tuple(_step(name, entry) for name, entry in found.steps.items()),
        found.deadline_s,
    )
    clusters = tuple(model.Cluster(name, **dict(entry)) for name, entry in found.clusters.items())
    platform = model.Platform(clusters, found.network.built(), _pairs(found))
    require_runnable(require_sound(workflow), platform)
    return workflow, platform


def workflow_document(workflow: model.Workflow, platform: model.Platform) -> dict[str, Any]:
    """What `workflow_of` reads back as the same workflow and clusters."""
    deadline = {} if workflow.deadline_s is None else {"deadline_s": workflow.deadline_s}
    pairs = [{"between": sorted(pair), **_given(link)} for pair, link in platform.pairs.items()]
    return {
        "name": workflow.name,
        **deadline,
        "files": {file.name: _given(file) for file in workflow.files},
        "steps": {step.name: _step_document(step) for step in workflow.steps},
        "clusters": {cluster.name: _given(cluster) for cluster in platform.clusters},
        "network": {**_given(platform.link), "pairs": pairs},
    }


def _file(name: str, entry: _File) -> model.File:
    stays = entry.stays
    if isinstance(stays, bool):
        stays = model.Stays.CLUSTER if stays else model.Stays.FREE
    return model.File(name, entry.gb, entry.at, stays)


def _step(name: str, entry: _Step) -> model.Step:
    part = entry.divisible
    divisible = None if part is None else model.Divisible(part.part_gb, part.collect.built())
    return model.Step(name, entry.built(), entry.reads, entry.writes, entry.clusters, divisible)


def _pairs(found: _Workflow) -> dict[frozenset[str], model.Link]:
    pairs: dict[frozenset[str], model.Link] = {}
    for k, pair in enumerate(found.network.pairs):
        owner, between = f"network.pairs.{k}.between", frozenset(pair.between)
        for name in pair.between:
            if name not in found.clusters:
                raise WorkflowError(f"{owner} is {name!r}, expected one of {', '.join(found.clusters)}")
        if len(between) != 2:
            raise WorkflowError(f"{owner} is {pair.between[0]!r} twice, expected the names of two clusters")
        if between in pairs:
            raise WorkflowError(f"{owner} {' and '.join(sorted(between))} is given before: once is enough")
        pairs[between] = pair.built()
    return pairs


def _step_document(step: model.Step) -> dict[str, Any]:
    found = _given(step) | _profile_document(step.profile)
    del found["profile"]
    if step.divisible is not None:
        collect = _profile_document(step.divisible.collect)
        found["divisible"] = {"part_gb": step.divisible.part_gb, "collect": collect}
    return found


def _profile_document(profile: model.Profile) -> dict[str, Any]:
    stages = {"stages": [_given(stage) for stage in profile.stages]} if profile.stages else {}
    return _given(profile) | stages


def _given(thing: Any) -> dict[str, Any]:
    """Fields of a dataclass but its name that are not as by default."""
    values = {one: getattr(thing, one.name) for one in fields(thing) if one.name != "name"}
    return {one.name: value for one, value in values.items() if value not in (one.default, (), {})}


# Recorded workflows in WfFormat, the JSON of WfCommons (Coleman et al. 2022).

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
