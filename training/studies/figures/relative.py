"""What policies cost in each scenario, relative to the reference: one row per scenario, with intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from training.studies.experiment import ExperimentSettings, FigureSettings
from training.studies.figures.canvas import colours, legend_below, panels
from training.studies.metric_names import metric_name
from training.studies.scenario import ScenarioResult, mean_interval


def draw_relative(
    settings: ExperimentSettings, figure: FigureSettings, results: Mapping[str, ScenarioResult]
) -> Figure:
    """Paired differences to the reference in percent of its mean, of the experiment's first metric."""
    chosen, metric = figure.scenarios or list(results), settings.metrics[0]
    names = [
        name for name in figure.policies or list(results[chosen[0]].policies) if name != settings.reference
    ]
    drawn, ((axis,),) = panels(1, 1)
    drawn.set_size_inches(7.2, 0.34 * len(chosen) + 1.5)
    colour = colours(names, settings.reference)
    rows = np.arange(len(chosen), dtype=np.float64)
    for k, name in enumerate(names):
        means, low, high = [], [], []
        for scenario in chosen:
            policies = results[scenario].policies
            baseline = policies[settings.reference].table(metric)
            difference = 100.0 * (policies[name].table(metric) - baseline) / baseline.mean()
            interval = mean_interval(difference, results[scenario].groups)
            means.append(float(difference.mean()))
            low.append(means[-1] - interval.low)
            high.append(interval.high - means[-1])
        shift = 0.5 * (k - (len(names) - 1) / 2) / max(1, len(names))
        axis.errorbar(
            means,
            rows + shift,
            xerr=[low, high],
            fmt="o",
            markersize=4,
            linewidth=1.2,
            capsize=2,
            color=colour[name],
            label=settings.title_of(name),
        )
    _draw_plans(axis, settings, [results[scenario] for scenario in chosen])
    axis.axvline(0.0, color="black", linewidth=0.8)
    axis.set_yticks(rows, [settings.scenarios[scenario].title for scenario in chosen])
    axis.invert_yaxis()
    axis.grid(axis="x", alpha=0.3)
    axis.set_xlabel(
        f"{metric_name(metric)}: % above {settings.title_of(settings.reference)}, 95 %", fontsize=8
    )
    legend_below(drawn)
    return drawn


def _draw_plans(axis: Axes, settings: ExperimentSettings, results: Sequence[ScenarioResult]) -> None:
    """Marks for the clairvoyant plan, against the reference on the planned episodes."""
    for row, result in enumerate(results):
        if result.bounds is None:
            continue
        metric = settings.metrics[0]
        baseline = result.policies[settings.reference].table(metric)[0, : result.bounds.episodes]
        difference = 100.0 * (result.bounds.planned.values(metric) - baseline) / baseline.mean()
        text = f"clairvoyant plan, {result.bounds.episodes} episodes"
        axis.plot(difference.mean(), row, "kD", markersize=4, markerfacecolor="none", label=text)
