"""Tables for the terminal."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from training.evaluation.runs import Comparison
from training.evaluation.statistics import Interval, Paired

WIDE = 140
"""Columns assumed where the output is not a terminal, so that a log holds whole rows."""

_STYLES = {"better": "green", "worse": "red", "unclear": "yellow"}


def console() -> Console:
    """A console on standard output that does not cut tables when the output is a file or a pipe."""
    plain = Console()
    return plain if plain.is_terminal else Console(width=WIDE)


def number(value: float) -> str:
    """Four significant digits or so, without an exponent for the sizes that occur."""
    size = abs(value)
    if size >= 1000:
        return f"{value:,.0f}"
    if size >= 100:
        return f"{value:.1f}"
    if size >= 1:
        return f"{value:.2f}"
    return "0" if value == 0 else f"{value:.3g}"


def signed(value: float) -> str:
    """`number` with its sign."""
    return ("+" if value > 0 else "") + number(value)


def bounds(interval: Interval) -> str:
    """An interval in brackets."""
    return f"[{number(interval.low)}, {number(interval.high)}]"


def verdict_mark(paired: Paired) -> str:
    """What the paired interval says: a star marks an interval that excludes 0."""
    return {"better": "better *", "worse": "worse *", "unclear": "not told apart"}[paired.verdict]


def arrow(higher_is_better: bool) -> str:
    """Which way is good."""
    return "↑" if higher_is_better else "↓"


def paired_table(comparison: Comparison) -> Table:
    """Objective of every policy, and the reference minus each, paired, from the best to the worst."""
    objective = comparison.objective
    reference = comparison.reference.name
    table = Table(
        title=f"{objective} {arrow(comparison.spec.higher_is_better[0])} on suite {comparison.suite.name} "
        f"({comparison.suite.episodes} episodes, {comparison.hash[:12]})",
        caption=f"* the 95 % interval of the paired difference excludes 0: {reference} is better or worse",
    )
    table.add_column("policy")
    for header in (f"mean {objective}", "95 % interval", f"{reference} − policy", "95 % interval"):
        table.add_column(header, justify="right")
    table.add_column(f"{reference} wins", justify="right")
    table.add_column(f"{reference} is")
    for name in comparison.ranking:
        summary = comparison.summaries[name][objective]
        cells: list[str | Text] = [name, number(summary.mean), bounds(summary.interval)]
        if name == reference:
            table.add_row(*cells, "", "", "", "the reference", style="bold")
            continue
        paired = comparison.paired[name][objective]
        cells += [
            signed(paired.difference),
            bounds(paired.interval),
            f"{100 * paired.win_probability:.0f} %",
            Text(verdict_mark(paired), style=_STYLES[paired.verdict]),
        ]
        table.add_row(*cells)
    return table


def metrics_tables(comparison: Comparison, width: int) -> list[Table]:
    """Mean of every metric (p95 in brackets) and the decision latency, from the best policy to the worst.

    The metrics are spread over as many tables as `width` columns of text demand.
    """
    latencies = {run.name: run.latency for run in comparison.runs}
    columns = {
        f"{metric} {arrow(higher)}": [
            f"{number(comparison.summaries[name][metric].mean)} "
            f"({number(comparison.summaries[name][metric].p95)})"
            for name in comparison.ranking
        ]
        for metric, higher in zip(comparison.spec.metrics, comparison.spec.higher_is_better, strict=True)
    }
    columns["ms per decision (p99)"] = [
        f"{latencies[name].p50_ms:.3f} ({latencies[name].p99_ms:.3f})" for name in comparison.ranking
    ]
    names_width = max(len(name) for name in comparison.ranking) + 4
    groups: list[dict[str, list[str]]] = []
    taken = width
    for header, cells in columns.items():
        needed = max(len(text) for text in (header, *cells)) + 3
        if taken + needed > width:
            groups.append({})
            taken = names_width
        groups[-1][header] = cells
        taken += needed
    return [_columns_table(comparison, group) for group in groups]


def _columns_table(comparison: Comparison, columns: dict[str, list[str]]) -> Table:
    table = Table(title="means over the episodes (p95 in brackets)")
    table.add_column("policy", no_wrap=True)
    for header in columns:
        table.add_column(header, justify="right", no_wrap=True)
    for row, name in enumerate(comparison.ranking):
        style = "bold" if name == comparison.reference.name else ""
        table.add_row(name, *(cells[row] for cells in columns.values()), style=style)
    return table


def evaluation_table(comparison: Comparison) -> Table:
    """Every metric of one policy with its interval and tails."""
    run = comparison.reference
    table = Table(
        title=f"{run.name} on suite {comparison.suite.name} of {comparison.spec.name} "
        f"({comparison.suite.episodes} episodes, {comparison.hash[:12]})",
        caption=f"decision latency: p50 {run.latency.p50_ms:.3f} ms, p99 {run.latency.p99_ms:.3f} ms",
    )
    table.add_column("metric")
    for header in ("mean", "95 % interval", "sd", "p95", "p99", "IQM"):
        table.add_column(header, justify="right")
    for metric, higher in zip(comparison.spec.metrics, comparison.spec.higher_is_better, strict=True):
        summary = comparison.summaries[run.name][metric]
        table.add_row(
            f"{metric} {arrow(higher)}",
            number(summary.mean),
            bounds(summary.interval),
            *(number(value) for value in (summary.sd, summary.p95, summary.p99, summary.iqm)),
        )
    return table
