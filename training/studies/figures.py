"""Draws whatever figure an experiment asks for."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from omegaconf import OmegaConf

from spotweave.envs.simulation.series import Floats, Ints
from spotweave.envs.simulation.slices.world import LEAST_COST
from spotweave.envs.simulation.snapshot import Category
from spotweave.envs.simulation.world import Segment, Timeline
from spotweave.training.canvas import (
    COLOURS,
    colours,
    draw_band,
    legend,
    legend_below,
    letter_panels,
    panels,
)
from spotweave.training.config import UsageError
from spotweave.training.evaluation.episodes import find_suite
from spotweave.training.studies.cells import axis_label, metric_name, unit_of
from spotweave.training.studies.evaluations import Played
from spotweave.training.studies.experiment import ExperimentSettings, FigureSettings
from spotweave.training.studies.measuring import Player, best_seed
from spotweave.training.studies.scenario import Measured, Results, ScenarioResult, mean_interval
from spotweave.training.studies.trained import Trained

# Every test episode as a point of a line, sorted (Liu 2022, Figures 4.5 and 5.7 to 5.9).


def draw_sorted_episodes(settings: ExperimentSettings, figure: FigureSettings, results: Results) -> Figure:
    """One row of panels per scenario, one panel per metric; all panels of a row sort episodes alike.

    Episodes are ordered by one policy's metric, high to low (for several seeds: by the mean over them).
    """
    chosen = figure.scenarios or list(results)
    drawn, axes = panels(len(chosen), len(figure.metrics))
    for row, scenario in zip(axes, chosen, strict=True):
        result = results[scenario]
        names = figure.policies or list(result.policies)
        colour = colours(names, settings.reference)
        order = episode_order(result, figure.sort_policy, figure.sort_metric)
        episodes = np.arange(1.0, len(order) + 1)
        for axis, metric in zip(row, figure.metrics, strict=True):
            for name in names:
                table = result.policies[name].table(metric)[:, order]
                draw_band(axis, episodes, table, colour[name], settings.title_of(name))
            axis.set_ylabel(axis_label(metric, result.higher_is_better(metric)), fontsize=8)
            axis.set_title(settings.scenarios[scenario].title)
            axis.set_xlabel("test episode, sorted", fontsize=8)
    letter_panels(axes)
    legend_below(drawn)
    return drawn


def episode_order(result: ScenarioResult, policy: str, metric: str) -> Ints:
    """(episodes,) episode numbers, the highest value of the policy's metric first; ties stay in order."""
    return np.argsort(-result.policies[policy].table(metric).mean(axis=0), kind="stable")


# What policies cost in each scenario, relative to the reference: one row per scenario, with intervals.


def draw_relative(settings: ExperimentSettings, figure: FigureSettings, results: Results) -> Figure:
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
    for row, result in enumerate(results):
        if result.bounds is None:
            continue
        metric = settings.metrics[0]
        baseline = result.policies[settings.reference].table(metric)[0, : result.bounds.episodes]
        difference = 100.0 * (result.bounds.planned.values(metric) - baseline) / baseline.mean()
        text = f"clairvoyant plan, {result.bounds.episodes} episodes"
        axis.plot(difference.mean(), row, "kD", markersize=4, markerfacecolor="none", label=text)


# What policies cost in each scenario, in the metric's own unit.


