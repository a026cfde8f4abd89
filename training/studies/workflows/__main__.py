"""Fill docs/results/liu2022-workflows.md: `python -m training.studies.workflows [NAME ...] [--check]`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from training.studies.page import FilledPage
from training.studies.workflows.sections import SECTIONS

PAGE = Path("docs") / "results" / "liu2022-workflows.md"
MODULE = "training.studies.workflows"


def main(
    names: Annotated[list[str] | None, typer.Argument(help="sections; all if left out")] = None,
    check: Annotated[bool, typer.Option("--check", help="only say whether the page agrees")] = False,
) -> None:
    """Measure the tables of Liu 2022, chapter 3, and fill docs/results/liu2022-workflows.md."""
    FilledPage(PAGE, MODULE, SECTIONS).run(names or (), check)


if __name__ == "__main__":
    typer.run(main)
