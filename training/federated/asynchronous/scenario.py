"""The YAML file of an asynchronous experiment: participants, data, local work and the methods to compare."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from envs.simulation.series import Floats
from spotweave.documents import load
from training.config import UsageError, typed
from training.federated.asynchronous.networks import NetworkName
from training.federated.asynchronous.partitions import Noise, Partition

Algorithm = Literal[
    "fed_avg", "asyn_da", "asyn_ma", "hale_fed", "fed_suda", "hp_asgd", "fed_buff", "fed_async"
]
Positive = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=1)]

PARAMETERS: dict[Algorithm, tuple[str, ...]] = {
    "fed_avg": ("uploads", "rate", "round_updates"),
    "asyn_da": ("uploads", "rate", "round_updates"),
    "asyn_ma": ("round_updates",),
    "hale_fed": ("rate", "round_updates", "coordination_slices"),
    "fed_suda": ("rate", "round_updates", "staleness_bound", "coordination_slices"),
    "hp_asgd": ("rate", "round_updates", "staleness_bound", "at_once"),
    "fed_buff": ("rate", "round_updates"),
    "fed_async": ("mixing",),
}
"""Additional keys of each algorithm."""

FIXED_SHARE = 0.5
"""A response takes this share of its expectation at least; the rest is exponentially distributed."""


@dataclass(frozen=True)
class Band:
    """Participants whose expected response times are drawn, or set, alike.

    Attributes:
        participants: how many; bands count participants from the first on.
        from_slices: one end of their expected response times, in time slices.
        to_slices: the other end.
        spacing: "drawn" uniformly between the two for each seed, or "rising" from the one to the other in
            equal ratios.
    """

    participants: Count
    from_slices: Positive
    to_slices: Positive
    spacing: Literal["drawn", "rising"] = "drawn"


@dataclass(frozen=True)
class Method:
    """One contestant.

    Attributes:
        algorithm: how updates become models.
        uploads: what FedAvg and AsynDA take, differences or gradients.
        rate: eta of differences, gamma of gradients.
        round_updates: W or M_L, if not the scenario's.
        staleness_bound: T of Fed-SUDA (needed) and HP-ASGD.
        at_once: P of HP-ASGD, the most gradients stored or being computed.
        coordination_slices: what brokers take to confirm a list.
        mixing: alpha of FedAsync.
    """

    algorithm: Algorithm
    uploads: Literal["difference", "gradient"] = "difference"
    rate: Positive = 1.0
    round_updates: Count | None = None
    staleness_bound: Annotated[int, Field(ge=0)] | None = None
    at_once: Count | None = None
    coordination_slices: Annotated[float, Field(ge=0)] = 0.0
    mixing: Annotated[float, Field(gt=0, le=1)] = 0.6

    def __post_init__(self) -> None:
        known = PARAMETERS[self.algorithm]
        for parameter in fields(self)[1:]:
            if getattr(self, parameter.name) != parameter.default and parameter.name not in known:
                raise ValueError(
                    f"{self.algorithm} has no {parameter.name}: expected some of {', '.join(known)}"
                )
        if self.algorithm == "fed_suda" and self.staleness_bound is None:
            raise ValueError("fed_suda needs staleness_bound, T")


@dataclass(frozen=True)
class Scenario:
    """One experiment.

    Attributes:
        title: for tables and pictures.
        partition: who holds which images.
        noise: which labels are perturbed.
        bands: expected response times of the participants.
        methods: by name.
        reference: the method that speed-ups are against.
        slow: numbers of the slow participants (from 0), SP of Fed-SUDA.
        network: the model.
        batch_size: images per step.
        local_steps: K.
        local_rate: gamma of the local steps.
        round_updates: W or M_L.
        updates: participant updates after which training ends, each counted once.
        milestones: accuracies whose time stamps are told.
    """

    title: str
    partition: Partition
    bands: tuple[Band, ...]
    methods: dict[str, Method]
    reference: str
    updates: Count
    round_updates: Count
    noise: Noise = "none"
    slow: tuple[Annotated[int, Field(ge=0)], ...] = ()
    network: NetworkName = "mlp"
    batch_size: Count = 16
    local_steps: Count = 5
    local_rate: Positive = 0.1
    milestones: tuple[Annotated[float, Field(gt=0, lt=1)], ...] = field(default=(0.8, 0.85, 0.9))

    def __post_init__(self) -> None:
        if self.reference not in self.methods:
            raise ValueError(
                f"reference is {self.reference!r}: expected one of the methods {', '.join(self.methods)}"
            )
        if self.slow and max(self.slow) >= self.participants:
            raise ValueError(
                f"slow names participant {max(self.slow)}: there are 0 to {self.participants - 1}"
            )

    @property
    def participants(self) -> int:
        """N."""
        return sum(band.participants for band in self.bands)

    def expected_slices(self, generator: np.random.Generator) -> Floats:
        """The expected response time of each participant, (N,), in time slices."""
        parts = []
        for band in self.bands:
            if band.spacing == "rising":
                parts.append(np.geomspace(band.from_slices, band.to_slices, band.participants))
            else:
                low, high = sorted((band.from_slices, band.to_slices))
                parts.append(generator.uniform(low, high, band.participants))
        return np.concatenate(parts)

    def chosen(self, names: tuple[str, ...]) -> dict[str, Method]:
        """The methods of these names, all of them if there are none. Raises UsageError."""
        for name in names:
            if name not in self.methods:
                raise UsageError(f"method {name!r}: expected some of {', '.join(self.methods)}")
        return {name: self.methods[name] for name in names or self.methods}


def read_scenario(path: Path) -> Scenario:
    """Read a scenario.

    Raises:
        UsageError: one line that names the file, the key, what was given and what is expected.
    """
    if not path.is_file():
        raise UsageError(f"no scenario at {path}: give a YAML file, e.g. one of examples/asynchronous")
    return load(path, _scenario, UsageError)


def _scenario(values: object) -> Scenario:
    if not isinstance(values, dict):
        raise UsageError("it holds no keys: expected those of a scenario, e.g. title and methods")
    return typed(Scenario, values, "")
