"""What trainings with several seeds amount to, in numbers and as pictures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from spotweave.envs.simulation.series import Floats
from spotweave.envs.traces.images import load_images
from spotweave.training.canvas import COLOURS, draw_band, legend_below, panels, save
from spotweave.training.config import UsageError, provenance
from spotweave.training.evaluation.statistics import compare_paired
from spotweave.training.federated.asynchronous.scenario import Scenario, read_scenario
from spotweave.training.federated.asynchronous.virtual_time import (
    MILESTONE_ROUNDS,
    Point,
    Training,
    VirtualTime,
    milestone_slices,
)
from spotweave.training.files import prepare_directory, write_csv, write_json

EI_EXPONENT = 0.2  # exponent of time in the efficiency index, chapter 6

Trainings = Mapping[str, Sequence[Training]]  # trainings by method, one per seed


def efficiency_index(training: Training) -> Floats:
    """EI(u) = a(u) / t(u)**0.2 after each round, (rounds,)."""
    index: Floats = training.column("accuracy") / training.column("time_slices") ** EI_EXPONENT
    return index


def final_accuracy(training: Training) -> float:
    """The mean of the last five rounds, as the thesis takes it."""
    return float(training.column("accuracy")[-MILESTONE_ROUNDS:].mean())


def summarise_trainings(trainings: Trainings, reference: str, milestones: Sequence[float]) -> dict[str, Any]:
    """Everything that tables show, per seed where it is measured per seed, as JSON can hold it.

    Methods have the same seeds in the same order; the reference, which speed-ups are against, may be missing.

    Returns:
        By method: accuracy, training_slices, staleness and ei, each a list by seed; milestones, a list by
        seed for each (None where it was not reached); speed_up, the ratio of training times; and
        at_milestone, the highest one that the method and the reference reach with every seed, with its
        speed_up.
    """
    summary: dict[str, Any] = {}
    for name, runs in trainings.items():
        summary[name] = {
            "accuracy": [final_accuracy(run) for run in runs],
            "training_slices": [run.points[-1].time_slices for run in runs],
            "staleness": [float(run.column("staleness").mean()) for run in runs],
            "ei": [float(efficiency_index(run)[-1]) for run in runs],
            "milestones": {f"{m:g}": [milestone_slices(run, m) for run in runs] for m in milestones},
        }
    if reference in summary:
        for name in summary:
            _against(summary[name], summary[reference])
    return summary


def _against(measured: dict[str, Any], reference: Mapping[str, Any]) -> None:
    measured["speed_up"] = _ratio(reference["training_slices"], measured["training_slices"])
    measured["at_milestone"] = None
    for milestone, slices in measured["milestones"].items():
        theirs = reference["milestones"][milestone]
        if None not in slices and None not in theirs:
            measured["at_milestone"] = {"accuracy": float(milestone), "speed_up": _ratio(theirs, slices)}


def _ratio(reference: Sequence[float], own: Sequence[float]) -> dict[str, Any]:
    """How many times shorter: the geometric mean over seeds, with a 95 % interval of two or more."""
    if len(own) < 2:
        return {"mean": reference[0] / own[0], "interval": None}
    compared = compare_paired(reference, own, higher_is_better=False)
    # Times are positive, so there always is a ratio.
    assert compared.ratio is not None
    assert compared.ratio_interval is not None
    return {"mean": compared.ratio, "interval": [compared.ratio_interval.low, compared.ratio_interval.high]}


POINTS = 200  # points of each curve


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
    axis: Axes, runs: Sequence[Training], along: str, values: Sequence[Floats], colour: str, name: str
) -> None:
    """Seeds have their points at other places: they are read off at common ones."""
    places = [run.column(along) for run in runs]
    first, last = max(place[0] for place in places), min(place[-1] for place in places)
    spaced = np.geomspace if along == "time_slices" else np.linspace
    grid = spaced(first, last, POINTS)
    table = np.array([np.interp(grid, place, value) for place, value in zip(places, values, strict=True)])
    draw_band(axis, grid, table, colour, name)


# `spotweave simulate async`: a scenario's methods in virtual time, with several seeds each.


HEADINGS = (
    "method",
    "accuracy",
    "training slices",
    "speed-up",
    "best common milestone",
    "speed-up to it",
    "staleness",
    "EI",
)


def simulate(
    path: Path, methods: Sequence[str], seeds: int, data: Path | None, out: Path | None
) -> tuple[str, list[tuple[str, ...]]]:
    """Train by some of a scenario's methods (none named: all) with the seeds 0, 1, ...; title and rows.

    `data` is a folder of images, else the digits of the package; `out` gets points.csv, experiment.png and,
    last, summary.json. Raises ValueError: one line for whatever a user got wrong; WriteError.
    """
    if seeds < 1:
        raise UsageError(f"seeds is {seeds}: expected at least 1")
    scenario = read_scenario(path)
    chosen = scenario.chosen(tuple(methods))
    images = load_images(data)
    if out is not None:
        prepare_directory(out)
    trainings: dict[str, list[Training]] = {name: [] for name in chosen}
    for seed in range(seeds):
        world = VirtualTime(scenario, images, seed)
        for name, method in chosen.items():
            trainings[name].append(world.train(method))
    summary = summarise_trainings(trainings, scenario.reference, scenario.milestones)
    if out is not None:
        _write(out, path, scenario, trainings, summary, images.what)
    return f"{scenario.title}; {images.what}", [row(name, summary[name]) for name in summary]


def row(name: str, measured: Mapping[str, Any]) -> tuple[str, ...]:
    """A method's line of HEADINGS; what has no reference is left empty."""
    at = measured.get("at_milestone")
    return (
        name,
        spread(measured["accuracy"], "{:.3f}".format),
        spread(measured["training_slices"], "{:.4g}".format),
        ratio(measured.get("speed_up")),
        "" if at is None else f"{at['accuracy']:g}",
        "" if at is None else ratio(at["speed_up"]),
        f"{fmean(measured['staleness']):.2f}",
        f"{fmean(measured['ei']):.3f}",
    )


def spread(values: Sequence[float], text: Callable[[float], str]) -> str:
    """The mean over seeds with their range."""
    if len(values) < 2:
        return text(values[0])
    return f"{text(fmean(values))} ({text(min(values))} to {text(max(values))})"


def ratio(measured: Mapping[str, Any] | None) -> str:
    """A speed-up with its interval."""
    if measured is None:
        return ""
    interval = measured["interval"]
    between = "" if interval is None else f" [{interval[0]:.1f}, {interval[1]:.1f}]"
    return f"{measured['mean']:.1f}{between}"


def _write(
    out: Path, path: Path, scenario: Scenario, trainings: Trainings, summary: Mapping[str, Any], what: str
) -> None:
    rows = (
        (name, seed, number, *point)
        for name, runs in trainings.items()
        for seed, run in enumerate(runs)
        for number, point in enumerate(run.points, start=1)
    )
    write_csv(out / "points.csv", ("method", "seed", "round", *Point._fields), rows)
    draw_experiment(trainings, scenario.title, out / "experiment.png")
    write_json(
        out / "summary.json",
        {"scenario": str(path), "images": what, **provenance(), "methods": dict(summary)},
    )
