"""Sections that compare the methods of one scenario with the printed figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from spotweave.documents import read_document
from training.federated.asynchronous.outcomes import draw_experiment, summarise_trainings
from training.federated.asynchronous.scenario import read_scenario
from training.federated.asynchronous.simulate_async import ratio, spread
from training.studies.asynchronous.runs import Runs
from training.studies.cells import Columns, columns_table, table

EXAMPLES = Path("examples") / "asynchronous"
PRINTED: dict[str, Any] = read_document(Path(__file__).with_name("printed.yaml"))

COLUMNS: Columns = (
    ("method", "{name}"),
    ("accuracy", "{accuracy}"),
    ("*printed*", "{print.accuracy}"),
    ("training time (slices)", "{slices:.4g}"),
    ("*printed*", "{print.slices}"),
    ("speed-up", "{speed_up}"),
    ("*printed*", "{print.speed_up}"),
    ("at equal accuracy of", "{at}"),
    ("speed-up", "{speed_up_at}"),
    ("staleness", "{staleness:.1f}"),
    ("EI", "{ei:.3f}"),
)


class Printed(NamedTuple):
    """What the thesis prints of one method; empty where it prints nothing."""

    accuracy: str = ""
    slices: str = ""
    speed_up: str = ""


@dataclass(frozen=True)
class Comparison:
    """One scenario's methods.

    Attributes:
        scenario: name of its file in examples/asynchronous.
        printed: by method.
    """

    scenario: str
    printed: Mapping[str, Printed] = field(default_factory=dict)

    def make(self, runs: Runs, seeds: int, picture: Path) -> dict[str, Any]:
        """Train all methods with all seeds and draw them; a document that JSON can hold."""
        scenario = read_scenario(EXAMPLES / f"{self.scenario}.yaml")
        trainings = runs.all_of(scenario, scenario.methods, range(seeds))
        draw_experiment(trainings, scenario.title, picture)
        return {
            "seeds": seeds,
            "picture": picture.name,
            "title": scenario.title,
            "updates": scenario.updates,
            "methods": summarise_trainings(trainings, scenario.reference, scenario.milestones),
        }

    def body(self, document: Mapping[str, Any]) -> str:
        """Two tables and the picture, from such a document alone."""
        rows = []
        for name, measured in document["methods"].items():
            at = measured["at_milestone"]
            printed = self.printed.get(name, Printed())
            rows.append(
                {
                    "name": name,
                    "print": Printed(*(f"*{text}*" if text else "" for text in printed)),
                    "accuracy": spread(measured["accuracy"], "{:.3f}".format),
                    "slices": fmean(measured["training_slices"]),
                    "speed_up": ratio(measured["speed_up"]),
                    "at": "" if at is None else f"{at['accuracy']:g}",
                    "speed_up_at": "" if at is None else ratio(at["speed_up"]),
                    "staleness": fmean(measured["staleness"]),
                    "ei": fmean(measured["ei"]),
                }
            )
        picture = f"![{document['title']}](liu2022-async/{document['picture']})"
        return "\n\n".join([columns_table(COLUMNS, rows), self._milestones(document), picture])

    def _milestones(self, document: Mapping[str, Any]) -> str:
        methods = document["methods"]
        names = list(next(iter(methods.values()))["milestones"])
        rows = [
            [name, *(_moment(measured["milestones"][milestone]) for milestone in names)]
            for name, measured in methods.items()
        ]
        return table(["slices until an accuracy of", *names], rows)


def _moment(slices: list[float | None]) -> str:
    """The mean time over seeds; where some never came there, how many did."""
    reached = [time for time in slices if time is not None]
    if not reached:
        return "never"
    text = f"{fmean(reached):.3g}"
    return text if len(reached) == len(slices) else f"{text} ({len(reached)} of {len(slices)} seeds)"
