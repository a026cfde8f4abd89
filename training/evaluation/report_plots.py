"""The pictures of a report, as PNG bytes. The reference is always the strong colour, all others are grey."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import imsave

from spotweave.envs.render import MAX_BANDS, draw_gantt
from spotweave.envs.simulation.series import Floats, StepSeries
from spotweave.envs.simulation.timeline import Timeline
from spotweave.training.canvas import panels, png
from spotweave.training.evaluation.runs import Comparison

STRONG = "#0b6e4f"
BAD = "#b3261e"
GREY = "#8a8f98"
UNCLEAR = "#9a7b00"
VERDICT_COLOURS = {"better": STRONG, "worse": BAD, "unclear": UNCLEAR}
LINE_COLOURS = ("#4c78a8", "#f58518", "#b279a2", "#e45756", "#72b7b2", "#9d755d", "#bab0ac", "#54a24b")
DPI = 120
LOG_RATIO = 10.0  # ratio of the largest to a typical value from which an axis is logarithmic


def _figure(width: float, height: float, rows: int = 1, columns: int = 1) -> tuple[Figure, list[Axes]]:
    figure, grid = panels(rows, columns)
    figure.set_size_inches(width, height)
    return figure, [axis for row in grid for axis in row]


def _stretch(axis: Axes, values: Floats, typical: float) -> str:
    """Make an axis symmetric-logarithmic if a few policies are so bad that the rest would be one dot.

    Returns what the axis' label shall say of it.
    """
    if typical > 0 and np.abs(values).max() > LOG_RATIO * typical:
        axis.set_xscale("symlog", linthresh=typical)
        return ", logarithmic"
    return ""


def paired_forest(comparison: Comparison, policies: Sequence[str]) -> bytes:
    """Mean paired difference in the objective with its interval, one row per policy but the reference."""
    objective = comparison.objective
    others = [name for name in policies if name != comparison.reference.name][::-1]
    figure, axes = _figure(7.0, 1.2 + 0.36 * len(others))
    axis = axes[0]
    lows, highs = [], []
    for row, name in enumerate(others):
        paired = comparison.paired[name][objective]
        colour = VERDICT_COLOURS[paired.verdict]
        axis.plot([paired.interval.low, paired.interval.high], [row, row], color=colour, linewidth=2.5)
        axis.plot(paired.difference, row, "o", color=colour, markersize=6)
        lows.append(paired.interval.low)
        highs.append(paired.interval.high)
    axis.axvline(0.0, color="black", linewidth=0.8)
    ends = np.array(lows + highs)
    scale = _stretch(axis, ends, float(np.quantile(np.abs(ends), 0.25)))
    axis.set_yticks(range(len(others)), others)
    axis.set_ylim(-0.7, len(others) - 0.3)
    good = "right" if comparison.spec.higher_is_better[0] else "left"
    axis.set_xlabel(
        f"{objective}: {comparison.reference.name} − policy ({good} of 0: the reference is better){scale}"
    )
    return png(figure, DPI)


def paired_episodes(comparison: Comparison) -> bytes:
    """Per-episode differences in the objective, sorted: one panel per policy, bars coloured by who wins."""
    objective = comparison.objective
    sign = 1.0 if comparison.spec.higher_is_better[0] else -1.0
    others = [name for name in comparison.ranking if name != comparison.reference.name]
    columns = min(3, len(others))
    rows = -(-len(others) // columns)
    figure, axes = _figure(7.0, 0.4 + 1.7 * rows, rows, columns)
    ours = comparison.values(comparison.reference.name, objective)
    for axis, name in zip(axes, others, strict=False):
        difference = np.sort(ours - comparison.values(name, objective))
        colours = np.where(difference * sign > 0, STRONG, np.where(difference == 0, GREY, BAD))
        axis.bar(np.arange(len(difference)), difference, width=1.0, color=colours)
        axis.axhline(0.0, color="black", linewidth=0.8)
        axis.set_title(name, fontsize=9)
        axis.set_xticks([])
        axis.tick_params(labelsize=8)
    for axis in axes[len(others) :]:
        axis.set_visible(False)
    figure.supylabel(f"{comparison.reference.name} − policy", fontsize=9)
    figure.supxlabel("episodes, sorted", fontsize=9)
    return png(figure, DPI)


def distributions(comparison: Comparison, metric: str) -> bytes:
    """Every episode of every policy as a dot over a box, policies from the best to the worst objective."""
    names = comparison.ranking[::-1]
    figure, axes = _figure(7.0, 1.1 + 0.36 * len(names))
    axis = axes[0]
    samples = [comparison.values(name, metric) for name in names]
    # The spread of the dots is only for the eye: their height within a row means nothing.
    jitter = np.random.default_rng(0).uniform(-0.22, 0.22, comparison.suite.episodes)
    for row, (name, sample) in enumerate(zip(names, samples, strict=True)):
        colour = STRONG if name == comparison.reference.name else GREY
        axis.plot(sample, row + jitter, ".", color=colour, markersize=4, alpha=0.5)
        axis.boxplot(
            sample,
            positions=[row],
            orientation="horizontal",
            widths=0.55,
            showfliers=False,
            medianprops={"color": colour, "linewidth": 2},
            boxprops={"color": colour},
            whiskerprops={"color": colour},
            capprops={"color": colour},
            manage_ticks=False,
        )
    scale = _stretch(axis, np.concatenate(samples), float(np.median(np.abs(np.concatenate(samples)))))
    axis.set_yticks(range(len(names)), names)
    axis.set_ylim(-0.7, len(names) - 0.3)
    index = comparison.spec.metrics.index(metric)
    better = "higher" if comparison.spec.higher_is_better[index] else "lower"
    axis.set_xlabel(f"{metric} ({better} is better){scale}")
    return png(figure, DPI)


def gantt(timeline: Timeline) -> bytes:
    """What happened on every cluster that was used (see `envs.render.draw_gantt`)."""
    used = len({segment.cluster for segment in timeline.segments})
    pixels = draw_gantt(timeline, size_px=(1000, 180 + 80 * max(3, min(used, MAX_BANDS))))
    buffer = io.BytesIO()
    imsave(buffer, pixels, format="png", metadata={"Software": "spotweave"})
    return buffer.getvalue()


def over_time(timelines: Mapping[str, Timeline], reference: str) -> bytes:
    """Deadlines missed and, where capacity has a price, USD spent so far: a line per policy over time."""
    spent = {name: capacity_cost(timeline) for name, timeline in timelines.items()}
    paid = any(costs[-1] > 0.0 for _, costs in spent.values())
    figure, axes = _figure(7.0, 5.2 if paid else 3.0, 2 if paid else 1, 1)
    time_unit = timelines[reference].time_unit
    scale, unit = (3600.0, "hours") if time_unit == "s" else (1.0, f"{time_unit}s")
    for index, (name, timeline) in enumerate(timelines.items()):
        ours = name == reference
        style: dict[str, Any] = {
            "color": STRONG if ours else LINE_COLOURS[index % len(LINE_COLOURS)],
            "linewidth": 2.4 if ours else 1.1,
            "zorder": 3 if ours else 2,
            "label": name,
        }
        times = np.sort([time for time, _ in timeline.misses])
        counts = np.arange(len(times) + 1.0)
        edges = np.concatenate([[0.0], times, [timeline.end]])
        axes[0].step(edges / scale, np.concatenate([counts, counts[-1:]]), where="post", **style)
        if paid:
            moments, costs = spent[name]
            axes[1].plot(moments / scale, costs, **style)
    axes[0].set_ylabel("deadlines missed so far")
    axes[0].legend(fontsize=8, ncols=2, frameon=False)
    if paid:
        axes[1].set_ylabel("capacity paid so far (USD)")
    axes[-1].set_xlabel(f"time ({unit})")
    return png(figure, DPI)


def capacity_cost(timeline: Timeline) -> tuple[Floats, Floats]:
    """Moments and the integral of price over executors held until each, in USD.

    What else a bill has (egress, the minimum of a minute, hours that the provider gives back) is in the
    metrics, not in this curve.
    """
    moments = np.unique(
        np.concatenate(
            [[0.0, timeline.end], *(s.times_s for s in (*timeline.used, *timeline.price_usd_hour))]
        )
    )
    moments = moments[(moments >= 0.0) & (moments <= timeline.end)]
    rate = np.zeros(len(moments))
    for used, price in zip(timeline.used, timeline.price_usd_hour, strict=True):
        rate += _values_at(used, moments) * _values_at(price, moments)
    return moments, np.concatenate([[0.0], np.cumsum(rate[:-1] * np.diff(moments))]) / 3600.0


def _values_at(series: StepSeries, moments: Floats) -> Floats:
    rows = np.searchsorted(series.times_s, moments, side="right") - 1
    return series.values[np.maximum(rows, 0)]
