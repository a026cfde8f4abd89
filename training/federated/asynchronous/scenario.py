"""The YAML file of an asynchronous experiment: participants, data, local work and the methods to compare."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from spotweave.documents import load
from spotweave.envs.simulation.series import Floats, Ints
from spotweave.training.config import UsageError, typed
from spotweave.training.federated.asynchronous.networks import CLASSES, NetworkName

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
    """Participants whose expected response times are drawn, or set, alike."""

    participants: Count  # how many; bands count participants from the first on
    from_slices: Positive  # one end of their expected response times, in time slices
    to_slices: Positive  # the other end
    # "drawn" uniformly between the two for each seed, or "rising" from the one to the other in equal ratios
    spacing: Literal["drawn", "rising"] = "drawn"


@dataclass(frozen=True)
class Method:
    """A training method of a scenario, with its parameters."""

    algorithm: Algorithm  # how updates become models
    # what FedAvg and AsynDA take, differences or gradients
    uploads: Literal["difference", "gradient"] = "difference"
    rate: Positive = 1.0  # eta of differences, gamma of gradients
    round_updates: Count | None = None  # W or M_L, if not the scenario's
    staleness_bound: Annotated[int, Field(ge=0)] | None = None  # T of Fed-SUDA (needed) and HP-ASGD
    at_once: Count | None = None  # P of HP-ASGD, the most gradients stored or being computed
    coordination_slices: Annotated[float, Field(ge=0)] = 0.0  # what brokers take to confirm a list
    mixing: Annotated[float, Field(gt=0, le=1)] = 0.6  # alpha of FedAsync

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
    """An experiment: who holds which images, how fast participants answer, which methods train."""

    title: str  # for tables and pictures
    partition: Partition  # who holds which images
    bands: tuple[Band, ...]  # expected response times of the participants
    methods: dict[str, Method]  # by name
    reference: str  # the method that speed-ups are against
    updates: Count  # participant updates after which training ends, each counted once
    round_updates: Count  # W or M_L
    noise: Noise = "none"  # which labels are perturbed
    # numbers of the slow participants (from 0), SP of Fed-SUDA
    slow: tuple[Annotated[int, Field(ge=0)], ...] = ()
    network: NetworkName = "mlp"  # the model
    batch_size: Count = 16  # images per step
    local_steps: Count = 5  # K
    local_rate: Positive = 0.1  # gamma of the local steps
    # accuracies whose time stamps are told
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
        """N, the number of participants."""
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
    """Read a scenario file.

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


# Images among clients by label (Liu 2022, chapters 6 and 7), and their label noise.


Partition = Literal["random_groups", "in_sequence", "shuffled_tens", "random_subgroups"]
Noise = Literal["none", "swap", "rotate_first", "rotate_early"]

NOISY = (7, 8, 9)  # digits whose labels are perturbed in chapter 7

NOISY_GROUPS = 3
"""Perturbed groups in Experiment II: the first 3 of the 20 (750 of 5,000 images) of each noisy digit."""


def holdings_of(
    partition: Partition, labels: Ints, participants: int, generator: np.random.Generator
) -> list[Ints]:
    """The numbers of the images of each participant, two groups each.

    Groups are as large as each other; what does not fill one is left out.

    - "random_groups" (Scenario A): groups of one digit, two at random.
    - "in_sequence" (Scenario B, Experiment I): groups of one digit in order, two in order.
    - "shuffled_tens" (Experiment II): the first group of each digit, then the second of each, ..., shuffled
      within blocks of 20; two in order.
    - "random_subgroups" (Experiments IV and V): images in order of digits are cut into groups; two at random.

    Raises:
        UsageError: if participants, or the images, do not suffice for that.
    """
    groups = 2 * participants
    if partition == "random_subgroups":
        ordered = np.argsort(labels, kind="stable")
        size = len(ordered) // groups
        cut = [ordered[k * size : (k + 1) * size] for k in range(groups)]
    else:
        if groups % CLASSES:
            raise UsageError(
                f"participants is {participants}: {partition} needs a multiple of {CLASSES // 2}, "
                f"so that each digit has as many groups"
            )
        size = int(np.bincount(labels, minlength=CLASSES).min()) // (groups // CLASSES)
        cut = _digit_groups(labels, groups // CLASSES, size)
    if size < 1:
        raise UsageError(f"{len(labels)} images are too few for {groups} groups: take fewer participants")
    if partition in ("random_groups", "random_subgroups"):
        cut = [cut[place] for place in generator.permutation(groups)]
    elif partition == "shuffled_tens":
        per_digit = groups // CLASSES
        by_turn = [cut[digit * per_digit + turn] for turn in range(per_digit) for digit in range(CLASSES)]
        blocks = [by_turn[start : start + 20] for start in range(0, groups, 20)]
        cut = [block[place] for block in blocks for place in generator.permutation(len(block))]
    return [np.concatenate(cut[2 * n : 2 * n + 2]) for n in range(participants)]


def noisy_labels(noise: Noise, labels: Ints, holdings: list[Ints]) -> Ints:
    """The labels (n,) as participants have them.

    - "swap" (chapter 6): 8 and 9 change places at the first holder of each.
    - "rotate_first" (Experiment I): 7 becomes 8, 8 becomes 9 and 9 becomes 7 at the first holder of each.
    - "rotate_early" (Experiment II): the same in the first 3 of 20 groups of these digits.
    """
    changed = labels.copy()
    if noise == "swap":
        for digit in (8, 9):
            own = holdings[first_holder(labels, holdings, digit)]
            changed[own] = np.where(labels[own] == 8, 9, np.where(labels[own] == 9, 8, labels[own]))
    elif noise == "rotate_first":
        for digit in NOISY:
            own = holdings[first_holder(labels, holdings, digit)]
            changed[own] = _rotated(labels[own])
    elif noise == "rotate_early":
        per_digit = 2 * len(holdings) // CLASSES
        size = int(np.bincount(labels, minlength=CLASSES).min()) // per_digit
        early = round(NOISY_GROUPS * per_digit / 20)
        for digit in NOISY:
            own = np.flatnonzero(labels == digit)[: early * size]
            changed[own] = _rotated(labels[own])
    return changed


def first_holder(labels: Ints, holdings: list[Ints], digit: int) -> int:
    """The first participant most of whose images are of a digit. Raises UsageError if there is none."""
    for number, own in enumerate(holdings):
        if np.mean(labels[own] == digit) > 0.5:
            return number
    raise UsageError(f"no participant holds mostly the digit {digit}: its labels cannot be perturbed")


def _rotated(labels: Ints) -> Ints:
    after = np.arange(CLASSES)
    after[list(NOISY)] = np.roll(NOISY, -1)
    rotated: Ints = after[labels]
    return rotated


def _digit_groups(labels: Ints, per_digit: int, size: int) -> list[Ints]:
    return [
        np.flatnonzero(labels == digit)[turn * size : (turn + 1) * size]
        for digit in range(CLASSES)
        for turn in range(per_digit)
    ]
