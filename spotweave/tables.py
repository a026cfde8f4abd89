"""Tables on standard output."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table


def show(headings: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    """Print a table; where there is no terminal, as wide as it must be, so that it can be searched."""
    console = Console()
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for heading in headings:
        table.add_column(heading, no_wrap=not console.is_terminal)
    for row in rows:
        table.add_row(*row)
    if console.is_terminal:
        console.print(table)
    else:
        Console(width=400).print(table)
