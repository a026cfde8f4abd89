"""A step as the Spark application that it is, and where its files are."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import quote

from spotweave.deploy.model.jobs import JobSpec, Profile, SparkBatch
from spotweave.deploy.model.tasks import Assignment
from spotweave.deploy.model.workflows import InputFile, Step, Workflow
from spotweave.deploy.runners.spark.driver import check_job
from spotweave.deploy.runners.spark.settings import SparkSettings

NAMED = re.compile(r"\{([a-z0-9-]+)\}")  # a file in an argument


def workflow(spec: JobSpec) -> Workflow:
    """The workflow of a job. Raises ValueError for another kind."""
    if isinstance(spec.work, Workflow):
        return spec.work
    raise ValueError(f"kind {spec.work.kind} is not a workflow")


def place(region: str) -> str:
    """The name of a region as that of a folder."""
    return f"at-{quote(region, safe='')}"


# The files of a job on the cluster of a region; paths are below the job's folder.


def kept_path(region: str, name: str) -> str:
    """Path of a complete file."""
    return f"workspace/{place(region)}/files/{name}"


def written_path(region: str, step: str, attempt: int, name: str) -> str:
    """Path of a file in one attempt at a step, which other attempts do not see."""
    return f"workspace/{place(region)}/attempts/{step}.{attempt}/{name}"


def application(spec: JobSpec, step: Step, files: Mapping[str, Path]) -> JobSpec:
    """The Spark job of a step; `files` says by name what stands for it in arguments."""

    def filled(word: str) -> str:
        return NAMED.sub(lambda found: str(files.get(found[1], found[0])), word)

    return JobSpec(
        name=spec.name,
        work=SparkBatch(
            script=step.script, args=tuple(map(filled, step.args)), conf=step.conf, py_files=step.py_files
        ),
        resources=spec.resources_of(step.name),
        env=spec.env,
    )


def assigned(assignment: Assignment, data: Mapping[str, Path]) -> Assignment:
    """The attempt at a step as one at the Spark job that it is; `data`: folders of clusters by region."""
    work, region = workflow(assignment.spec), assignment.nodes[0].region
    step, folder = work.step(assignment.key.task), Path(assignment.workdir).resolve()
    files = {name: folder / kept_path(region, name) for name in step.reads}
    for file in work.files:
        if file.name in files and file.region is None:
            files[file.name] = folder / file.path
        elif file.name in files and file.region == region:
            files[file.name] = data[region] / file.path
    for output in step.writes:
        files[output.name] = folder / written_path(region, step.name, assignment.attempt, output.name)
    return replace(assignment, spec=application(assignment.spec, step, files))


# Workflows that can never run, refused before anything is rented.

_OF_A_PROFILE = {"reference_speed", "sensitivity"}


def check(spec: JobSpec, folder: Path, data: Mapping[str, Path]) -> None:
    """Refuse a job that cannot run; `data`: clusters' folders, by region. Raises ValueError: one line."""
    work = workflow(spec)
    if spec.resources.instances != 1:
        raise ValueError(
            f"resources.instances is {spec.resources.instances}: leave it out, each step says its executors"
        )
    # What is set to its default says nothing.
    said = {name for name, value in spec.profile if value != getattr(Profile(), name)}
    for name in sorted(said - _OF_A_PROFILE):
        raise ValueError(f"profile.{name} says nothing of a workflow, whose files have sizes: leave it out")
    for file in work.files:
        _check_file(file, folder, data)
    known = {file.name for file in work.files} | set(work.written_by())
    for step in work.steps:
        try:
            check_job(application(spec, step, {}), folder)
        except ValueError as error:
            raise ValueError(f"step {step.name!r}: {error}") from error
        own = {*step.reads, *(file.name for file in step.writes)}
        for name in NAMED.findall(" ".join(step.args)):
            if name in known - own:
                raise ValueError(
                    f"step {step.name!r} names {{{name}}} in its arguments, and neither reads nor writes it: "
                    "name it under reads"
                )


def _check_file(file: InputFile, folder: Path, data: Mapping[str, Path]) -> None:
    root, where = folder, "next to the job file"
    if file.region is not None:
        if file.region not in data:
            known = f"of {', '.join(sorted(data))}" if data else "of no region"
            raise ValueError(
                f"file {file.name!r} is kept in {file.region}, and this deployment knows the data {known}: "
                "set runners.data"
            )
        root, where = data[file.region], f"in the data of {file.region}"
    found = (root / file.path).resolve()
    if Path(file.path).is_absolute() or not found.is_relative_to(root.resolve()):
        raise ValueError(f"file {file.name!r}: {file.path} leads elsewhere: give a path {where}")
    if not found.exists():
        raise ValueError(f"file {file.name!r}: there is no {file.path} {where}")


# How the runner of workflows works.


@dataclass(frozen=True)
class WorkflowSettings:
    """Settings of the runner."""

    # folder of the runner's own; made with mode 0700. The same folder finds the same clusters again.
    state: Path
    spark: SparkSettings  # of every cluster; each has a state folder of its own in `state` instead of that
    # by region: the folder in which its cluster keeps data, as this machine and its nodes see it
    data: Mapping[str, Path] = field(default_factory=dict)
