"""Workflows that can never run, refused before anything is rented."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from deploy.model.jobs import JobSpec, Profile
from deploy.model.workflows import InputFile
from deploy.runners.spark.driver import check_job
from deploy.runners.workflow.application import NAMED, application, workflow

_OF_A_PROFILE = {"reference_speed", "sensitivity"}


def check(spec: JobSpec, folder: Path, data: Mapping[str, Path]) -> None:
    """Refuse a job that cannot run.

    Args:
        spec: of the job.
        folder: with the files that came with it.
        data: by region: the folder of its cluster's data.

    Raises:
        ValueError: one line.
    """
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
