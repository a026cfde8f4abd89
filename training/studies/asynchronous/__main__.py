"""Fill docs/results/liu2022-async.md: `python -m training.studies.asynchronous [NAME ...] --data FOLDER`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from envs.traces.images import load_images
from training.config import UsageError, provenance
from training.files import prepare_directory, write_json, write_text
from training.studies.asynchronous import experiment_3, privacy
from training.studies.asynchronous.comparisons import Comparison, Printed
from training.studies.asynchronous.runs import Runs
from training.studies.page import filled, marked_experiments

PAGE = Path("docs") / "results" / "liu2022-async.md"
DIFFERS = 1


class Section(NamedTuple):
    """A block between two markers.

    Attributes:
        make: measures with (runs, seeds, where the picture goes); gives a document that JSON can hold.
        body: the block's Markdown, from such a document alone.
    """

    make: Callable[[Runs, int, Path], dict[str, Any]]
    body: Callable[[Mapping[str, Any]], str]


TABLE_6_1 = Comparison(
    "scenario_a",
    {
        "syn": Printed("0.988", "45.2e4", "1"),
        "asyn": Printed("0.987", "7.81e4", "5.8"),
        "hale_low": Printed("0.988", "7.86e4", "5.8"),
        "hale_high": Printed("0.987", "7.86e4", "5.8"),
    },
)
TABLE_6_2 = Comparison(
    "scenario_b",
    {
        "syn": Printed("0.988", "22.54e5", "1"),
        "asyn": Printed("oscillates"),
        "fed_suda_1": Printed("0.987", "4.03e5", "5.6"),
        "fed_suda_2": Printed("0.985", "1.83e5", "12.3"),
    },
)
FIGURE_6_12 = Comparison("label_noise", {"asyn": Printed("about 0.8"), "fed_suda": Printed("as syn")})
FIGURE_7_2 = Comparison(
    "experiment_1",
    {
        "syn": Printed("0.985", "", "1"),
        "asyn": Printed("much lower"),
        "hp_asgd": Printed("0.985", "", "20"),
    },
)
FIGURE_7_3 = Comparison(
    "experiment_2", {"syn": Printed("0.98"), "asyn": Printed("below 0.85"), "hp_asgd": Printed("0.98")}
)
FIGURE_7_5 = Comparison("experiment_4", {"syn": Printed("0.98"), "hp_asgd": Printed("0.98", "", "4.8")})

SECTIONS = {
    "figure_6_5": Section(privacy.make, privacy.body),
    "table_6_1": Section(TABLE_6_1.make, TABLE_6_1.body),
    "table_6_2": Section(TABLE_6_2.make, TABLE_6_2.body),
    "figure_6_12": Section(FIGURE_6_12.make, FIGURE_6_12.body),
    "figure_7_2": Section(FIGURE_7_2.make, FIGURE_7_2.body),
    "figure_7_3": Section(FIGURE_7_3.make, FIGURE_7_3.body),
    "table_7_2": Section(experiment_3.make, experiment_3.body),
    "figure_7_5": Section(FIGURE_7_5.make, FIGURE_7_5.body),
}


def command_of(name: str) -> str:
    """What makes one section; FOLDER holds the images."""
    return f"python -m training.studies.asynchronous {name} --data FOLDER"


def measure(name: str, folder: Path, runs: Runs, seeds: int) -> None:
    """Make one section and store it next to the page. Raises WriteError."""
    picture = prepare_directory(folder) / f"{name}.png"
    made = SECTIONS[name].make(runs, seeds, picture)
    head = {**provenance(), "command": command_of(name), "images": runs.images.what}
    write_json(folder / f"{name}.json", {**head, **made})


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
    origin = f"`{document['command']}`; {document['seeds']} seeds; {document['images']}"
    return f"{SECTIONS[name].body(document)}\n\n{origin}; commit {document['commit'][:12]}"


def main(
    names: Annotated[list[str] | None, typer.Argument(help="sections; all if left out")] = None,
    data: Annotated[Path | None, typer.Option(help="folder with MNIST; else the package's digits")] = None,
    seeds: Annotated[int, typer.Option(help="trainings of each method")] = 3,
    check: Annotated[bool, typer.Option("--check", help="only say whether the page agrees")] = False,
) -> None:
    """Measure Liu 2022, chapters 6 and 7, and fill docs/results/liu2022-async.md."""
    try:
        if check:
            if page_text(PAGE) != PAGE.read_text(encoding="utf-8"):
                print(f"{PAGE} does not hold what is stored next to it: run {command_of('')}")
                raise typer.Exit(DIFFERS)
            return
        for name in names or SECTIONS:
            if name not in SECTIONS:
                raise UsageError(f"there is no section {name!r}: use {', '.join(SECTIONS)}")
        if seeds < 2:
            raise UsageError(f"seeds is {seeds}: expected at least 2, an interval needs them")
        runs = Runs(load_images(data))
        for name in names or SECTIONS:
            measure(name, PAGE.with_suffix(""), runs, seeds)
            print(f"measured: {name}", flush=True)
            write_text(PAGE, page_text(PAGE))
    except (ValueError, OSError) as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        raise typer.Exit(2) from error


if __name__ == "__main__":
    typer.run(main)
