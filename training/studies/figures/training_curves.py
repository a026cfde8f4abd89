"""Validation during training, next to the rules (Liu 2022, Figures 4.4 and 5.6)."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from omegaconf import OmegaConf

from envs.simulation.series import Floats
from envs.simulation.slices.metrics import LEAST_COST
from training.config import UsageError
from training.studies.cells import axis_label
from training.studies.evaluations import Played
from training.studies.experiment import ExperimentSettings, FigureSettings
from training.studies.figures.canvas import colours, draw_band, legend_below, letter_panels, panels
from training.studies.scenario import ScenarioResult

RULE_STYLES = ("--", ":", "-.", (0, (5, 1)), (0, (1, 3)), (0, (3, 1, 1, 1)))

UNLIKE = 4.0
"""If one training lasts this many times longer than another, they are drawn over a logarithmic axis."""


@dataclass(frozen=True)
class Curve:
    """The validations of one agent over its seeds.

    Attributes:
        episodes: (points,) training episodes done.
        metrics: (seeds, points) of each metric.
        validation_episodes: of the validation suite.
    """

    episodes: Floats
    metrics: Mapping[str, Floats]
    validation_episodes: int


def read_curve(policies: Sequence[Path]) -> Curve:
    """The curve of an agent from the run directories that hold its policies.

    Raises:
        UsageError: if a run has no validation.csv (a released policy has none), or seeds were validated at
            different episodes or on different suites.
    """
    tables: list[dict[str, list[float]]] = []
    sizes = set()
    for policy in policies:
        file = policy.parent / "validation.csv"
        if not file.is_file():
            raise UsageError(f"no training curve: {file} is missing. Give the directories of training runs")
        with file.open(encoding="utf-8", newline="") as rows:
            read = list(csv.DictReader(rows))
        tables.append({name: [float(row[name]) for row in read] for name in read[0]})
        config = OmegaConf.load(policy.parent / "config.yaml")
        sizes.add(int(OmegaConf.select(config, "trainer.validation_episodes")))
    if len(sizes) > 1 or any(table["episode"] != tables[0]["episode"] for table in tables):
        runs = ", ".join(str(policy.parent) for policy in policies)
        raise UsageError(f"the validations of {runs} do not match: train all seeds with the same settings")
    metrics = {
        name: np.array([table[name] for table in tables])
        for name in tables[0]
        if name not in ("episode", "decisions")
    }
    return Curve(np.array(tables[0]["episode"]), metrics, sizes.pop())


def shown_metric(values: Mapping[str, Floats], metric: str) -> Floats:
    """A metric as the figures show it: `eval_app` is that of mean TMDL and mean AJDR (section 4.4.4).

    It is at most 50, as the metric of an episode.
    """
    if metric == "eval_app":
        return np.asarray(1.0 / np.maximum(0.02 * values["tmdl"] + values["ajdr"], LEAST_COST))
    return values[metric]


def draw_training_curves(
    settings: ExperimentSettings,
    figure: FigureSettings,
    results: Mapping[str, ScenarioResult],
    curves: Mapping[str, Mapping[str, Curve]],
    rules: Mapping[str, Mapping[str, Played]],
) -> Figure:
    """One panel per scenario and metric: agents as curves with the range of seeds, rules as level lines."""
    chosen = figure.scenarios or list(results)
    count = len(chosen) * len(figure.metrics)
    drawn, axes = panels(-(-count // 2), min(2, count))
    flat = [axis for row in axes for axis in row]
    places = [(scenario, metric) for scenario in chosen for metric in figure.metrics]
    # One colour per policy in all panels, agents first; lines of rules are broken.
    names = [name for by_policy in (curves, rules) for some in by_policy.values() for name in some]
    colour = colours(_drawn(figure, dict.fromkeys(names)), settings.reference)
    for axis, (scenario, metric) in zip(flat, places, strict=False):
        for name in _drawn(figure, curves[scenario]):
            curve = curves[scenario][name]
            table = shown_metric(curve.metrics, metric)
            draw_band(axis, curve.episodes, table, colour[name], settings.title_of(name))
        for k, name in enumerate(_drawn(figure, rules[scenario])):
            played = rules[scenario][name]
            means = {key: np.array(played.values(key).mean()) for key in played.metrics}
            axis.axhline(
                float(shown_metric(means, metric)),
                color=colour[name],
                linewidth=1.2,
                linestyle=RULE_STYLES[k % len(RULE_STYLES)],
                label=settings.title_of(name),
            )
        axis.set_title(settings.scenarios[scenario].title)
        lengths = [float(curves[scenario][name].episodes[-1]) for name in _drawn(figure, curves[scenario])]
        if max(lengths, default=1.0) > UNLIKE * min(lengths, default=1.0):
            axis.set_xscale("log")
        axis.set_xlabel(f"training episode{' (log)' if axis.get_xscale() == 'log' else ''}", fontsize=8)
        axis.set_ylabel(axis_label(metric, results[scenario].higher_is_better(metric)), fontsize=8)
    for axis in flat[count:]:
        axis.set_visible(False)
    letter_panels(axes)
    legend_below(drawn)
    return drawn


def _drawn(figure: FigureSettings, names: Iterable[str]) -> list[str]:
    return [name for name in names if figure.policies is None or name in figure.policies]
