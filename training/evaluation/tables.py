"""Tables for the terminal."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from spotweave.training.evaluation.runs import Comparison
from spotweave.training.evaluation.statistics import Interval, Paired

WIDE = 140  # columns assumed where the output is not a terminal, so that a log holds whole rows

MOST_POLICIES = 8
"""Rows of a comparison in the terminal and at the top of its report; below, the report has all."""

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
    """Arrow towards better values."""
    return "↑" if higher_is_better else "↓"


def leaders(comparison: Comparison) -> list[str]:
    """The best policies and the reference, at most MOST_POLICIES together, in the order of the ranking."""
    reference = comparison.reference.name
    others = [name for name in comparison.ranking if name != reference][: MOST_POLICIES - 1]
    return [name for name in comparison.ranking if name == reference or name in others]


def paired_table(comparison: Comparison, *, has_report: bool = True) -> Table:
    """The best policies, the reference among them: the objective, and the reference minus each, paired."""
    objective = comparison.objective
    reference = comparison.reference
    shown = leaders(comparison)
    left_out = len(comparison.ranking) - len(shown)
    latency = reference.latency
    more = f"{left_out} more policies and all metrics" if left_out else "all metrics"
    table = Table(
        title=f"{objective} {arrow(comparison.spec.higher_is_better[0])}, suite {comparison.suite.name}, "
        f"{comparison.suite.episodes} episodes",
        caption=f"{reference.name} decides in {latency.p50_ms:.3f} ms (p99 {latency.p99_ms:.3f})"
        + (f"; {more} in the report" if has_report else ""),
    )
    table.add_column("policy")
    for header in ("mean", f"{_short(reference.name)} −", "95 %"):
        table.add_column(header, justify="right")
    table.add_column(f"{_short(reference.name)} is")
    for name in shown:
        mean = number(comparison.summaries[name][objective].mean)
        if name == reference.name:
            table.add_row(_short(name), mean, "", "", "", style="bold")
        else:
            paired = comparison.paired[name][objective]
            verdict = Text(verdict_mark(paired), style=_STYLES[paired.verdict])
            table.add_row(_short(name), mean, signed(paired.difference), bounds(paired.interval), verdict)
    return table


def _short(name: str) -> str:
    return name if len(name) <= 18 else name[:17] + "…"


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
