"""Sections that compare the methods of one scenario with the printed figures."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from spotweave.documents import read_document
from spotweave.envs.traces.images import Images
from spotweave.training.config import plain
from spotweave.training.federated.asynchronous.outcomes import (
    draw_experiment,
    ratio,
    spread,
    summarise_trainings,
)
from spotweave.training.federated.asynchronous.scenario import Method, Scenario, read_scenario
from spotweave.training.federated.asynchronous.virtual_time import Point, Training, VirtualTime
from spotweave.training.studies.cells import Columns, columns_table, table
from spotweave.training.studies.evaluations import Keeper, code_hash
from spotweave.training.studies.page import Section

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


def comparison(scenario: str, printed: Mapping[str, Sequence[str]]) -> Section:
    """A section that compares the methods of a scenario, a file of examples/asynchronous, with the print."""
    return Section(
        partial(make, scenario), partial(body, {name: Printed(*values) for name, values in printed.items()})
    )


def make(name: str, runs: Runs, seeds: int, picture: Path) -> dict[str, Any]:
    """Train all methods of a scenario with all seeds and draw them; a document that JSON can hold."""
    scenario = read_scenario(EXAMPLES / f"{name}.yaml")
    trainings = runs.all_of(scenario, scenario.methods, range(seeds))
    draw_experiment(trainings, scenario.title, picture)
    return {
        "seeds": seeds,
        "picture": picture.name,
        "title": scenario.title,
        "updates": scenario.updates,
        "methods": summarise_trainings(trainings, scenario.reference, scenario.milestones),
    }


def body(printed: Mapping[str, Printed], document: Mapping[str, Any]) -> str:
    """Two tables and the picture, from such a document alone."""
    methods = document["methods"]
    rows = []
    for name, measured in methods.items():
        at = measured["at_milestone"]
        rows.append(
            {
                "name": name,
                "print": Printed(*(f"*{text}*" if text else "" for text in printed.get(name, Printed()))),
                "accuracy": spread(measured["accuracy"], "{:.3f}".format),
                "slices": fmean(measured["training_slices"]),
                "speed_up": ratio(measured["speed_up"]),
                "at": "" if at is None else f"{at['accuracy']:g}",
                "speed_up_at": "" if at is None else ratio(at["speed_up"]),
                "staleness": fmean(measured["staleness"]),
                "ei": fmean(measured["ei"]),
            }
        )
    names = list(next(iter(methods.values()))["milestones"])
    moments = [
        [name, *(_moment(measured["milestones"][milestone]) for milestone in names)]
        for name, measured in methods.items()
    ]
    picture = f"![{document['title']}](liu2022-async/{document['picture']})"
    times = table(["slices until an accuracy of", *names], moments)
    return "\n\n".join([columns_table(COLUMNS, rows), times, picture])


def _moment(slices: list[float | None]) -> str:
    """The mean time over seeds; where some never came there, how many did."""
    reached = [time for time in slices if time is not None]
    if not reached:
        return "never"
    text = f"{fmean(reached):.3g}"
    return text if len(reached) == len(slices) else f"{text} ({len(reached)} of {len(slices)} seeds)"


KEPT = Path("results") / "asynchronous"
SOURCES = (
    "agents/federated/asynchronous",
    "envs/simulation/streams.py",
    "envs/traces/images.py",
    "training/federated/asynchronous/networks.py",
    "training/federated/asynchronous/scenario.py",
    "training/federated/asynchronous/virtual_time.py",
)
"""What a training depends on besides its scenario, method, seed and images."""

SHOWN = ("title", "methods", "milestones", "reference")
"""Fields of a scenario that no single training depends on."""


class Runs:
    """Trainings on the same images."""

    def __init__(self, images: Images) -> None:
        self.images = images
        self._keeper = Keeper(KEPT, code_hash(SOURCES))
        self._pixels = hashlib.sha256(images.training.tobytes() + images.test.tobytes()).hexdigest()

    def train(self, scenario: Scenario, method: Method, seed: int, until: float | None = None) -> Training:
        """One training, made now or before."""
        settings = plain(scenario)
        identity: dict[str, Any] = {
            "scenario": {key: value for key, value in settings.items() if key not in SHOWN},
            "method": plain(method),
            "seed": seed,
            "until": until,
        }

        def make() -> dict[str, Any]:
            found = VirtualTime(scenario, self.images, seed).train(method, until=until)
            return {"points": [list(point) for point in found.points]}

        return Training([Point(*point) for point in self.keep(identity, make)["points"]])

    def keep(self, identity: Mapping[str, Any], make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """As `Keeper.keep`, for anything that depends on the images and on the code of trainings."""
        return self._keeper.keep({**identity, "images": self._pixels}, make)

    def all_of(
        self, scenario: Scenario, methods: Mapping[str, Method], seeds: Iterable[int]
    ) -> dict[str, list[Training]]:
        """Every method with every seed; seed after seed, so that a study that is stopped has whole ones."""
        found: dict[str, list[Training]] = {name: [] for name in methods}
        for seed in seeds:
            for name, method in methods.items():
                found[name].append(self.train(scenario, method, seed))
                print(f"trained: {scenario.title}, {name}, seed {seed}", flush=True)
        return found


def with_method(scenario: Scenario, **changes: Any) -> Method:
    """The scenario's only method with other parameters."""
    (method,) = scenario.methods.values()
    return dataclasses.replace(method, **changes)
