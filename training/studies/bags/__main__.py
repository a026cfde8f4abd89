"""Fill the tables of docs/results/teylo2021.md: `python -m training.studies.bags [NAME ...] [--check]`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from training.config import UsageError, provenance
from training.files import prepare_directory, write_json, write_text
from training.studies.bags.sections import SECTIONS
from training.studies.page import filled, marked_experiments

PAGE = Path("docs") / "results" / "teylo2021.md"
DIFFERS = 1


def command_of(name: str) -> str:
    """What makes one section."""
    return f"python -m training.studies.bags {name}"


def measure(name: str, folder: Path) -> None:
    """Make one section and store it next to the page. Raises WriteError."""
    made = SECTIONS[name].make()
    write_json(
        prepare_directory(folder) / f"{name}.json", {**provenance(), "command": command_of(name), **made}
    )


def page_text(page: Path) -> str:
    """The page with all its blocks regenerated from what is stored next to it.

    Raises:
        UsageError: if a marker is broken or missing, or names no section.
    """
    text = page.read_text(encoding="utf-8")
    if sorted(marked_experiments(text)) != sorted(SECTIONS):
        raise UsageError(f"{page} has the markers {marked_experiments(text)}: expected {list(SECTIONS)}")
    return filled(text, lambda name: body(page.with_suffix(""), name))


def body(folder: Path, name: str) -> str:
    """What belongs between a section's markers."""
    file = folder / f"{name}.json"
    if not file.is_file():
        return f"Not measured yet: `{command_of(name)}`."
    document: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    origin = f"`{document['command']}`; commit {document['commit'][:12]}"
    return f"{SECTIONS[name].body(document)}\n\n{origin}"


def main(
    names: Annotated[list[str] | None, typer.Argument(help="sections; all if left out")] = None,
    check: Annotated[bool, typer.Option("--check", help="only say whether the page agrees")] = False,
) -> None:
    """Measure the tables of Teylo 2021 and fill docs/results/teylo2021.md."""
    try:
        if check:
            if page_text(PAGE) != PAGE.read_text(encoding="utf-8"):
                print(f"{PAGE} does not hold what is stored next to it: run {command_of('')}")
                raise typer.Exit(DIFFERS)
            return
        for name in names or SECTIONS:
            if name not in SECTIONS:
                raise UsageError(f"there is no section {name!r}: use {', '.join(SECTIONS)}")
        for name in names or SECTIONS:
            measure(name, PAGE.with_suffix(""))
            print(f"measured: {name}")
        write_text(PAGE, page_text(PAGE))
    except (ValueError, OSError) as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        raise typer.Exit(2) from error


if __name__ == "__main__":
    typer.run(main)
