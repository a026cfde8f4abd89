"""Fill the tables of docs/results/teylo2021.md: `python -m training.studies.bags [NAME ...] [--check]`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from training.studies.bags.sections import SECTIONS
from training.studies.page import FilledPage

PAGE = Path("docs") / "results" / "teylo2021.md"
MODULE = "training.studies.bags"


def main(
    names: Annotated[list[str] | None, typer.Argument(help="sections; all if left out")] = None,
    check: Annotated[bool, typer.Option("--check", help="only say whether the page agrees")] = False,
) -> None:
    """Measure the tables of Teylo 2021 and fill docs/results/teylo2021.md."""
    FilledPage(PAGE, MODULE, SECTIONS).run(names or (), check)


if __name__ == "__main__":
    typer.run(main)
