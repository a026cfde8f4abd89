"""Fill docs/results/liu2022-async.md: `python -m training.studies.asynchronous --data FOLDER [NAME ...]`."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Protocol

import typer

from envs.traces.images import load_images
from training.files import prepare_directory
from training.studies.asynchronous import experiment_3, privacy
from training.studies.asynchronous.comparisons import PRINTED, Comparison, Printed, Runs
from training.studies.asynchronous.zones import Zones
from training.studies.page import Check, Names, Page, Section

PAGE = Path("docs") / "results" / "liu2022-async.md"
COMMAND = "python -m training.studies.asynchronous --data FOLDER {name}"


class Study(Protocol):
    """A block between two markers, with its picture."""

    def make(self, runs: Runs, seeds: int, picture: Path) -> dict[str, Any]:
        """Measure; a document that JSON can hold."""

    def body(self, document: Mapping[str, Any]) -> str:
        """The block's Markdown, from such a document alone."""


def _comparison(scenario: str, section: str) -> Comparison:
    return Comparison(scenario, {name: Printed(*values) for name, values in PRINTED[section].items()})


STUDIES: dict[str, Study] = {
    "figure_6_5": privacy,
    "table_6_1": _comparison("scenario_a", "table_6_1"),
    "table_6_2": _comparison("scenario_b", "table_6_2"),
    "figure_6_12": _comparison("label_noise", "figure_6_12"),
    "figure_7_2": _comparison("experiment_1", "figure_7_2"),
    "figure_7_3": _comparison("experiment_2", "figure_7_3"),
    "table_7_2": experiment_3,
    "figure_7_5": _comparison("experiment_4", "figure_7_5"),
    "table_zones_spread": Zones("zones_spread"),
    "table_zones_stragglers": Zones("zones_stragglers"),
}


def page(data: Path | None, seeds: int) -> Page:
    """The page, measured with the images of a folder; nothing is read before a section is measured."""

    @functools.cache
    def runs() -> Runs:
        return Runs(load_images(data))

    def section(name: str, study: Study) -> Section:
        def make() -> dict[str, Any]:
            picture = prepare_directory(PAGE.with_suffix("")) / f"{name}.png"
            return {"images": runs().images.what, **study.make(runs(), seeds, picture)}

        def body(document: Mapping[str, Any]) -> str:
            return f"{study.body(document)}\n\n{document['seeds']} seeds; {document['images']}."

        return Section(make, body)

    return Page(PAGE, COMMAND, {name: section(name, study) for name, study in STUDIES.items()})


def main(
    names: Names = None,
    data: Annotated[Path | None, typer.Option(help="folder with MNIST; else the package's digits")] = None,
    seeds: Annotated[int, typer.Option(min=2, help="trainings of each method; an interval needs 2")] = 3,
    check: Check = False,
) -> None:
    """Measure Liu 2022, chapters 6 and 7, and fill docs/results/liu2022-async.md."""
    page(data, seeds).run(names or (), check)


if __name__ == "__main__":
    typer.run(main)
