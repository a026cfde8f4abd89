"""A step as the Spark application that it is, and where its files are."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import quote

from deploy.model.jobs import JobSpec, SparkBatch
from deploy.model.tasks import Assignment
from deploy.model.workflows import Step, Workflow

NAMED = re.compile(r"\{([a-z0-9-]+)\}")
"""A file in an argument."""


def workflow(spec: JobSpec) -> Workflow:
    """The workflow of a job. Raises ValueError for another kind."""
    if isinstance(spec.work, Workflow):
        return spec.work
    raise ValueError(f"kind {spec.work.kind} is not a workflow")


def place(region: str) -> str:
    """The name of a region as that of a folder."""
    return f"at-{quote(region, safe='')}"


@dataclass(frozen=True)
class Workspace:
    """The files of a job on the cluster of a region; all paths are below the job's folder.

    Attributes:
        region: of the cluster.
    """

    region: str

    def kept(self, name: str) -> str:
        """Where a file is once it is whole."""
        return f"workspace/{place(self.region)}/files/{name}"

    def written(self, step: str, attempt: int, name: str) -> str:
        """Where an attempt at a step writes it: another attempt finds nothing of it."""
        return f"workspace/{place(self.region)}/attempts/{step}.{attempt}/{name}"


def paths(
    work: Workflow, assignment: Assignment, workspace: Workspace, data: Mapping[str, Path]
) -> dict[str, Path]:
    """Where a step finds what it reads and leaves what it writes, by file.

    Args:
        work: the workflow.
        assignment: the attempt.
        workspace: of its cluster.
        data: by region: what its cluster keeps.
    """
    step, folder = work.step(assignment.key.task), Path(assignment.workdir).resolve()
    found = {name: folder / workspace.kept(name) for name in step.reads}
    for file in work.files:
        if file.name in found and file.region is None:
            found[file.name] = folder / file.path
        elif file.name in found and file.region == workspace.region:
            found[file.name] = data[workspace.region] / file.path
    for output in step.writes:
        found[output.name] = folder / workspace.written(step.name, assignment.attempt, output.name)
    return found


def application(spec: JobSpec, step: Step, files: Mapping[str, Path]) -> JobSpec:
    """The Spark job of a step.

    Args:
        spec: of the whole.
        step: of it.
        files: by name: what stands for it in arguments.
    """

    def filled(word: str) -> str:
        return NAMED.sub(lambda found: str(files.get(found[1], found[0])), word)

    return JobSpec(
        name=spec.name,
        work=SparkBatch(
            script=step.script,
            args=tuple(map(filled, step.args)),
            conf=step.conf,
            py_files=step.py_files,
        ),
        resources=spec.resources_of(step.name),
        env=spec.env,
    )


def assigned(assignment: Assignment, data: Mapping[str, Path]) -> Assignment:
    """The attempt at a step as one at the Spark job that it is."""
    work = workflow(assignment.spec)
    files = paths(work, assignment, Workspace(assignment.nodes[0].region), data)
    step = work.step(assignment.key.task)
    return replace(assignment, spec=application(assignment.spec, step, files))
