"""Sections that compare the methods of one scenario with the printed figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from training.federated.asynchronous.outcomes import summarise_trainings
from training.federated.asynchronous.pictures import draw_experiment
from training.federated.asynchronous.scenario import read_scenario
from training.federated.asynchronous.simulate_async import ratio, spread
from training.studies.asynchronous.runs import Runs
from training.studies.cells import table

EXAMPLES = Path("examples") / "asynchronous"


@dataclass(frozen=True)
class Printed:
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
        header = [
            "method",
            "accuracy",
            "*printed*",
            "training time (slices)",
            "*printed*",
            "speed-up",
            "*printed*",
            "at equal accuracy of",
            "speed-up",
            "staleness",
            "EI",
        ]
        rows = []
        for name, measured in document["methods"].items():
            printed = self.printed.get(name, Printed())
            at = measured["at_milestone"]
            rows.append(
                [
                    name,
                    spread(measured["accuracy"], "{:.3f}".format),
                    _italic(printed.accuracy),
                    f"{fmean(measured['training_slices']):.4g}",
                    _italic(printed.slices),
                    ratio(measured["speed_up"]),
                    _italic(printed.speed_up),
                    "" if at is None else f"{at['accuracy']:g}",
                    "" if at is None else ratio(at["speed_up"]),
                    f"{fmean(measured['staleness']):.1f}",
                    f"{fmean(measured['ei']):.3f}",
                ]
            )
        picture = f"![{document['title']}](liu2022-async/{document['picture']})"
        return "\n\n".join([table(header, rows), self._milestones(document), picture])

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


def _italic(text: str) -> str:
    return f"*{text}*" if text else ""
