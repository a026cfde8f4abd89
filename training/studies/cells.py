"""Cells of Markdown tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from spotweave.training.evaluation.tables import number, signed

Summary = Mapping[str, Any]
Columns = Sequence[tuple[str, str]]
"""The heading of each column and the format of its cells, e.g. "{means[cost_usd]:.2f}"."""

_NAMES = {
    "tmdl": "TMDL",
    "ajer": "AJER",
    "ajdr": "AJDR",
    "s_log": "S_log",
    "s": "S",
    "eval_app": "Eval_app",
    "weighted_cost": "0.02 TMDL + AJDR",
}
_UNITS = {
    "cost_usd_eq": "USD per episode",
    "tmdl": "missed deadlines",
    "ajer": "% of standard time",
    "ajdr": "% of standard time",
}


def metric_name(metric: str) -> str:
    """The name in Liu 2022; a metric that is not listed keeps its own."""
    return _NAMES.get(metric, metric)


def unit_of(metric: str) -> str:
    """The unit of a metric, or its name where it has none."""
    return _UNITS.get(metric, metric_name(metric))


def axis_label(metric: str, higher_is_better: bool) -> str:
    """A metric with its unit, if it has one, and the thesis's letter: (L)ower or (H)igher is better."""
    unit = f", {_UNITS[metric]}" if metric in _UNITS else ""
    return f"{metric_name(metric)}{unit} ({'H' if higher_is_better else 'L'})"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; the first column is text, all others are numbers."""
    lines = [header, ["---", *["--:"] * (len(header) - 1)], *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def columns_table(columns: Columns, rows: Iterable[Mapping[str, Any]]) -> str:
    """A Markdown table by its columns, whose formats are filled from the fields of each row."""
    return table(
        [heading for heading, _ in columns], [[cell.format_map(row) for _, cell in columns] for row in rows]
    )


def interval_cell(measured: Summary, form: str = "+.1f") -> str:
    """A per cent with its interval: `+1.2 % [+0.9, +1.5]`."""
    low, high = measured["interval"]
    return f"{measured['mean']:{form}} % [{low:{form}}, {high:{form}}]"


def spread_cell(measured: Summary) -> str:
    """A mean; over training seeds with the range of the seeds' means."""
    text, seeds = number(measured["mean"]), measured["per_seed"]
    return text + (f" ({number(min(seeds))} to {number(max(seeds))})" if len(seeds) > 1 else "")


def difference_cell(against: Summary, metric: str) -> str:
    """A paired difference with its interval; a star marks one that excludes 0."""
    measured = against["difference"][metric]
    low, high = measured["interval"]
    star = "" if measured["verdict"] == "unclear" else " *"
    return f"{signed(measured['mean'])} [{number(low)}, {number(high)}]{star}"


def share_cell(closed: Summary | None, is_reference: bool) -> str:
    """The share of a gap that is closed, with its interval."""
    if is_reference:
        return "0 %"
    if closed is None:
        return "not defined"
    share = f"{100 * closed['share']:.1f} %"
    if closed["interval"] is None:
        return share
    low, high = closed["interval"]
    return f"{share} [{100 * low:.1f}, {100 * high:.1f}]"
