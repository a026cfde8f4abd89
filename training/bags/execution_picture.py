"""A picture of one execution: one row per core, grouped by VM; hibernated spans are hatched."""

from __future__ import annotations

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from envs.simulation.bags.model import Market, Vm
from envs.simulation.bags.outcome import Outcome
from envs.simulation.bags.rented import Span, VmState
from training.studies.figures.canvas import save

# Okabe and Ito (2008): colour-blind readers can tell these apart.
TASKS = {"task on spot": "#56B4E9", "task on demand": "#E69F00", "task on a burstable VM": "#009E73"}
STATES = {VmState.STARTING: "#BBBBBB", VmState.IDLE: "#EEEEEE"}
HIBERNATED, HATCH = "#D55E00", "////"
BAR_HEIGHT = 0.8
ROW_INCHES = 0.17
GAP = 0.6
"""Rows between two VMs."""
NARROWEST = 0.022
"""Share of the width that a bar needs to hold the task's number."""


def write_execution(outcome: Outcome, title: str, path: Path) -> None:
    """Write the picture as a PNG. Raises WriteError."""
    save(execution_figure(outcome, title), path)


def execution_figure(outcome: Outcome, title: str) -> Figure:
    """What each VM did and which tasks its cores ran."""
    tops, top = [], 0.0
    for vm in outcome.vms:
        tops.append(top)
        top += vm.vm_type.vcpus + GAP
    figure = Figure(figsize=(11, 1.8 + ROW_INCHES * top), layout="constrained")
    FigureCanvasAgg(figure)
    axis = figure.add_subplot()
    end_s = max((spans[-1].end_s for spans in outcome.states if spans), default=0.0)
    width_s = 1.02 * max(end_s, outcome.deadline_s)
    for vm, spans, row in zip(outcome.vms, outcome.states, tops, strict=True):
        _draw_states(axis, vm, spans, row)
    _draw_tasks(axis, outcome, tops, width_s)
    axis.axvline(outcome.deadline_s, color="black", linewidth=1)
    middles = [row + (vm.vm_type.vcpus - 1) / 2 for row, vm in zip(tops, outcome.vms, strict=True)]
    axis.set_yticks(middles, [vm.name for vm in outcome.vms], fontsize=8)
    axis.set_ylim(top - GAP - 0.4, -0.6)
    axis.set_xlim(0, width_s)
    axis.set_xlabel("seconds after the start; one row per core, the number is the task's place in the bag")
    axis.set_title(
        f"{title}: {outcome.cost_usd:.4f} USD, makespan {outcome.makespan_s:.0f} s, "
        f"{outcome.counts.migrations} migrations, {outcome.counts.steals} steals",
        fontsize=10,
    )
    axis.spines[["top", "right"]].set_visible(False)
    figure.legend(handles=_marks(outcome), loc="outside lower center", ncols=7, fontsize=8, frameon=False)
    return figure


def _draw_states(axis: Axes, vm: Vm, spans: tuple[Span, ...], top: float) -> None:
    """The background of all cores of a VM."""
    middle, height = top + (vm.vm_type.vcpus - 1) / 2, vm.vm_type.vcpus - 1 + BAR_HEIGHT
    for state, start_s, end_s in spans:
        away = state == VmState.HIBERNATED
        axis.barh(
            middle,
            end_s - start_s,
            height,
            start_s,
            color="white" if away else STATES.get(state, STATES[VmState.IDLE]),
            edgecolor=HIBERNATED if away else "none",
            hatch=HATCH if away else None,
            linewidth=0.6,
        )


def _draw_tasks(axis: Axes, outcome: Outcome, tops: list[float], width_s: float) -> None:
    for span in outcome.tasks:
        row = tops[span.vm] + span.core
        duration_s = span.end_s - span.start_s
        axis.barh(
            row,
            duration_s,
            left=span.start_s,
            height=BAR_HEIGHT,
            color=TASKS[_kind(outcome.vms[span.vm])],
            edgecolor="white",
            linewidth=0.6,
        )
        if duration_s >= NARROWEST * width_s:
            middle_s = (span.start_s + span.end_s) / 2
            axis.text(middle_s, row, str(span.task), ha="center", va="center", fontsize=6, clip_on=True)


def _kind(vm: Vm) -> str:
    if vm.vm_type.burstable:
        return "task on a burstable VM"
    return "task on spot" if vm.market == Market.SPOT else "task on demand"


def _marks(outcome: Outcome) -> list[Patch | Line2D]:
    kinds = {_kind(outcome.vms[span.vm]) for span in outcome.tasks}
    seen = {span.state for spans in outcome.states for span in spans}
    marks: list[Patch | Line2D] = [Patch(color=TASKS[kind], label=kind) for kind in TASKS if kind in kinds]
    marks += [
        Patch(color=colour, label=f"{state}, billed") for state, colour in STATES.items() if state in seen
    ]
    if VmState.HIBERNATED in seen:
        marks.append(Patch(facecolor="white", edgecolor=HIBERNATED, hatch=HATCH, label="hibernated"))
    marks.append(Line2D([], [], color="black", linewidth=1, label=f"deadline {outcome.deadline_s:.0f} s"))
    return marks
