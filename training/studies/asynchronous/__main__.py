"""Fill liu2022-async.md: `python -m spotweave.training.studies.asynchronous --data FOLDER [NAME ...]`."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from spotweave.envs.traces.images import load_images
from spotweave.training.files import prepare_directory
from spotweave.training.studies.asynchronous import experiment_3, privacy
from spotweave.training.studies.asynchronous.comparisons import PRINTED, Runs, comparison
from spotweave.training.studies.asynchronous.zones import zones
from spotweave.training.studies.page import Check, Names, Page, Section

PAGE = Path("docs") / "results" / "liu2022-async.md"
COMMAND = "python -m spotweave.training.studies.asynchronous --data FOLDER {name}"


STUDIES = {
    "figure_6_5": Section(privacy.make, privacy.body),
    "table_6_1": comparison("scenario_a", PRINTED["table_6_1"]),
    "table_6_2": comparison("scenario_b", PRINTED["table_6_2"]),
    "figure_6_12": comparison("label_noise", PRINTED["figure_6_12"]),
    "figure_7_2": comparison("experiment_1", PRINTED["figure_7_2"]),
    "figure_7_3": comparison("experiment_2", PRINTED["figure_7_3"]),
    "table_7_2": Section(experiment_3.make, experiment_3.body),
    "figure_7_5": comparison("experiment_4", PRINTED["figure_7_5"]),
    "table_zones_spread": zones("zones_spread"),
    "table_zones_stragglers": zones("zones_stragglers"),
}
"""Each is made with runs, a number of seeds and the path of its picture."""


def page(data: Path | None, seeds: int) -> Page:
    """The page, measured with the images of a folder; nothing is read before a section is measured."""

    @functools.cache
    def runs() -> Runs:
        return Runs(load_images(data))

    def section(name: str, study: Section) -> Section:
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
