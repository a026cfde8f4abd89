"""The picture of an asynchronous experiment: accuracy over time and updates, efficiency, staleness."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from training.federated.asynchronous.outcomes import Trainings, efficiency_index
from training.federated.asynchronous.virtual_time import Training
from training.studies.figures.canvas import COLOURS, draw_band, legend_below, panels, save

POINTS = 200
"""Of a curve."""


def draw_experiment(trainings: Trainings, title: str, path: Path) -> None:
    """Four panels; lines are means over seeds, bands their range. Raises WriteError."""
    figure, axes = panels(2, 2)
    figure.suptitle(title, fontsize=10)
    over_time, over_updates, efficiency, staleness = (axis for row in axes for axis in row)
    for (name, runs), colour in zip(trainings.items(), COLOURS * 2, strict=False):
        accuracy = [run.column("accuracy") for run in runs]
        _curve(over_time, runs, "time_slices", accuracy, colour, name)
        _curve(over_updates, runs, "updates", accuracy, colour, name)
        _curve(efficiency, runs, "updates", [efficiency_index(run) for run in runs], colour, name)
    over_time.set(xscale="log", xlabel="virtual time (slices)", ylabel="test accuracy")
    over_updates.set(xlabel="participant updates", ylabel="test accuracy")
    efficiency.set(xlabel="participant updates", ylabel="efficiency index")
    draw_staleness(staleness, trainings)
    for axis in (over_updates, efficiency):
        axis.xaxis.set_major_locator(MaxNLocator(5))
    for axis in (over_time, over_updates, efficiency, staleness):
        axis.tick_params(labelsize=7)
    legend_below(figure)
    save(figure, path)


def draw_staleness(axis: Axes, trainings: Mapping[str, Sequence[Training]]) -> None:
    """The distribution of the mean staleness of each round, a box per method, as Figure 7.4."""
    axis.boxplot(
        [np.concatenate([run.column("staleness") for run in runs]) for runs in trainings.values()],
        tick_labels=list(trainings),
        showfliers=False,
    )
    axis.tick_params(axis="x", rotation=30)
    axis.set_ylabel("staleness (versions)")


def draw_costs(played: Mapping[str, Mapping[str, Sequence[float]]], title: str, path: Path) -> None:
    """Every episode of every contestant by its hours and USD. Raises WriteError."""
    figure, ((axis,),) = panels(1, 1)
    for (name, episodes), colour in zip(played.items(), COLOURS * 2, strict=False):
        axis.scatter(episodes["hours"], episodes["cost_usd"], s=14, color=colour, label=name, alpha=0.7)
    axis.set(title=title, xlabel="hours", ylabel="USD", xlim=(0, None), ylim=(0, None))
    legend_below(figure)
    save(figure, path)


def _curve(
    axis: Axes,
    runs: Sequence[Training],
    along: str,
    values: Sequence[NDArray[np.float64]],
    colour: str,
    name: str,
) -> None:
    """Seeds have their points at other places: they are read off at common ones."""
    places = [run.column(along) for run in runs]
    first, last = max(place[0] for place in places), min(place[-1] for place in places)
    spaced = np.geomspace if along == "time_slices" else np.linspace
    grid = spaced(first, last, POINTS)
    table = np.array([np.interp(grid, place, value) for place, value in zip(places, values, strict=True)])
    draw_band(axis, grid, table, colour, name)
