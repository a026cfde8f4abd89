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
from dataclasses import fields
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from envs.simulation.workflows import model
from envs.simulation.workflows.checks import require_runnable, require_sound
from envs.simulation.workflows.model import WorkflowError
from spotweave.documents import Number, Positive, StrictModel, checked

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
