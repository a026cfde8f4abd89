"""Fill liu2022-workflows.md: `python -m spotweave.training.studies.workflows [NAME ...] [--check]`."""

from __future__ import annotations

from pathlib import Path

import typer

from spotweave.training.studies.page import Check, Names, Page, Section
from spotweave.training.studies.workflows import chapter_3, planners, spot

PAGE = Path("docs") / "results" / "liu2022-workflows.md"
COMMAND = "python -m spotweave.training.studies.workflows {name}"
SECTIONS = {
    "figure_3_5": Section(chapter_3.make_figure_3_5, chapter_3.figure_3_5_body),
    "table_3_1": Section(chapter_3.make_table_3_1, chapter_3.table_3_1_body),
    "table_3_2": Section(chapter_3.make, chapter_3.body),
    "table_optimum": Section(planners.make_optimum, planners.optimum_body),
    "table_families": Section(planners.make_families, planners.families_body),
    "table_spot": Section(spot.make, spot.body),
}


def main(names: Names = None, check: Check = False) -> None:
    """Measure the tables of Liu 2022, chapter 3, and fill docs/results/liu2022-workflows.md."""
    Page(PAGE, COMMAND, SECTIONS).run(names or (), check)


if __name__ == "__main__":
    typer.run(main)
