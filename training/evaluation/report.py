"""report.html: one file, pictures inside, for a phone as for a desk: the verdict, and the rest folded."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from string import Template
from typing import Any, Protocol, runtime_checkable

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import imsave

from spotweave.agents.policy import Policy
from spotweave.envs.render import MAX_BANDS, draw_gantt
from spotweave.envs.simulation.series import Floats, StepSeries
from spotweave.envs.simulation.world import BatchWorld, EpisodeKey, Timeline
from spotweave.training.canvas import panels, png
from spotweave.training.evaluation.episodes import run_episodes
from spotweave.training.evaluation.runs import RANDOMNESS, Comparison, liu_measures
from spotweave.training.evaluation.tables import (
    MOST_POLICIES,
    arrow,
    bounds,
    leaders,
    number,
    signed,
    verdict_mark,
)

TEMPLATE = Path(__file__).with_name("report.html")


def report_html(
    comparison: Comparison,
    timelines: Mapping[str, Timeline],
    provenance: Mapping[str, object],
    config_yaml: str,
) -> str:
    """The whole report of at least two policies.

    `timelines` show the suite's first episode under some, the reference among them; there may be none.
    """
    spec, suite = comparison.spec, comparison.suite
    facts = {
        "world": spec.name,
        "suite": f"{suite.name}: {suite.episodes} episodes of split {suite.split}, seed {suite.seed}",
        "suite hash": comparison.hash,
        **{name: str(value) for name, value in provenance.items()},
        "randomness": RANDOMNESS,
    }
    sections = [
        _section("Every policy and episode", *_objective_parts(comparison)),
        _section("Every metric", *_metric_parts(comparison)),
        _section("One episode", *_episode_parts(comparison, timelines)),
        *_liu_section(comparison),
        _section("Decision latency", _latency_table(comparison), _note("One observation at a time.")),
        _section(
            "Reproduce it",
            "<dl>",
            *(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in facts.items()),
            "</dl>",
            _note("Every number follows from this configuration, saved as config.yaml next to this report."),
            f"<pre>{escape(config_yaml)}</pre>",
        ),
    ]
    return Template(TEMPLATE.read_text(encoding="utf-8")).substitute(
        title=escape(f"{comparison.reference.name} in {spec.name}"),
        verdict="\n".join(_verdict_parts(comparison)),
        sections="\n".join(sections),
    )


def verdict_sentence(comparison: Comparison) -> str:
    """The result in one sentence."""
    groups: dict[str, list[str]] = {"better": [], "worse": [], "unclear": []}
    for name in comparison.ranking:
        if name != comparison.reference.name:
            groups[comparison.paired[name][comparison.objective].verdict].append(name)
    phrases = {"better": "better than", "worse": "worse than", "unclear": "not told apart from"}
    parts = [f"{phrases[kind]} {_listed(names)}" for kind, names in groups.items() if names]
    return (
        f"In {comparison.objective}, over {comparison.suite.episodes} shared episodes, "
        f"{comparison.reference.name} is {'; '.join(parts)} (paired 95 % intervals)."
    )


def _listed(names: Sequence[str]) -> str:
    if len(names) <= 4:
        return ", ".join(names)
    return f"{', '.join(names[:3])} and {len(names) - 3} more"


def _verdict_parts(comparison: Comparison) -> Iterable[str]:
    """What is seen before anything is unfolded: two screens at most, however many policies there are."""
    shown = leaders(comparison)
    direction = "higher" if comparison.spec.higher_is_better[0] else "lower"
    yield f'<p class="lead">{escape(verdict_sentence(comparison))}</p>'
    yield _objective_table(comparison, shown)
    yield _note(
        f"In brackets: 95 % intervals. {comparison.objective}: {direction} is better. * the interval of the "
        f"paired difference excludes 0. A tie counts as half a win. Suite {comparison.suite.name}."
    )
    yield _figure(
        paired_forest(comparison, shown),
        "Mean paired difference in the objective, 95 % interval.",
    )


def _objective_table(comparison: Comparison, policies: Sequence[str]) -> str:
    objective, reference = comparison.objective, comparison.reference.name
    rows, classes = [], []
    for name in policies:
        summary = comparison.summaries[name][objective]
        mean = f"{number(summary.mean)} {bounds(summary.interval)}"
        if name == reference:
            rows.append([name, "the reference", "", mean, ""])
            classes.append("reference")
            continue
        paired = comparison.paired[name][objective]
        difference = f"{signed(paired.difference)} {bounds(paired.interval)}"
        low, high = 100 * paired.win_interval.low, 100 * paired.win_interval.high
        wins = f"{100 * paired.win_probability:.0f} % [{low:.0f}, {high:.0f}]"
        rows.append([name, verdict_mark(paired), difference, mean, wins])
        classes.append(paired.verdict)
    header = ["policy", f"{reference} is", f"{reference} − policy", "mean", f"{reference} wins"]
    return _table(header, rows, classes, colour_column=1)


def _objective_parts(comparison: Comparison) -> Iterable[str]:
    if len(comparison.ranking) > MOST_POLICIES:
        yield _objective_table(comparison, comparison.ranking)
    yield _figure(
        paired_episodes(comparison),
        f"Every episode: {comparison.reference.name} minus the policy. Green: {comparison.reference.name} is "
        "better there; red: worse.",
    )


def _metric_parts(comparison: Comparison) -> Iterable[str]:
    header = ["policy", "mean", "95 % interval", "sd", "p5", "p95", "p99", "IQM", "paired difference"]
    for metric, higher in zip(comparison.spec.metrics, comparison.spec.higher_is_better, strict=True):
        rows, classes = [], []
        for name in comparison.ranking:
            s = comparison.summaries[name][metric]
            values = (s.sd, s.p05, s.p95, s.p99, s.iqm)
            row = [name, number(s.mean), bounds(s.interval), *map(number, values)]
            if name == comparison.reference.name:
                rows.append([*row, ""])
                classes.append("reference")
            else:
                paired = comparison.paired[name][metric]
                rows.append([*row, f"{signed(paired.difference)} {bounds(paired.interval)}"])
                classes.append(paired.verdict)
        yield f"<h3>{escape(metric)} {arrow(higher)}</h3>"
        yield _table(header, rows, classes, colour_column=8)
        yield _figure(distributions(comparison, metric), f"{metric}: every episode.")


def _episode_parts(comparison: Comparison, timelines: Mapping[str, Timeline]) -> Iterable[str]:
    if not timelines:
        yield _note("This world keeps no timeline of an episode.")
        return
    reference = comparison.reference.name
    key = comparison.suite.episode_keys()[0]
    yield _note(f"The suite's first episode (split {key.split}, seed {key.seed}, number {key.index}).")
    yield _figure(
        gantt(timelines[reference]),
        f"{reference}: one box per execution, as high as the executors that it holds; red edge or triangle: "
        "deadline missed.",
    )
    yield _figure(
        over_time(timelines, reference),
        "The same episode under the reference and the best of the others.",
    )


def _liu_section(comparison: Comparison) -> list[str]:
    measures = liu_measures(comparison)
    if not measures:
        return []
    rows = []
    for name, measure in measures.items():
        scores = measure["scores"]
        cells = [f"{scores[letter]:.0f}" for letter in "abcd"] if isinstance(scores, dict) else ["–"] * 4
        rows.append([name, str(measure["fsn"]), *cells])
    header = ["policy", "F/S/N", "Score-A", "Score-B", "Score-C", "Score-D"]
    note = _note(
        "Liu 2022: episodes in which the reference is better in both metrics, one, or none (F/S/N, "
        "chapter 5); scores of 100 (chapter 4), for delays that cannot be negative."
    )
    return [_section("Measures of Liu 2022", _table(header, rows, [""] * len(rows)), note)]


def _latency_table(comparison: Comparison) -> str:
    rows = [
        [run.name, f"{run.latency.p50_ms:.3f}", f"{run.latency.p99_ms:.3f}", str(run.latency.decisions)]
        for run in comparison.runs
    ]
    header = ["policy", "p50 (ms)", "p99 (ms)", "decisions"]
    return _table(header, rows, ["reference", *[""] * (len(rows) - 1)])


def _section(title: str, *parts: str) -> str:
    return "\n".join(["<details>", f"<summary>{escape(title)}</summary>", *parts, "</details>"])


def _note(text: str) -> str:
    return f'<p class="note">{escape(text)}</p>'


def _figure(png: bytes, caption: str) -> str:
    data = base64.b64encode(png).decode("ascii")
    return (
        f'<figure><img alt="{escape(caption)}" src="data:image/png;base64,{data}">'
        f"<figcaption>{escape(caption)}</figcaption></figure>"
    )


def _table(
    header: Sequence[str], rows: Sequence[Sequence[str]], classes: Sequence[str], colour_column: int = -1
) -> str:
    """A table that scrolls sideways on a narrow screen; each row's class colours one cell, or the row."""
    lines = ['<div class="scroll"><table><thead><tr>']
    lines += [f"<th>{escape(cell)}</th>" for cell in header]
    lines.append("</tr></thead><tbody>")
    for row, kind in zip(rows, classes, strict=True):
        lines.append('<tr class="reference">' if kind == "reference" else "<tr>")
        for column, cell in enumerate(row):
            coloured = column == colour_column and kind not in ("", "reference")
            lines.append(
                f'<td class="{kind}">{escape(cell)}</td>' if coloured else f"<td>{escape(cell)}</td>"
            )
        lines.append("</tr>")
    lines.append("</tbody></table></div>")
    return "\n".join(lines)