def draw_bars(settings: ExperimentSettings, figure: FigureSettings, results: Results) -> Figure:
    """A group of bars per scenario, one bar per policy: means of the experiment's first metric.

    Narrow, with its numbers written out, so that it can be read on a telephone.
    """
    chosen, metric = figure.scenarios or list(results), settings.metrics[0]
    names = figure.policies or list(results[chosen[0]].policies)
    drawn, ((axis,),) = panels(1, 1)
    drawn.set_size_inches(4.6, (0.17 * len(names) + 0.12) * len(chosen) + 1.0)
    rows, width = np.arange(len(chosen), dtype=np.float64), 0.8 / len(names)
    colour = colours(names, settings.reference)
    for k, name in enumerate(names):
        means = [float(results[scenario].policies[name].table(metric).mean()) for scenario in chosen]
        bars = axis.barh(
            rows + (k - (len(names) - 1) / 2) * width,
            means,
            width,
            color=colour[name],
            label=settings.title_of(name),
        )
        axis.bar_label(bars, fmt="{:,.0f}", fontsize=7, padding=2)
    axis.set_yticks(rows, [settings.scenarios[scenario].title for scenario in chosen])
    axis.invert_yaxis()
    better = "higher" if results[chosen[0]].higher_is_better(metric) else "lower"
    axis.set_xlabel(f"{unit_of(metric)} ({better} is better)", fontsize=8)
    axis.tick_params(labelsize=8)
    legend_below(drawn)
    return drawn


# Several agents against one rule: sorted scores and dominance area (Liu 2022, Figure 5.10).


def dominance_points(measured: Measured, other: Measured) -> Floats:
    """(seeds, episodes) 2 where a policy beats the other in TMDL and AJER, 1 in one of them, 0 in none."""
    points = np.zeros_like(measured.table("tmdl"))
    for metric in ("tmdl", "ajer"):
        points += measured.table(metric) < other.table(metric)
    return points


def draw_dominance(settings: ExperimentSettings, figure: FigureSettings, results: Results) -> Figure:
    """Three panels per scenario: each policy's S_log sorted by itself, dominance area, F/S/N counts."""
    chosen = figure.scenarios or list(results)
    drawn, axes = panels(len(chosen), 3)
    for row, scenario in zip(axes, chosen, strict=True):
        result = results[scenario]
        reference = result.policies[settings.reference]
        names = figure.policies or list(result.policies)
        colour = colours(names, settings.reference)
        episodes = np.arange(1.0, reference.table("tmdl").shape[1] + 1)
        for name in names:
            table = -np.sort(-result.policies[name].table("s_log"), axis=1)
            draw_band(row[0], episodes, table, colour[name], settings.title_of(name))
        row[0].set_ylabel(axis_label("s_log", True), fontsize=8)
        row[0].set_title("each sorted by itself")
        agents = [name for name in names if name != settings.reference]
        for k, name in enumerate(agents):
            points = -np.sort(-dominance_points(result.policies[name], reference), axis=1)
            mean = points.mean(axis=0)
            row[1].fill_between(episodes, mean, color=colour[name], alpha=0.12, linewidth=0)
            row[1].plot(episodes, mean, color=colour[name], linewidth=1.2, label=settings.title_of(name))
            counts = [float((points == value).sum(axis=1).mean()) for value in (2, 1, 0)]
            width = 0.8 / len(agents)
            row[2].bar(np.arange(3) + (k - (len(agents) - 1) / 2) * width, counts, width, color=colour[name])
        against = settings.title_of(settings.reference)
        row[1].set_title(f"dominance over {against}")
        row[1].set_ylabel("points: F 2, S 1, N 0", fontsize=8)
        row[1].set_ylim(0.0, 2.1)
        row[1].set_yticks([0.0, 1.0, 2.0])
        row[2].set_title(f"episodes against {against}")
        row[2].set_xticks(range(3), ["F", "S", "N"])
        for axis in row[:2]:
            axis.set_xlabel("test episode, sorted", fontsize=8)
        row[2].set_ylabel("episodes", fontsize=8)
    letter_panels(axes)
    legend_below(drawn)
    return drawn


Agents = Mapping[str, Mapping[str, Sequence[Trained]]]  # trained policies by scenario, then agent


