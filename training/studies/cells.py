"""What stands in the cells of Markdown tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from training.evaluation.tables import number, signed

Summary = Mapping[str, Any]


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; the first column is text, all others are numbers."""
    lines = [header, ["---", *["--:"] * (len(header) - 1)], *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


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
