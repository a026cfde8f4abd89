"""Fill docs/results/teylo2021.md: `python -m spotweave.training.studies.bags [NAME ...] [--check]`."""

from __future__ import annotations

from pathlib import Path

import typer

from spotweave.training.studies.bags import chapter_7, chapter_9, quality, table_ours
from spotweave.training.studies.page import Check, Names, Page, Section

PAGE = Path("docs") / "results" / "teylo2021.md"
COMMAND = "python -m spotweave.training.studies.bags {name}"
SECTIONS = {
    "table_9_3": Section(quality.make_table_9_3, quality.table_9_3_body),
    "table_9_4": Section(quality.make_table_9_4, quality.table_9_4_body),
    "table_7_4": Section(chapter_7.make_table_7_4, chapter_7.table_7_4_body),
    "table_7_5": Section(chapter_7.make_table_7_5, chapter_7.table_7_5_body),
    "table_9_5": Section(chapter_9.make_table_9_5, chapter_9.table_9_5_body),
    "table_9_6": Section(chapter_9.make_table_9_6, chapter_9.table_9_6_body),
    "table_ours": Section(table_ours.make, table_ours.body),
}


def main(names: Names = None, check: Check = False) -> None:
    """Measure the tables of Teylo 2021 and fill docs/results/teylo2021.md."""
    Page(PAGE, COMMAND, SECTIONS).run(names or (), check)


if __name__ == "__main__":
    typer.run(main)