def draw_figure(player: Player, figure: FigureSettings, results: Results, agents: Agents) -> Figure:
    """One figure from measured results; timelines and rules on validation are played as they are needed.

    Raises:
        UsageError: if the experiment lacks what the figure shows.
    """
    settings = player.settings
    for scenario in figure.scenarios or list(results):
        for name in [*(figure.policies or []), *([figure.sort_policy] if figure.sort_policy else [])]:
            if name not in results[scenario].policies:
                raise UsageError(
                    f"a figure of {settings.name} shows {name!r}, which scenario {scenario} does not "
                    f"measure: expected one of {', '.join(results[scenario].policies)}"
                )
    if figure.kind == "sorted_episodes":
        return draw_sorted_episodes(settings, figure, results)
    if figure.kind == "dominance":
        return draw_dominance(settings, figure, results)
    if figure.kind == "relative":
        return draw_relative(settings, figure, results)
    if figure.kind == "bars":
        return draw_bars(settings, figure, results)
    if figure.kind == "training_curves":
        return _curves(player, figure, results, agents)
    timelines = _timelines(player, figure, results, agents)
    if figure.kind == "job_scatter":
        return draw_job_scatter(settings, timelines)
    return draw_category_counts(settings, timelines)


def _curves(player: Player, figure: FigureSettings, results: Results, agents: Agents) -> Figure:
    curves = {}
    for scenario in figure.scenarios or list(results):
        drawn = [name for name in agents[scenario] if figure.policies is None or name in figure.policies]
        for name in drawn:
            if any(trained.weights is not None for trained in agents[scenario][name]):
                raise UsageError(f"{name} has other weights than in training: it has no curve of its own")
        curves[scenario] = {
            name: read_curve([trained.path for trained in agents[scenario][name]]) for name in drawn
        }
    rules = {}
    for scenario, by_agent in curves.items():
        sizes = {curve.validation_episodes for curve in by_agent.values()}
        if len(sizes) != 1:
            raise UsageError(
                f"the agents of scenario {scenario} were validated on {sorted(sizes)} episodes: "
                "expected one number, so that rules can stand next to them"
            )
        rules[scenario] = player.rules_on(scenario, find_suite("validation", sizes.pop()))
    return draw_training_curves(player.settings, figure, results, curves, rules)


def _timelines(
    player: Player, figure: FigureSettings, results: Results, agents: Agents
) -> Mapping[str, Timeline]:
    """The first episode of the suite in the figure's first scenario, each agent by its best seed."""
    scenario = (figure.scenarios or list(results))[0]
    result = results[scenario]
    sources: dict[str, Trained | str] = {}
    for name in figure.policies or list(result.policies):
        trained = agents[scenario].get(name)
        sources[name] = name if trained is None else trained[best_seed(result, name)]
    return player.record(result.env, sources)


# Which cluster gets which job when, in one test episode (Liu 2022, Figures 5.11 and 5.12).


CATEGORIES = {
    Category.GENERAL: ("Cate-3 (general)", "#7F7F7F"),
    Category.TIME_CRITICAL: ("Cate-2 (time-critical)", "#E69F00"),
    Category.STREAMING: ("Cate-1 (streaming)", "#0072B2"),
}
# Thin strokes: a thousand dots would run together into lines.
MARK: dict[str, Any] = {"marker": "|", "linestyle": "", "markersize": 5.0, "markeredgewidth": 0.6}
BINS = 24  # bins of the angle axis of Figure 5.12


def first_starts(timeline: Timeline, *categories: Category) -> list[Segment]:
    """The first execution of every job of some categories, or of all (a streaming job has many)."""
    first: dict[int, Segment] = {}
    for segment in sorted(timeline.segments, key=lambda segment: segment.start):
        first.setdefault(segment.job, segment)
    return [job for job in first.values() if not categories or job.category in categories]


