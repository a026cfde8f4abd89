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
from training.studies.asynchronous.comparisons import Comparison, Printed
from training.studies.asynchronous.runs import Runs
from training.studies.asynchronous.zones import Zones
from training.studies.page import FilledPage, Section

PAGE = Path("docs") / "results" / "liu2022-async.md"
MODULE = "training.studies.asynchronous --data FOLDER"


class Study(Protocol):
    """A block between two markers, with its picture."""

    def make(self, runs: Runs, seeds: int, picture: Path) -> dict[str, Any]:
        """Measure; a document that JSON can hold."""

    def body(self, document: Mapping[str, Any]) -> str:
        """The block's Markdown, from such a document alone."""


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

ZONES_SPREAD, ZONES_STRAGGLERS = Zones("zones_spread"), Zones("zones_stragglers")

STUDIES: dict[str, Study] = {
    "figure_6_5": privacy,
    "table_6_1": TABLE_6_1,
    "table_6_2": TABLE_6_2,
    "figure_6_12": FIGURE_6_12,
    "figure_7_2": FIGURE_7_2,
    "figure_7_3": FIGURE_7_3,
    "table_7_2": experiment_3,
    "figure_7_5": FIGURE_7_5,
    "table_zones_spread": Zones("zones_spread"),
    "table_zones_stragglers": Zones("zones_stragglers"),
}


def page(data: Path | None, seeds: int) -> FilledPage:
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

    return FilledPage(PAGE, MODULE, {name: section(name, study) for name, study in STUDIES.items()})


def main(
    names: Annotated[list[str] | None, typer.Argument(help="sections; all if left out")] = None,
    data: Annotated[Path | None, typer.Option(help="folder with MNIST; else the package's digits")] = None,
    seeds: Annotated[int, typer.Option(min=2, help="trainings of each method; an interval needs 2")] = 3,
    check: Annotated[bool, typer.Option("--check", help="only say whether the page agrees")] = False,
) -> None:
    """Measure Liu 2022, chapters 6 and 7, and fill docs/results/liu2022-async.md."""
    page(data, seeds).run(names or (), check)


if __name__ == "__main__":
    typer.run(main)
