"""A picture of a primary scheduling map: one row per core, grouped by VM."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from envs.simulation.bags.model import Market
from envs.simulation.bags.plan import Plan, PlannedVm
from training.studies.figures.canvas import save

# Okabe and Ito (2008): colour-blind readers can tell these apart.
COLOURS = {"spot": "#56B4E9", "on-demand": "#E69F00", "burstable, baseline mode": "#009E73"}
BAR_HEIGHT = 0.8
ROW_INCHES = 0.17
GAP = 0.6
"""Rows between two VMs."""
NARROWEST = 0.022
"""Share of the width that a bar needs to hold the task's name."""
FAR = 2.5
"""Limits further than so many makespans are told in words, as the bars would be too thin otherwise."""


def write_picture(plan: Plan, title: str, path: Path) -> None:
    """Write the picture as a PNG. Raises WriteError."""
    save(plan_figure(plan, title), path)


def plan_figure(plan: Plan, title: str) -> Figure:
    """The tasks of each core over time, and the limits D_spot and D."""
    rows = sum(planned.vm.vm_type.vcpus + GAP for planned in plan.vms)
    figure = Figure(figsize=(10, 1.6 + ROW_INCHES * rows), layout="constrained")
    FigureCanvasAgg(figure)
    axis = figure.add_subplot()
    styles: tuple[Literal["--", "-"], ...] = ("--", "-")
    limits = {
        f"D_spot {plan.d_spot_s:.0f} s": plan.d_spot_s,
        f"deadline {plan.deadline_s:.0f} s": plan.deadline_s,
    }
    shown = {text: at for text, at in limits.items() if at <= FAR * plan.makespan_s}
    width_s = 1.02 * max(plan.makespan_s, *shown.values(), 1.0)
    top, middles = 0.0, []
    for planned in plan.vms:
        _draw(axis, planned, top, width_s)
        cores = planned.vm.vm_type.vcpus
        middles.append(top + (cores - 1) / 2)
        top += cores + GAP
    for (text, at), style in zip(limits.items(), styles, strict=True):
        if text in shown:
            axis.axvline(at, color="black", linewidth=1, linestyle=style)
    axis.set_yticks(middles, [planned.vm.name for planned in plan.vms], fontsize=8)
    axis.set_ylim(top - GAP - 0.4, -0.6)
    axis.set_xlim(0, width_s)
    axis.set_xlabel("seconds after the start; one row per core, the number is the task")
    beyond = [text for text in limits if text not in shown]
    axis.set_title(
        f"{title}: {plan.cost_usd:.4f} USD, makespan {plan.makespan_s:.0f} s"
        + (f" ({', '.join(beyond)}: further right)" if beyond else ""),
        fontsize=10,
    )
    axis.spines[["top", "right"]].set_visible(False)
    kinds = {_kind(planned) for planned in plan.vms}
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


def _kind(planned: PlannedVm) -> str:
    if planned.vm.vm_type.burstable:
        return "burstable, baseline mode"
    return "spot" if planned.vm.market == Market.SPOT else "on-demand"


def _draw(axis: Axes, planned: PlannedVm, top: float, width_s: float) -> None:
    for placed in planned.tasks:
        row = top + placed.core
        duration_s = placed.end_s - placed.start_s
        axis.barh(
            row,
            duration_s,
            left=placed.start_s,
            height=BAR_HEIGHT,
            color=COLOURS[_kind(planned)],
            edgecolor="white",
            linewidth=0.6,
        )
        if duration_s >= NARROWEST * width_s:
            middle_s = (placed.start_s + placed.end_s) / 2
            axis.text(middle_s, row, placed.task.name, ha="center", va="center", fontsize=6, clip_on=True)
