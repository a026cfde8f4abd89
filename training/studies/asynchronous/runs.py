"""Trainings that are kept as they end, so that a study that was stopped goes on where it was."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from envs.traces.images import Images
from training.config import plain
from training.federated.asynchronous.scenario import Method, Scenario
from training.federated.asynchronous.virtual_time import Point, Training, VirtualTime
from training.studies.evaluations import ROOT, Keeper

KEPT = Path("results") / "asynchronous"
SOURCES = (
    "agents/federated/asynchronous",
    "envs/simulation/streams.py",
    "envs/traces/images.py",
    "training/federated/asynchronous/local_work.py",
    "training/federated/asynchronous/networks.py",
    "training/federated/asynchronous/partitions.py",
    "training/federated/asynchronous/scenario.py",
    "training/federated/asynchronous/virtual_time.py",
)
"""What a training depends on besides its scenario, method, seed and images."""

SHOWN = ("title", "methods", "milestones", "reference")
"""Fields of a scenario that no single training depends on."""


class Runs:
    """Trainings on the same images."""

    def __init__(self, images: Images, keeper: Keeper | None = None) -> None:
        self.images = images
        self._keeper = keeper or Keeper(KEPT, _code_hash())
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


def _code_hash() -> str:
    digest = hashlib.sha256()
    for name in SOURCES:
        path = ROOT / name
        for file in [path] if path.is_file() else sorted(path.glob("*.py")):
            digest.update(file.read_bytes())
    return digest.hexdigest()
