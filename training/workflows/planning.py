"""`spotweave plan workflow` and `split`: plans as files, tables and pictures."""

from __future__ import annotations

from pathlib import Path

from agents.workflows.planners import plan_workflow
from agents.workflows.split import SplitSettings, transform
from envs.documents.wfformat import is_instance, workflow_of_instance
from envs.documents.workflows import workflow_document, workflow_of
from envs.simulation.workflows.checks import require_runnable
from envs.simulation.workflows.model import Platform, Workflow, WorkflowError, files_by_name, input_gb
from envs.simulation.workflows.plan import Plan, plan_document
from spotweave.documents import load
from training.files import write_json
from training.studies.figures.canvas import save
from training.workflows.pictures import plan_figure

# Workflow files and WfCommons instances from disk.


def read(file: Path, clusters: Path | None = None) -> tuple[Workflow, Platform]:
    """A workflow and its clusters, checked.

    Args:
        file: a workflow file, or an instance in WfFormat; YAML or JSON.
        clusters: a workflow file whose clusters and network are taken instead; an instance has none. Files
            that no task of an instance writes lie at the first of them.

    Raises:
        WorkflowError: one line that names the file, the field, its value and what is expected.
    """
    platform = None if clusters is None else read(clusters)[1]

    def build(document: object) -> tuple[Workflow, Platform]:
        if platform is None:
            if is_instance(document):
                raise WorkflowError("an instance in WfFormat has no clusters: give --clusters FILE")
            return workflow_of(document)
        if is_instance(document):
            workflow = workflow_of_instance(document, platform.clusters[0].name)
        else:
            workflow = workflow_of(document)[0]
        require_runnable(workflow, platform)
        return workflow, platform

    return load(file, build, WorkflowError)


HEADINGS = ("step", "cluster", "start s", "end s", "files moved to it")
SPLIT_HEADINGS = ("step", "reads GB", "reads", "writes")


def plan(file: Path, planner: str, clusters: Path | None, seed: int) -> Plan:
    """Read a workflow and plan it. Raises WorkflowError: one line for a mistake."""
    return plan_workflow(planner, *read(file, clusters), seed)


def write(found: Plan, planner: str, out: Path, picture: Path | None) -> None:
    """Write the plan and, if asked for, its picture, each atomically. Raises WriteError."""
    if picture is not None:
        save(plan_figure(found, f"{found.workflow.name}, planned by {planner}"), picture)
    write_json(out, plan_document(found, planner))


def rows(found: Plan) -> list[tuple[str, ...]]:
    """One line per step, by start."""
    moved: dict[str, list[str]] = {}
    for move in found.moves():
        moved.setdefault(move.step, []).append(f"{move.file} from {move.source}")
    return [
        (
            placed.step,
            placed.cluster,
            f"{placed.start_s:.1f}",
            f"{placed.end_s:.1f}",
            ", ".join(moved.get(placed.step, [])),
        )
        for placed in found.placements
    ]


def summary(found: Plan) -> str:
    """Finish, deadline and cost."""
    deadline_s = found.workflow.deadline_s
    if deadline_s is None:
        kept = "no deadline"
    elif found.late_s > 0:
        kept = f"{found.late_s:.1f} s after the deadline {deadline_s:g} s"
    else:
        kept = f"{deadline_s - found.finish_s:.1f} s before the deadline {deadline_s:g} s"
    used = len({placed.cluster for placed in found.placements})
    return (
        f"{len(found.placements)} steps on {used} of {len(found.platform.clusters)} clusters: finish "
        f"{found.finish_s:.1f} s, {kept}, {found.cost_usd:.4f} USD"
    )


def split(file: Path, parts: int | None, block_mb: float, most_blocks: float | None, out: Path) -> Workflow:
    """Transform a workflow by Algorithm 1 and write it. Raises WorkflowError and WriteError."""
    if parts is not None and parts < 1:
        raise WorkflowError(f"--clusters is {parts}, expected a whole number >= 1")
    for name, value in (("--block-mb", block_mb), ("--most-blocks", most_blocks)):
        if value is not None and not value > 0:
            raise WorkflowError(f"{name} is {value:g}, expected a number > 0")
    workflow, platform = read(file)
    settings = SplitSettings(block_gb=block_mb / 1000, most_blocks=most_blocks, most_parts=parts)
    found = transform(workflow, platform, settings)
    write_json(out, workflow_document(found, platform))
    return found


def split_rows(found: Workflow) -> list[tuple[str, ...]]:
    """One line per step."""
    files = files_by_name(found)
    return [
        (step.name, f"{input_gb(step, files):g}", ", ".join(step.reads), ", ".join(step.writes))
        for step in found.steps
    ]
