"""report.html: one file, pictures inside, for a phone as for a desk: the verdict, and the rest folded."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from string import Template
from typing import Protocol, runtime_checkable

from spotweave.agents.policy import Policy
from spotweave.envs.simulation.timeline import Timeline
from spotweave.envs.simulation.world import BatchWorld, EpisodeKey
from spotweave.training.evaluation import report_plots
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
        report_plots.paired_forest(comparison, shown),
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
        report_plots.paired_episodes(comparison),
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
        yield _figure(report_plots.distributions(comparison, metric), f"{metric}: every episode.")


def _episode_parts(comparison: Comparison, timelines: Mapping[str, Timeline]) -> Iterable[str]:
    if not timelines:
        yield _note("This world keeps no timeline of an episode.")
        return
    reference = comparison.reference.name
    key = comparison.suite.episode_keys()[0]
    yield _note(f"The suite's first episode (split {key.split}, seed {key.seed}, number {key.index}).")
    yield _figure(
        report_plots.gantt(timelines[reference]),
        f"{reference}: one box per execution, as high as the executors that it holds; red edge or triangle: "
        "deadline missed.",
    )
    yield _figure(
        report_plots.over_time(timelines, reference),
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
