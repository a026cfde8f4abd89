"""Tables and texts for people; without a terminal as wide as they must be, so that they can be searched."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from spotweave.mistakes import harmless

Columns = Mapping[str, Callable[[Any], str]]
"""Headings, as `table` takes them, and what each column says of one row's thing."""
_WIDE = 1000
_STYLES = {
    "succeeded": "green",
    "running": "cyan",
    "ready": "green",
    "failed": "red",
    "cancelled": "yellow",
    "pending": "yellow",
}


def console() -> Console:
    """Console on stdout."""
    found = Console(highlight=False)
    return found if found.is_terminal else Console(width=_WIDE, highlight=False)


def gpus(offer: Mapping[str, Any]) -> str:
    """Of one instance of an offer: "T4", "4 T4", "-"."""
    return "-" if offer["gpu"] is None else f"{offer['gpus']} {offer['gpu']}".removeprefix("1 ")


def available(offer: Mapping[str, Any]) -> str:
    """Whether an offer can be had: "yes", "no: why"."""
    return "yes" if offer["available"] else f"no: {offer['reason'] or 'availability unknown'}"


def show(found: Iterable[object], columns: Columns, empty: str) -> None:
    """Print a table of what was found, or `empty` if nothing was. See `table`."""
    on = console()
    rows = [[told(one) for told in columns.values()] for one in found]
    if not rows:
        on.print(empty, markup=False)
    else:
        on.print(table(tuple(columns), rows, wrap=on.is_terminal))


def table(headings: Sequence[str], rows: Sequence[Sequence[str]], *, wrap: bool, indent: int = 0) -> Table:
    """Columns under headings.

    Args:
        headings: one that ends in ">" is of numbers; one that ends in "*" is of texts that may be broken into
            lines, and is left out if all of them are empty.
        rows: texts, as they are.
        wrap: whether anything is broken into lines.
        indent: spaces before each line.
    """
    kept = [k for k, name in enumerate(headings) if not name.endswith("*") or any(row[k] for row in rows)]
    made = Table(box=None, padding=(0, 2, 0, 0), header_style="bold", pad_edge=False)
    if indent:
        made.add_column(" " * (indent - 2), no_wrap=True)
    for k in kept:
        name = headings[k]
        number, text = name.endswith(">"), name.endswith("*")
        longest = max((len(row[k]) for row in rows), default=0)
        made.add_column(
            name.rstrip("*>"),
            # Headings of numbers may be broken; numbers have no place where they could be.
            no_wrap=not (wrap and (text or number)),
            justify="right" if number else "left",
            overflow="fold",
            min_width=longest if number else min(16, longest) if text else None,
        )
    for row in rows:
        made.add_row(*([" " * (indent - 2)] if indent else []), *(_styled(row[k]) for k in kept))
    return made


def line(on: Console, text: str, style: str | None = None) -> None:
    """Print a text as it is: nothing in it is markup, or obeyed by a terminal."""
    on.print(harmless(text), markup=False, style=style, soft_wrap=True)


def _styled(text: str) -> str:
    style = _STYLES.get(text)
    return escape(harmless(text)) if style is None else f"[{style}]{text}[/]"


def usd(amount: float | None) -> str:
    """An amount of money; small ones with the digits that tell them from nothing."""
    if amount is None:
        return "-"
    return f"{amount:.2f}" if abs(amount) >= 1 or amount == 0 else f"{amount:.4f}"


def span(seconds: float) -> str:
    """A length of time: 42s, 3m05s, 2h10m, 3d04h."""
    sign, whole = ("-" if seconds < 0 else ""), round(abs(seconds))
    for unit, name, lower, lower_name in (
        (86_400, "d", 3_600, "h"),
        (3_600, "h", 60, "m"),
        (60, "m", 1, "s"),
    ):
        if whole >= unit:
            return f"{sign}{whole // unit}{name}{whole % unit // lower:02}{lower_name}"
    return f"{sign}{whole}s"


def ago(time_s: float | None) -> str:
    """Time since a moment, for people."""
    return "-" if time_s is None else f"{span(max(0.0, time.time() - time_s))} ago"


def clock(time_s: float) -> str:
    """A moment of today as 17:03:09, an earlier one with its day; local time."""
    moment = time.localtime(time_s)
    today = time.localtime()[:3] == moment[:3]
    return time.strftime("%H:%M:%S" if today else "%Y-%m-%d %H:%M:%S", moment)


def share(part: float, whole: float) -> str:
    """Saving as a percentage of the whole, such as 70 %."""
    return f"{100 * (1 - part / whole):.0f} %" if whole else "-"
