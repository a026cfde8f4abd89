"""`spotweave simulate async`: a scenario's methods in virtual time, with several seeds each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from envs.traces.images import Images, load_images
from training.config import UsageError, provenance
from training.federated.asynchronous.outcomes import Trainings, draw_experiment, summarise_trainings
from training.federated.asynchronous.scenario import Method, Scenario, read_scenario
from training.federated.asynchronous.virtual_time import Point, Training, VirtualTime
from training.files import prepare_directory, write_csv, write_json

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


class Report(NamedTuple):
    """Result of a simulation."""

    title: str
    rows: list[tuple[str, ...]]


def train_all(
    scenario: Scenario, methods: Mapping[str, Method], images: Images, seeds: Iterable[int]
) -> dict[str, list[Training]]:
    """Every method with every seed. Raises UsageError, UpdateError: one line each."""
    trainings: dict[str, list[Training]] = {name: [] for name in methods}
    for seed in seeds:
        world = VirtualTime(scenario, images, seed)
        for name, method in methods.items():
            trainings[name].append(world.train(method))
    return trainings


def simulate(path: Path, methods: Sequence[str], seeds: int, data: Path | None, out: Path | None) -> Report:
    """Train, and write tables and a picture.

    Args:
        path: the scenario.
        methods: names of some of its methods; all if empty.
        seeds: how many, 0, 1, ...
        data: folder of images; None: the digits of the package.
        out: directory for points.csv, experiment.png and, last, summary.json.

    Raises:
        ValueError: one line for whatever a user got wrong.
        WriteError: if a file cannot be written.
    """
    if seeds < 1:
        raise UsageError(f"seeds is {seeds}: expected at least 1")
    scenario = read_scenario(path)
    chosen = scenario.chosen(tuple(methods))
    images = load_images(data)
    if out is not None:
        prepare_directory(out)
    trainings = train_all(scenario, chosen, images, range(seeds))
    summary = summarise_trainings(trainings, scenario.reference, scenario.milestones)
    if out is not None:
        _write(out, path, scenario, trainings, summary, images.what)
    return Report(f"{scenario.title}; {images.what}", [row(name, summary[name]) for name in summary])


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
