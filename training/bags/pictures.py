"""Pictures of a primary scheduling map and of an execution: one row per core, grouped by VM."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from envs.simulation.bags.model import Market, Vm
from envs.simulation.bags.outcome import Outcome
from envs.simulation.bags.plan import Plan
from envs.simulation.bags.rented import Span, VmState
from training.studies.figures.canvas import single

# Okabe and Ito (2008): colour-blind readers can tell these apart.
COLOURS = {"spot": "#56B4E9", "on-demand": "#E69F00", "burstable, baseline mode": "#009E73"}
TASKS = {
    "spot": "task on spot",
    "on-demand": "task on demand",
    "burstable, baseline mode": "task on a burstable VM",
}
STATES = {VmState.STARTING: "#BBBBBB", VmState.IDLE: "#EEEEEE"}
HIBERNATED, HATCH = "#D55E00", "////"
BAR_HEIGHT = 0.8
ROW_INCHES = 0.17
GAP = 0.6
"""Rows between two VMs."""
NARROWEST = 0.022
"""Share of the width that a bar needs to hold the task's name."""
FAR = 2.5
"""Limits further than so many makespans are told in words, as the bars would be too thin otherwise."""


def plan_figure(plan: Plan, title: str) -> Figure:
    """The tasks of each core over time, and the limits D_spot and D."""
    tops, top = _tops([planned.vm for planned in plan.vms])
    figure, axis = single(10, 1.6 + ROW_INCHES * top)
    styles: tuple[Literal["--", "-"], ...] = ("--", "-")
    limits = {
        f"D_spot {plan.d_spot_s:.0f} s": plan.d_spot_s,
        f"deadline {plan.deadline_s:.0f} s": plan.deadline_s,
    }
    shown = {text: at for text, at in limits.items() if at <= FAR * plan.makespan_s}
    width_s = 1.02 * max(plan.makespan_s, *shown.values(), 1.0)
    for planned, row in zip(plan.vms, tops, strict=True):
        for placed in planned.tasks:
            times = placed.start_s, placed.end_s
            _draw_task(axis, planned.vm, row + placed.core, times, placed.task.name, width_s)
    for (text, at), style in zip(limits.items(), styles, strict=True):
        if text in shown:
            axis.axvline(at, color="black", linewidth=1, linestyle=style)
    _frame(axis, [planned.vm for planned in plan.vms], tops, top, width_s)
    axis.set_xlabel("seconds after the start; one row per core, the number is the task")
    beyond = [text for text in limits if text not in shown]
    axis.set_title(
        f"{title}: {plan.cost_usd:.4f} USD, makespan {plan.makespan_s:.0f} s"
        + (f" ({', '.join(beyond)}: further right)" if beyond else ""),
        fontsize=10,
    )
    kinds = {_kind(planned.vm) for planned in plan.vms}
    marks: list[Patch | Line2D] = [
        Patch(color=COLOURS[kind], label=kind) for kind in COLOURS if kind in kinds
    ]
    marks += [
        Line2D([], [], color="black", linewidth=1, linestyle=style, label=text)
        for text, style in zip(limits, styles, strict=True)
        if text in shown
    ]
    figure.legend(handles=marks, loc="outside lower center", ncols=len(marks), fontsize=8, frameon=False)
    return figure


def execution_figure(outcome: Outcome, title: str) -> Figure:
    """What each VM did and which tasks its cores ran; hibernated spans are hatched."""
    tops, top = _tops(outcome.vms)
    figure, axis = single(11, 1.8 + ROW_INCHES * top)
    end_s = max((spans[-1].end_s for spans in outcome.states if spans), default=0.0)
    width_s = 1.02 * max(end_s, outcome.deadline_s)
    for vm, spans, row in zip(outcome.vms, outcome.states, tops, strict=True):
        _draw_states(axis, vm, spans, row)
    for span in outcome.tasks:
        times = span.start_s, span.end_s
        _draw_task(axis, outcome.vms[span.vm], tops[span.vm] + span.core, times, str(span.task), width_s)
    axis.axvline(outcome.deadline_s, color="black", linewidth=1)
    _frame(axis, outcome.vms, tops, top, width_s)
    axis.set_xlabel("seconds after the start; one row per core, the number is the task's place in the bag")
    axis.set_title(
        f"{title}: {outcome.cost_usd:.4f} USD, makespan {outcome.makespan_s:.0f} s, "
        f"{outcome.counts.migrations} migrations, {outcome.counts.steals} steals",
        fontsize=10,
    )
    figure.legend(handles=_marks(outcome), loc="outside lower center", ncols=7, fontsize=8, frameon=False)
    return figure


def _tops(vms: Sequence[Vm]) -> tuple[list[float], float]:
    """The first row of each VM, and the row after all."""
    tops, top = [], 0.0
    for vm in vms:
        tops.append(top)
        top += vm.vm_type.vcpus + GAP
    return tops, top


def _frame(axis: Axes, vms: Sequence[Vm], tops: Sequence[float], top: float, width_s: float) -> None:
    middles = [row + (vm.vm_type.vcpus - 1) / 2 for row, vm in zip(tops, vms, strict=True)]
    axis.set_yticks(middles, [vm.name for vm in vms], fontsize=8)
    axis.set_ylim(top - GAP - 0.4, -0.6)
    axis.set_xlim(0, width_s)
    axis.spines[["top", "right"]].set_visible(False)


def _kind(vm: Vm) -> str:
    if vm.vm_type.burstable:
        return "burstable, baseline mode"
    return "spot" if vm.market == Market.SPOT else "on-demand"


def _draw_task(axis: Axes, vm: Vm, row: float, times: tuple[float, float], name: str, width_s: float) -> None:
    start_s, end_s = times
    duration_s = end_s - start_s
    axis.barh(
        row,
        duration_s,
        left=start_s,
        height=BAR_HEIGHT,
        color=COLOURS[_kind(vm)],
        edgecolor="white",
        linewidth=0.6,
    )
    if duration_s >= NARROWEST * width_s:
        axis.text((start_s + end_s) / 2, row, name, ha="center", va="center", fontsize=6, clip_on=True)


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


def _marks(outcome: Outcome) -> list[Patch | Line2D]:
    kinds = {_kind(outcome.vms[span.vm]) for span in outcome.tasks}
    seen = {span.state for spans in outcome.states for span in spans}
    marks: list[Patch | Line2D] = [
        Patch(color=COLOURS[kind], label=task) for kind, task in TASKS.items() if kind in kinds
    ]
    marks += [
        Patch(color=colour, label=f"{state}, billed") for state, colour in STATES.items() if state in seen
    ]
    if VmState.HIBERNATED in seen:
        marks.append(Patch(facecolor="white", edgecolor=HIBERNATED, hatch=HATCH, label="hibernated"))
    marks.append(Line2D([], [], color="black", linewidth=1, label=f"deadline {outcome.deadline_s:.0f} s"))
    return marks
