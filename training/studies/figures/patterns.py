"""Which cluster gets which job when, in one test episode (Liu 2022, Figures 5.11 and 5.12)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from envs.simulation.series import Floats, Ints
from envs.simulation.snapshot import Category
from envs.simulation.timeline import Timeline
from training.studies.experiment import ExperimentSettings
from training.studies.figures.canvas import COLOURS, letter_panels, panels

CATEGORIES = {
    Category.GENERAL: ("Cate-3 (general)", "#7F7F7F"),
    Category.TIME_CRITICAL: ("Cate-2 (time-critical)", "#E69F00"),
    Category.STREAMING: ("Cate-1 (streaming)", "#0072B2"),
}
# Thin strokes: a thousand dots would run together into lines.
MARK: dict[str, Any] = {"marker": "|", "linestyle": "", "markersize": 5.0, "markeredgewidth": 0.6}
BINS = 24
"""Bins of the angle axis of Figure 5.12."""


@dataclass(frozen=True)
class Starts:
    """Start times and clusters: arrays with one entry per job."""

    time: Floats
    cluster: Ints
    category: Ints

    def of(self, category: Category) -> Starts:
        """Select the jobs of one category."""
        rows = self.category == int(category)
        return Starts(self.time[rows], self.cluster[rows], self.category[rows])


def first_starts(timeline: Timeline) -> Starts:
    """The first execution of every job in a timeline (a streaming job has many)."""
    first: dict[int, tuple[float, int, int]] = {}
    for segment in sorted(timeline.segments, key=lambda segment: segment.start):
        first.setdefault(segment.job, (segment.start, segment.cluster, segment.category))
    rows = list(first.values())
    return Starts(
        np.array([row[0] for row in rows], np.float64),
        np.array([row[1] for row in rows], np.int64),
        np.array([row[2] for row in rows], np.int64),
    )


def draw_job_scatter(settings: ExperimentSettings, timelines: Mapping[str, Timeline]) -> Figure:
    """One column per policy; the top row has all jobs, the rows below one category each."""
    starts = {name: first_starts(timeline) for name, timeline in timelines.items()}
    n_clusters = len(next(iter(timelines.values())).cluster_names)
    drawn, axes = panels(1 + len(CATEGORIES), len(timelines))
    end = max(float(jobs.time.max(initial=1.0)) for jobs in starts.values())
    for column, (name, jobs) in enumerate(starts.items()):
        for row, wanted in enumerate([list(CATEGORIES), *([category] for category in CATEGORIES)]):
            axis = axes[row][column]
            for k, category in enumerate(wanted):
                own = jobs.of(category)
                # Categories of one cluster lie side by side, not on top of each other.
                height = own.cluster + 1 + (k - (len(wanted) - 1) / 2) * 0.2
                axis.plot(own.time, height, **MARK, color=CATEGORIES[category][1])
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
    drawn.legend(handles=marks, loc="outside lower center", ncols=3, fontsize=8, frameon=False)
    return drawn


def category_counts(jobs: Starts, n_clusters: int, end: float) -> Ints:
    """(clusters, BINS) jobs begun on each cluster in each of BINS equal stretches of [0, end]."""
    counts = np.zeros((n_clusters, BINS), np.int64)
    bins = np.minimum((jobs.time / max(end, 1.0) * BINS).astype(np.int64), BINS - 1)
    np.add.at(counts, (jobs.cluster, bins), 1)
    return counts


def draw_category_counts(settings: ExperimentSettings, timelines: Mapping[str, Timeline]) -> Figure:
    """A row per policy, a polar panel per category: angle is time, radius log(1 + jobs) of a cluster."""
    drawn, axes = panels(len(timelines), len(CATEGORIES), polar=True)
    names = next(iter(timelines.values())).cluster_names
    for row, (policy, timeline) in zip(axes, timelines.items(), strict=True):
        jobs = first_starts(timeline)
        end = float(jobs.time.max(initial=0.0))
        angles = (np.arange(BINS) + 0.5) * 2.0 * np.pi / BINS
        for axis, (category, (title, _)) in zip(row, CATEGORIES.items(), strict=True):
            for cluster, counts in enumerate(category_counts(jobs.of(category), len(names), end)):
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
    drawn.legend(handles=lines, loc="outside lower center", ncols=5, fontsize=8, frameon=False)
    return drawn
