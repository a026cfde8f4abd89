"""Workflow files and WfCommons instances from disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from envs.simulation.workflows.checks import require_runnable
from envs.simulation.workflows.documents import workflow_of
from envs.simulation.workflows.errors import WorkflowError
from envs.simulation.workflows.model import Platform, Workflow
from envs.simulation.workflows.wfformat import is_instance, workflow_of_instance
from spotweave.documents import DocumentError, read_document


def read(file: Path, clusters: Path | None = None) -> tuple[Workflow, Platform]:
    """A workflow and its clusters, checked.

    Args:
        file: a workflow file, or an instance in WfFormat; YAML or JSON.
        clusters: a workflow file whose clusters and network are taken instead; an instance has none. Files
            that no task of an instance writes lie at the first of them.

    Raises:
        WorkflowError: one line that names the file, the field, its value and what is expected.
    """
    document = _parsed(file)
    if clusters is None and is_instance(document):
        raise WorkflowError(f"{file} is an instance in WfFormat, which has no clusters: give --clusters FILE")
    platform = None if clusters is None else read(clusters)[1]
    try:
        if platform is None:
            return workflow_of(document)
        if is_instance(document):
            workflow = workflow_of_instance(document, platform.clusters[0].name)
        else:
            workflow = workflow_of(document)[0]
        require_runnable(workflow, platform)
    except WorkflowError as error:
        raise WorkflowError(f"{file}: {error}") from error
    return workflow, platform


def _parsed(file: Path) -> Any:
    try:
        return read_document(file)
    except OSError as error:
        raise WorkflowError(f"cannot read {file}: {error.strerror or error}") from error
    except DocumentError as error:
        raise WorkflowError(str(error)) from error
