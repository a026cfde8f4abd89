"""Workflow files: checking and writing what JSON or YAML holds. Standard library only.

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

from collections.abc import Mapping
from typing import Any

from envs.simulation.bags.fields import (
    require_list,
    require_named,
    require_number,
    require_object,
    require_one_of,
    require_text,
    require_whole,
)
from envs.simulation.bags.model import BagError
from envs.simulation.workflows.checks import require_runnable, require_sound
from envs.simulation.workflows.model import (
    Cluster,
    Divisible,
    File,
    Link,
    Platform,
    Profile,
    Stage,
    Stays,
    Step,
    Workflow,
    WorkflowError,
)

_PROFILE = ("stages", "sample_gb", "run_s", "executors", "memory_gib")
_CLUSTER = ("speed", "network_factor", "memory_gib", "region", "price_usd_hour")


def workflow_of(document: object) -> tuple[Workflow, Platform]:
    """The workflow and the clusters that a parsed workflow file describes, checked.

    Raises:
        WorkflowError: one line that names the field, its value and what is expected.
    """
    try:
        return _both_of(document)
    except BagError as error:  # of the shared checks of fields
        raise WorkflowError(str(error)) from error


def _both_of(document: object) -> tuple[Workflow, Platform]:
    top = require_object(
        "the workflow", document, ("files", "steps", "clusters", "network"), ("name", "deadline_s")
    )
    workflow = Workflow(
        require_text("name", top.get("name", "workflow")),
        tuple(_file(name, entry) for name, entry in require_named("files", top["files"]).items()),
        tuple(_step(name, entry) for name, entry in require_named("steps", top["steps"]).items()),
        _optional(top, "", "deadline_s", above=0),
    )
    clusters = require_named("clusters", top["clusters"])
    platform = Platform(
        tuple(_cluster(name, entry) for name, entry in clusters.items()),
        *_network(top["network"], tuple(clusters)),
    )
    require_runnable(require_sound(workflow), platform)
    return workflow, platform


def workflow_document(workflow: Workflow, platform: Platform) -> dict[str, Any]:
    """What `workflow_of` reads back as the same workflow and clusters."""
    deadline = {} if workflow.deadline_s is None else {"deadline_s": workflow.deadline_s}
    return {
        "name": workflow.name,
        **deadline,
        "files": {file.name: _file_document(file) for file in workflow.files},
        "steps": {step.name: _step_document(step) for step in workflow.steps},
        "clusters": {cluster.name: _cluster_document(cluster) for cluster in platform.clusters},
        "network": {
            **_link_document(platform.link),
            "pairs": [
                {"between": sorted(pair), **_link_document(link)} for pair, link in platform.pairs.items()
            ],
        },
    }


def _file(name: str, entry: object) -> File:
    owner = f"files.{name}"
    fields = require_object(owner, entry, ("gb",), ("at", "stays"))
    stays = fields.get("stays", False)
    if isinstance(stays, bool):
        stays = Stays.CLUSTER if stays else Stays.FREE
    return File(
        name,
        require_number(f"{owner}.gb", fields["gb"]),
        _names(fields, owner, "at"),
        Stays(require_one_of(f"{owner}.stays", stays, tuple(Stays))),
    )


def _step(name: str, entry: object) -> Step:
    owner = f"steps.{name}"
    fields = require_object(owner, entry, (), ("reads", "writes", "clusters", "divisible", *_PROFILE))
    return Step(
        name,
        _profile(owner, fields),
        _names(fields, owner, "reads"),
        _names(fields, owner, "writes"),
        _names(fields, owner, "clusters"),
        _divisible(f"{owner}.divisible", fields["divisible"]) if "divisible" in fields else None,
    )


def _profile(owner: str, fields: Mapping[str, Any]) -> Profile:
    if ("stages" in fields) == ("run_s" in fields):
        raise WorkflowError(f"{owner} has {_which(fields)}, expected either stages or run_s")
    stages = []
    for k, entry in enumerate(require_list(fields, "stages") if "stages" in fields else []):
        at = f"{owner}.stages[{k}]"
        stage = require_object(at, entry, ("tasks", "task_s"), ("shuffle_s",))
        stages.append(
            Stage(
                require_whole(f"{at}.tasks", stage["tasks"], least=1),
                require_number(f"{at}.task_s", stage["task_s"]),
                require_number(f"{at}.shuffle_s", stage.get("shuffle_s", 0.0)),
            )
        )
    if "stages" in fields and not stages:
        raise WorkflowError(f"{owner}.stages is empty, expected at least one stage")
    measured = require_named(f"{owner}.run_s", fields["run_s"]) if "run_s" in fields else {}
    return Profile(
        tuple(stages),
        _optional(fields, owner, "sample_gb", above=0),
        {name: require_number(f"{owner}.run_s.{name}", value) for name, value in measured.items()},
        require_whole(f"{owner}.executors", fields["executors"], least=1) if "executors" in fields else None,
        require_number(f"{owner}.memory_gib", fields.get("memory_gib", 0.0)),
    )


def _which(fields: Mapping[str, Any]) -> str:
    return "both stages and run_s" if "stages" in fields else "neither stages nor run_s"


def _divisible(owner: str, entry: object) -> Divisible:
    fields = require_object(owner, entry, ("part_gb", "collect"))
    collect = require_object(f"{owner}.collect", fields["collect"], (), _PROFILE)
    return Divisible(
        require_number(f"{owner}.part_gb", fields["part_gb"]), _profile(f"{owner}.collect", collect)
    )


def _cluster(name: str, entry: object) -> Cluster:
    owner = f"clusters.{name}"
    fields = require_object(owner, entry, ("executors",), _CLUSTER)
    positive = {
        key: require_number(f"{owner}.{key}", fields[key], above=0)
        for key in ("speed", "memory_gib")
        if key in fields
    }
    others = {
        key: require_number(f"{owner}.{key}", fields[key])
        for key in ("network_factor", "price_usd_hour")
        if key in fields
    }
    return Cluster(
        name,
        require_whole(f"{owner}.executors", fields["executors"], least=1),
        region=require_text(f"{owner}.region", fields.get("region", "")),
        **positive,
        **others,
    )


def _network(entry: object, names: tuple[str, ...]) -> tuple[Link, dict[frozenset[str], Link]]:
    fields = require_object("network", entry, ("gb_s",), ("latency_s", "pairs"))
    pairs = {}
    for k, one in enumerate(require_list(fields, "pairs") if "pairs" in fields else []):
        owner = f"network.pairs[{k}]"
        pair = require_object(owner, one, ("between", "gb_s"), ("latency_s",))
        between = frozenset(_names(pair, owner, "between"))
        for name in between:
            require_one_of(f"{owner}.between", name, names)
        if len(between) != 2:
            raise WorkflowError(f"{owner}.between is {pair['between']}, expected the names of two clusters")
        if between in pairs:
            raise WorkflowError(
                f"{owner}.between {' and '.join(sorted(between))} is given before: once is enough"
            )
        pairs[between] = _link(owner, pair)
    return _link("network", fields), pairs


def _link(owner: str, fields: Mapping[str, Any]) -> Link:
    return Link(
        require_number(f"{owner}.gb_s", fields["gb_s"], above=0),
        require_number(f"{owner}.latency_s", fields.get("latency_s", 0.0)),
    )


def _names(fields: Mapping[str, Any], owner: str, key: str) -> tuple[str, ...]:
    if key not in fields:
        return ()
    return tuple(
        require_text(f"{owner}.{key}[{k}]", name) for k, name in enumerate(require_list(fields, key))
    )


def _optional(fields: Mapping[str, Any], owner: str, key: str, above: float) -> float | None:
    return require_number(f"{owner}.{key}".lstrip("."), fields[key], above=above) if key in fields else None


def _file_document(file: File) -> dict[str, Any]:
    found: dict[str, Any] = {"gb": file.gb}
    if file.at:
        found["at"] = list(file.at)
    if file.stays != Stays.FREE:
        found["stays"] = file.stays
    return found


def _step_document(step: Step) -> dict[str, Any]:
    found = {
        key: list(names)
        for key, names in (("reads", step.reads), ("writes", step.writes), ("clusters", step.clusters))
        if names
    }
    divisible = step.divisible and {
        "divisible": {
            "part_gb": step.divisible.part_gb,
            "collect": _profile_document(step.divisible.collect),
        }
    }
    return {**found, **_profile_document(step.profile), **(divisible or {})}


def _profile_document(profile: Profile) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if profile.run_s:
        found["run_s"] = dict(profile.run_s)
    else:
        found["stages"] = [
            {"tasks": stage.tasks, "task_s": stage.task_s, "shuffle_s": stage.shuffle_s}
            for stage in profile.stages
        ]
    if profile.sample_gb is not None:
        found["sample_gb"] = profile.sample_gb
    if profile.executors is not None:
        found["executors"] = profile.executors
    if profile.memory_gib:
        found["memory_gib"] = profile.memory_gib
    return found


def _cluster_document(cluster: Cluster) -> dict[str, Any]:
    plain = Cluster(cluster.name, cluster.executors)
    return {
        "executors": cluster.executors,
        **{key: getattr(cluster, key) for key in _CLUSTER if getattr(cluster, key) != getattr(plain, key)},
    }


def _link_document(link: Link) -> dict[str, float]:
    return {"gb_s": link.gb_s, "latency_s": link.latency_s}
