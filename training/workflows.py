"""`spotweave plan workflow` and `split`: plans as files, tables and pictures."""

from __future__ import annotations

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from spotweave.agents.workflows.planners import plan_workflow
from spotweave.agents.workflows.split import SplitSettings, transform
from spotweave.documents import load
from spotweave.envs.documents.workflows import (
    is_instance,
    workflow_document,
    workflow_of,
    workflow_of_instance,
)
from spotweave.envs.simulation.workflows.model import (
    Platform,
    Workflow,
    WorkflowError,
    files_by_name,
    input_gb,
    occupied,
)
from spotweave.envs.simulation.workflows.plan import Placement, Plan, plan_document
from spotweave.envs.simulation.workflows.problem import private_files, require_runnable
from spotweave.training.canvas import legend, save, single
from spotweave.training.files import write_json

# Workflow files and WfCommons instances from disk.


def read(file: Path, clusters: Path | None = None) -> tuple[Workflow, Platform]:
    """A workflow and its clusters, checked, from a workflow file or an instance in WfFormat; YAML or JSON.

    `clusters` is a workflow file whose clusters and network are taken instead; an instance has none. Files
    that no task of an instance writes lie at the first of them. Raises WorkflowError: one line that names the
    file, the field, its value and what is expected.
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


def plan(
    file: Path, planner: str, clusters: Path | None, seed: int, out: Path, picture: Path | None
) -> tuple[list[tuple[str, ...]], str]:
    """Plan, write the plan and, if asked for, its picture; the rows of HEADINGS, and the line below them.

    Raises WorkflowError: one line for a mistake; WriteError.
    """
    found = plan_workflow(planner, *read(file, clusters), seed)
    if picture is not None:
        save(plan_figure(found, f"{found.workflow.name}, planned by {planner}"), picture)
    write_json(out, plan_document(found, planner))
    moved: dict[str, list[str]] = {}
    for move in found.moves():
        moved.setdefault(move.step, []).append(f"{move.file} from {move.source}")
    rows: list[tuple[str, ...]] = [
        (
            placed.step,
            placed.cluster,
            f"{placed.start_s:.1f}",
            f"{placed.end_s:.1f}",
            ", ".join(moved.get(placed.step, [])),
        )
        for placed in found.placements
    ]
    return rows, _summary(found)


def _summary(found: Plan) -> str:
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


def split(
    file: Path, parts: int | None, block_mb: float, most_blocks: float | None, out: Path
) -> list[tuple[str, ...]]:
    """Transform a workflow by Algorithm 1 and write it; the rows of SPLIT_HEADINGS, a line per step.

    Raises WorkflowError and WriteError.
    """
    if parts is not None and parts < 1:
        raise WorkflowError(f"--clusters is {parts}, expected a whole number >= 1")
    for name, value in (("--block-mb", block_mb), ("--most-blocks", most_blocks)):
        if value is not None and not value > 0:
            raise WorkflowError(f"{name} is {value:g}, expected a number > 0")
    workflow, platform = read(file)
    settings = SplitSettings(block_gb=block_mb / 1000, most_blocks=most_blocks, most_parts=parts)
    found = transform(workflow, platform, settings)
    write_json(out, workflow_document(found, platform))
    files = files_by_name(found)
    return [
        (step.name, f"{input_gb(step, files):g}", ", ".join(step.reads), ", ".join(step.writes))
        for step in found.steps
    ]


# A picture of a plan: one row per executor, grouped by cluster, and the files that move.

# Okabe and Ito (2008): colour-blind readers can tell these apart.
STEP, PRIVATE, MOVE = "#56B4E9", "#E69F00", "#6B6B6B"
GAP = 0.6  # rows between two clusters
ROW_INCHES = 0.22
NARROWEST_PER_LETTER = 0.009  # share of the width that a bar needs for each letter of the step's name
FAR = 2.5
"""A deadline further than so many finishes is told in words, as the bars would be too thin otherwise."""
MOST_MOVES = 60  # more lines than these would hide the bars


def plan_figure(plan: Plan, title: str) -> Figure:
    """The steps on each executor over time, the files that move between clusters, and the deadline."""
    clusters = plan.platform.clusters
    rows = sum(cluster.executors + GAP for cluster in clusters)
    figure, axis = single(10, 1.6 + ROW_INCHES * rows)
    deadline_s = plan.workflow.deadline_s
    shown_s = deadline_s if deadline_s is not None and deadline_s <= FAR * plan.finish_s else None
    width_s = 1.02 * max(plan.finish_s, shown_s or 0.0, 1.0)
    private = private_files(plan.workflow)
    holds_private = {step.name for step in plan.workflow.steps if any(name in private for name in step.reads)}
    top, middle = 0.0, {}
    for cluster in clusters:
        mine = [placed for placed in plan.placements if placed.cluster == cluster.name]
        for placed, lanes in _lanes(plan, mine, cluster.executors):
            _draw(axis, placed, top, lanes, placed.step in holds_private, width_s)
        middle[cluster.name] = top + (cluster.executors - 1) / 2
        top += cluster.executors + GAP
    moves = plan.moves()
    drawn = moves if len(moves) <= MOST_MOVES else ()
    for move in drawn:
        axis.plot(
            [move.start_s, move.end_s],
            [middle[move.source], middle[move.target]],
            color=MOVE,
            linewidth=0.9,
            linestyle="--",
            marker="o",
            markersize=2.5,
        )
    marks: list[Patch | Line2D] = [Patch(color=STEP, label="step")]
    if holds_private:
        marks.append(Patch(color=PRIVATE, label="step that reads private data"))
    if drawn:
        marks.append(Line2D([], [], color=MOVE, linewidth=0.9, linestyle="--", label="file that moves"))
    if shown_s is not None:
        axis.axvline(shown_s, color="black", linewidth=1)
        marks.append(Line2D([], [], color="black", linewidth=1, label=f"deadline {shown_s:g} s"))
    axis.set_yticks(list(middle.values()), list(middle), fontsize=8)
    axis.set_ylim(top - GAP - 0.4, -0.6)
    axis.set_xlim(0, width_s)
    axis.set_xlabel("seconds after the start; one row per executor")
    beyond = (
        f" (deadline {deadline_s:g} s: further right)" if deadline_s is not None and shown_s is None else ""
    )
    axis.set_title(f"{title}: finish {plan.finish_s:.0f} s, {plan.cost_usd:.4f} USD{beyond}", fontsize=10)
    axis.spines[["top", "right"]].set_visible(False)
    legend(figure, len(marks), handles=marks)
    return figure


def _lanes(plan: Plan, mine: list[Placement], executors: int) -> list[tuple[Placement, list[int]]]:
    """The executors that each step of a cluster is drawn on; the lowest that are free when it starts."""
    steps = {step.name: step for step in plan.workflow.steps}
    free_s = [0.0] * executors
    found = []
    for placed in sorted(mine, key=lambda one: one.start_s):
        needed = occupied(steps[placed.step], plan.platform.cluster(placed.cluster))
        lanes = [lane for lane in range(executors) if free_s[lane] <= placed.start_s + 1e-6][:needed]
        for lane in lanes:
            free_s[lane] = placed.end_s
        found.append((placed, lanes))
    return found


def _draw(axis: Axes, placed: Placement, top: float, lanes: list[int], private: bool, width_s: float) -> None:
    duration_s = placed.end_s - placed.start_s
    for lane in lanes:
        # Executors beside each other make one bar.
        joined = lane - 1 in lanes
        axis.barh(
            top + lane - (0.1 if joined else 0.0),
            duration_s,
            left=placed.start_s,
            height=1.0 if joined else 0.8,
            color=PRIVATE if private else STEP,
            edgecolor="none",
        )
    axis.barh(
        top + (min(lanes) + max(lanes)) / 2,
        duration_s,
        left=placed.start_s,
        height=max(lanes) - min(lanes) + 0.8,
        fill=False,
        edgecolor="white",
        linewidth=0.8,
    )
    if duration_s >= NARROWEST_PER_LETTER * len(placed.step) * width_s:
        axis.text(
            (placed.start_s + placed.end_s) / 2,
            top + (min(lanes) + max(lanes)) / 2,
            placed.step,
            ha="center",
            va="center",
            fontsize=7,
            clip_on=True,
        )
