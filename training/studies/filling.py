"""A page of results whose blocks are measured one by one: `python -m MODULE [NAME ...] [--check]`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from training.config import UsageError, provenance
from training.files import prepare_directory, write_json, write_text
from training.studies.page import filled, marked_experiments

DIFFERS = 1


@dataclass(frozen=True)
class Section:
    """A block between two markers.

    Attributes:
        make: measures; gives a document that JSON can hold.
        body: the block's Markdown, from such a document alone.
    """

    make: Callable[[], dict[str, Any]]
    body: Callable[[Mapping[str, Any]], str]


@dataclass(frozen=True)
class FilledPage:
    """A page, its sections and the module whose command fills it; documents lie in a folder of its name."""

    page: Path
    module: str
    sections: Mapping[str, Section]

    def command_of(self, name: str) -> str:
        """What makes one section."""
        return f"python -m {self.module} {name}"

    def measure(self, name: str) -> None:
        """Make one section and store it next to the page. Raises WriteError."""
        document = {**provenance(), "command": self.command_of(name), **self.sections[name].make()}
        write_json(prepare_directory(self.page.with_suffix("")) / f"{name}.json", document)

    def text(self) -> str:
        """The page with all its blocks regenerated from what is stored next to it.

        Raises:
            UsageError: if a marker is broken or missing, or names no section.
        """
        text = self.page.read_text(encoding="utf-8")
        if sorted(marked_experiments(text)) != sorted(self.sections):
            raise UsageError(
                f"{self.page} has the markers {marked_experiments(text)}: expected {list(self.sections)}"
            )
        return filled(text, self.body)

    def body(self, name: str) -> str:
        """What belongs between a section's markers."""
        file = self.page.with_suffix("") / f"{name}.json"
        if not file.is_file():
            return f"Not measured yet: `{self.command_of(name)}`."
        document: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        origin = f"`{document['command']}`; commit {document['commit'][:12]}"
        return f"{self.sections[name].body(document)}\n\n{origin}"

    def run(self, names: Sequence[str], check: bool) -> None:
        """Measure the sections named, or all, and fill the page; or only say whether it agrees.

        Raises:
            typer.Exit: with DIFFERS where it does not agree, with 2 after a mistake, told in one line.
        """
        try:
            if check:
                if self.text() != self.page.read_text(encoding="utf-8"):
                    print(f"{self.page} does not hold what is stored next to it: run {self.command_of('')}")
                    raise typer.Exit(DIFFERS)
                return
            for name in names:
                if name not in self.sections:
                    raise UsageError(f"there is no section {name!r}: use {', '.join(self.sections)}")
            for name in names or self.sections:
                self.measure(name)
                write_text(self.page, self.text())
                print(f"measured: {name}", flush=True)
        except (ValueError, OSError) as error:
            print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
            raise typer.Exit(2) from error