# One episode under several policies, for the pictures of a report.


@runtime_checkable
class RecordsTimeline(Protocol):
    """A world that can tell what happened in the latest episode of a lane."""

    def timeline(self, lane: int) -> Timeline:
        """The episode in a lane, until now or until its end."""


def record_timelines(world: BatchWorld, policies: Sequence[Policy], key: EpisodeKey) -> dict[str, Timeline]:
    """Play one episode in lane 0 under each policy: what the world recorded, by policy.

    Raises:
        TypeError: if the world keeps no timeline.
    """
    if not isinstance(world, RecordsTimeline):
        raise TypeError(f"world {world.spec.name!r} offers no timeline")
    timelines = {}
    for policy in policies:
        run_episodes(world, policy, [key])
        timelines[policy.name] = world.timeline(0)
    return timelines


# The pictures of a report, as PNG bytes. The reference is always the strong colour, all others are grey.


STRONG = "#0b6e4f"
BAD = "#b3261e"
GREY = "#8a8f98"
UNCLEAR = "#9a7b00"
VERDICT_COLOURS = {"better": STRONG, "worse": BAD, "unclear": UNCLEAR}
LINE_COLOURS = ("#4c78a8", "#f58518", "#b279a2", "#e45756", "#72b7b2", "#9d755d", "#bab0ac", "#54a24b")
DPI = 120
LOG_RATIO = 10.0  # ratio of the largest to a typical value from which an axis is logarithmic


def _panels(width: float, height: float, rows: int = 1, columns: int = 1) -> tuple[Figure, list[Axes]]:
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
    figure, axes = _panels(7.0, 1.2 + 0.36 * len(others))
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
    figure, axes = _panels(7.0, 0.4 + 1.7 * rows, rows, columns)
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
    figure, axes = _panels(7.0, 1.1 + 0.36 * len(names))
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
    figure, axes = _panels(7.0, 5.2 if paid else 3.0, 2 if paid else 1, 1)
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
