"""Panels, colours and small PNG files: what all figures share."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from spotweave.envs.simulation.series import Floats
from spotweave.training.files import write_bytes

# Okabe and Ito (2008), which colour-blind readers can tell apart; the last two are Tol's wine and olive.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#882255", "#999933")
REFERENCE_COLOUR = "#6B6B6B"
DPI = 150
LEGEND_COLUMN = 1.7  # inches that an entry of the legend takes


def panels(rows: int, columns: int, polar: bool = False) -> tuple[Figure, list[list[Axes]]]:
    """A figure with rows x columns panels."""
    figure = Figure(figsize=(3.3 * columns + 0.3, 2.6 * rows + 0.4), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(
        rows, columns, squeeze=False, subplot_kw={"projection": "polar"} if polar else None
    )
    axes = [list(row) for row in grid]
    if not polar:
        for axis in (axis for row in axes for axis in row):
            axis.spines[["top", "right"]].set_visible(False)
    return figure, axes


def colours(names: Sequence[str], reference: str) -> dict[str, str]:
    """One colour per policy; the reference is grey."""
    others = [name for name in names if name != reference]
    return {**{name: COLOURS[k % len(COLOURS)] for k, name in enumerate(others)}, reference: REFERENCE_COLOUR}


def draw_band(axis: Axes, x: Floats, table: Floats, colour: str, text: str) -> None:
    """The mean over seeds as a line, their range as a band. `table` is (seeds, points)."""
    axis.plot(x, table.mean(axis=0), color=colour, linewidth=1.4, label=text)
    if len(table) > 1:
        axis.fill_between(x, table.min(axis=0), table.max(axis=0), color=colour, alpha=0.2, linewidth=0)


def legend(figure: Figure, columns: int, **marks: Any) -> None:
    """A legend below all panels."""
    figure.legend(**marks, loc="outside lower center", ncols=columns, fontsize=8, frameon=False)


def legend_below(figure: Figure) -> None:
    """One legend for all panels, each name once, below them: within a panel it would cover lines."""
    marks: dict[str, Artist] = {}
    for axis in figure.axes:
        for mark, text in zip(*axis.get_legend_handles_labels(), strict=True):
            marks.setdefault(text, mark)
    columns = max(1, int(figure.get_figwidth() / LEGEND_COLUMN))
    # Matplotlib fills column by column: with rows as full as they can be, none is left almost empty.
    rows = -(-len(marks) // columns)
    legend(figure, -(-len(marks) // rows), handles=list(marks.values()), labels=list(marks))


def letter_panels(axes: Sequence[Sequence[Axes]]) -> None:
    """(a), (b), ... in front of each panel's title."""
    for k, axis in enumerate(axis for row in axes for axis in row):
        axis.set_title(f"({chr(ord('a') + k)}) {axis.get_title()}", fontsize=9)
        axis.tick_params(labelsize=7)


def single(width: float, height: float) -> tuple[Figure, Axes]:
    """A figure of one panel, in inches."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.add_subplot()


def png(figure: Figure, dpi: int = DPI) -> bytes:
    """The figure as a PNG; the same numbers give the same bytes."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=dpi, metadata={"Software": "spotweave"})
    return buffer.getvalue()


def save(figure: Figure, path: Path, dpi: int = DPI) -> None:
    """Write a PNG atomically. Raises WriteError."""
    write_bytes(path, png(figure, dpi))
