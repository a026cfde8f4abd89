"""The page of a study: prose by hand, tables between markers made from the stored summaries.

A marker is a line `<!-- table_5_3 -->`; what follows up to the line `<!-- end -->` belongs to the experiment
of that name.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from spotweave.mistakes import EXIT_FAILED, one_line_errors
from spotweave.training.config import UsageError, provenance
from spotweave.training.files import prepare_directory, write_bytes, write_json, write_text
from spotweave.training.progress import still_busy
from spotweave.training.studies.markdown import fragment

BLOCK = re.compile(
    r"^<!-- (?P<name>(?:table|figure)_\w+) -->\n(?P<body>.*?)^<!-- end -->$", re.MULTILINE | re.DOTALL
)
COMMAND = "python training/compare.py +experiment={study}/{name}"


def marked_experiments(page: str) -> list[str]:
    """The names of the experiments that a page shows, in order. Raises UsageError if a marker has no end."""
    names = [match["name"] for match in BLOCK.finditer(page)]
    opened = re.findall(r"^<!-- ((?:table|figure)_\w+) -->$", page, re.MULTILINE)
    for name in opened:
        if names.count(name) != 1 or opened.count(name) != 1:
            raise UsageError(
                f"the marker <!-- {name} --> needs one <!-- end --> of its own, and may stand once"
            )
    return names


def filled(page: str, body: Callable[[str], str]) -> str:
    """The page with everything between its markers regenerated; `body` gives it by the experiment's name."""
    marked_experiments(page)
    return BLOCK.sub(lambda match: f"<!-- {match['name']} -->\n{body(match['name'])}\n<!-- end -->", page)


def stored_body(folder: Path, name: str) -> str:
    """What belongs between an experiment's markers, from its stored summary; a line if there is none."""
    file = folder / f"{name}.json"
    if not file.is_file():
        return f"Not measured yet: `{COMMAND.format(study=folder.name, name=name)}`."
    summary: Mapping[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return fragment(summary)


def store_results(results: Path, folder: Path, names: list[str]) -> list[str]:
    """Copy summaries, shown episodes and pictures of measured experiments next to the page.

    Returns the names of those that were found. Raises UsageError if a result is incomplete.
    """
    found = [name for name in names if (results / name / "summary.json").is_file()]
    prepare_directory(folder)
    for name in found:
        summary = json.loads((results / name / "summary.json").read_text(encoding="utf-8"))
        pairs = [("summary.json", f"{name}.json"), ("shown.csv", f"{name}.csv")]
        pairs += [(f"{file}.png", f"{file}.png") for file in summary["figures"]]
        for source, target in pairs:
            if not (results / name / source).is_file():
                raise UsageError(
                    f"{results / name} lacks {source}: measure it again with {summary['command']}"
                )
            write_bytes(folder / target, (results / name / source).read_bytes())
    return found


def publish(page: Path, results: Path) -> list[str]:
    """Store what was measured next to the page and regenerate its tables; names of what was stored.

    Raises:
        UsageError: if there is no such page, or one of its markers is broken.
        WriteError: if a file cannot be written.
    """
    if not page.is_file():
        raise UsageError(
            f"no page at {page}: write its prose first, with markers <!-- NAME --> and <!-- end -->"
        )
    text = page.read_text(encoding="utf-8")
    folder = page.with_suffix("")
    found = store_results(results, folder, marked_experiments(text))
    write_text(page, filled(text, lambda name: stored_body(folder, name)))
    return found


def differing(page: Path) -> list[str]:
    """The experiments whose text in the page is not what their stored summaries say."""
    text = page.read_text(encoding="utf-8")
    marked_experiments(text)
    folder = page.with_suffix("")
    return [
        match["name"]
        for match in BLOCK.finditer(text)
        if match["body"].strip() != stored_body(folder, match["name"]).strip()
    ]


# A page of results whose blocks are measured one by one: `python -m MODULE [NAME ...] [--check]`.

Names = Annotated[list[str] | None, typer.Argument(help="sections; all if left out")]
Check = Annotated[bool, typer.Option("--check", help="only say whether the page agrees")]


@dataclass(frozen=True)
class Section:
    """A block between two markers."""

    make: Callable[..., dict[str, Any]]  # measures; gives a document that JSON can hold
    body: Callable[[Mapping[str, Any]], str]  # the block's Markdown, from such a document alone


def origin(document: Mapping[str, Any]) -> str:
    """The command behind a block, and what it was measured on."""
    parts = [f"`{document['command']}`"]
    if "suite" in document:
        parts.append(f"suite `{document['suite']['name']}`, {document['suite']['episodes']} episodes")
    elif "runs" in document:
        parts.append(f"{document['seeds']} sets of {document['runs']} runs")
    return "; ".join([*parts, f"commit {document['commit'][:12]}"])


@dataclass(frozen=True)
class Page:
    """A page that is made of sections."""

    path: Path  # the page
    command: str  # what makes a section; `{name}` stands for its name
    sections: Mapping[str, Section]  # by name, which is also the block's marker and its files' name
    folder: Path | None = None  # where documents are; None: next to the page, in a folder of its name

    def file(self, name: str, ending: str = "json") -> Path:
        """Path of a section's document, picture or episodes."""
        return (self.folder or self.path.with_suffix("")) / f"{name}.{ending}"

    def stored(self, name: str) -> dict[str, Any] | None:
        """A section's document; None if it is not measured."""
        file = self.file(name)
        return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else None

    def measure(self, name: str) -> None:
        """Make one section and store it. Raises WriteError."""
        command = self.command.format(name=name)
        prepare_directory(self.file(name).parent)
        document = {**provenance(), "command": command, **self.sections[name].make()}
        write_json(self.file(name), document)

    def text(self) -> str:
        """The page with all its blocks regenerated from the stored documents.

        Raises:
            UsageError: if a marker is broken or missing, or names no section.
        """
        text = self.path.read_text(encoding="utf-8")
        if sorted(marked_experiments(text)) != sorted(self.sections):
            raise UsageError(
                f"{self.path} has the markers {marked_experiments(text)}: expected {list(self.sections)}"
            )
        return filled(text, self.body)

    def body(self, name: str) -> str:
        """Text between a section's markers."""
        document = self.stored(name)
        if document is None:
            return f"Not measured yet: `{self.command.format(name=name)}`."
        return f"{self.sections[name].body(document)}\n\n{origin(document)}"

    def run(self, names: Sequence[str], check: bool) -> None:
        """Measure the sections named, or all, and fill the page; or only say whether it agrees.

        Raises:
            SystemExit: with EXIT_FAILED where it does not agree, with 2 after a mistake, told in one line.
        """
        with one_line_errors():
            if check:
                if self.text() != self.path.read_text(encoding="utf-8"):
                    command = self.command.format(name="")
                    print(f"{self.path} does not hold what is stored next to it: run {command}")
                    sys.exit(EXIT_FAILED)
                return
            for name in names:
                if name not in self.sections:
                    raise UsageError(f"there is no section {name!r}: use {', '.join(self.sections)}")
            for name in names or self.sections:
                with still_busy(f"measuring {name}"):
                    self.measure(name)
                write_text(self.path, self.text())
                print(f"measured: {name}", flush=True)