def draw_job_scatter(settings: ExperimentSettings, timelines: Mapping[str, Timeline]) -> Figure:
    """One column per policy; the top row has all jobs, the rows below one category each."""
    n_clusters = len(next(iter(timelines.values())).cluster_names)
    drawn, axes = panels(1 + len(CATEGORIES), len(timelines))
    end = max([1.0, *(job.start for timeline in timelines.values() for job in first_starts(timeline))])
    for column, (name, timeline) in enumerate(timelines.items()):
        for row, wanted in enumerate([list(CATEGORIES), *([category] for category in CATEGORIES)]):
            axis = axes[row][column]
            for k, category in enumerate(wanted):
                own = first_starts(timeline, category)
                # Categories of one cluster lie side by side, not on top of each other.
                heights = [job.cluster + 1 + (k - (len(wanted) - 1) / 2) * 0.2 for job in own]
                axis.plot([job.start for job in own], heights, **MARK, color=CATEGORIES[category][1])
            axis.set_yticks(range(1, n_clusters + 1))
            axis.set_ylim(0.4, n_clusters + 0.6)
            what = "all jobs" if len(wanted) > 1 else CATEGORIES[wanted[0]][0]
            axis.set_title(f"{settings.title_of(name)}: {what}")
            axis.set_xlim(-0.02 * end, 1.02 * end)
            axis.set_ylabel("cluster", fontsize=8)
            axis.set_xlabel("time slice", fontsize=8)
    letter_panels(axes)
    marks = [
        Line2D([], [], **{**MARK, "markeredgewidth": 2.0}, color=c, label=text)
        for text, c in CATEGORIES.values()
    ]
    legend(drawn, 3, handles=marks)
    return drawn


def category_counts(jobs: Sequence[Segment], n_clusters: int, end: float) -> Ints:
    """(clusters, BINS) jobs begun on each cluster in each of BINS equal stretches of [0, end]."""
    counts = np.zeros((n_clusters, BINS), np.int64)
    for job in jobs:
        counts[job.cluster, min(int(job.start / max(end, 1.0) * BINS), BINS - 1)] += 1
    return counts


def draw_category_counts(settings: ExperimentSettings, timelines: Mapping[str, Timeline]) -> Figure:
    """A row per policy, a polar panel per category: angle is time, radius log(1 + jobs) of a cluster."""
    drawn, axes = panels(len(timelines), len(CATEGORIES), polar=True)
    names = next(iter(timelines.values())).cluster_names
    for row, (policy, timeline) in zip(axes, timelines.items(), strict=True):
        end = max((job.start for job in first_starts(timeline)), default=0.0)
        angles = (np.arange(BINS) + 0.5) * 2.0 * np.pi / BINS
        for axis, (category, (title, _)) in zip(row, CATEGORIES.items(), strict=True):
            own = first_starts(timeline, category)
            for cluster, counts in enumerate(category_counts(own, len(names), end)):
                colour = COLOURS[cluster % len(COLOURS)]
                radii = np.log10(1.0 + counts)
                axis.plot(
                    np.append(angles, angles[0]), np.append(radii, radii[0]), color=colour, linewidth=1.1
                )
            axis.set_title(f"{settings.title_of(policy)}: {title}")
            axis.set_xticks(np.arange(4) * np.pi / 2, [f"slice {end * k / 4:.0f}" for k in range(4)])
            axis.tick_params(axis="x", pad=8)
            axis.set_xlabel("radius: jobs begun", fontsize=8)
            ticks = np.array([1, 3, 10])
            axis.set_yticks(np.log10(1.0 + ticks), [str(tick) for tick in ticks])
    letter_panels(axes)
    lines = [Line2D([], [], color=COLOURS[k % len(COLOURS)], label=name) for k, name in enumerate(names)]
    legend(drawn, 5, handles=lines)
    return drawn


# Validation during training, next to the rules (Liu 2022, Figures 4.4 and 5.6).


RULE_STYLES = ("--", ":", "-.", (0, (5, 1)), (0, (1, 3)), (0, (3, 1, 1, 1)))

UNLIKE = 4.0
"""If one training lasts this many times longer than another, they are drawn over a logarithmic axis."""


@dataclass(frozen=True)
class Curve:
    """The validations of one agent over its seeds."""

    episodes: Floats  # (points,) training episodes done
    metrics: Mapping[str, Floats]  # (seeds, points) of each metric
    validation_episodes: int  # of the validation suite


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
    results: Results,
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
