"""Scenario files of kind "fleet": several applications that share quotas. See docs/federated-rounds.md."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, FiniteFloat, NonNegativeInt, ValidationError

from envs.federated_data.rounds_scenarios import (
    ScenarioError,
    StrictModel,
    Usd,
    describe_error,
    read_json,
    scenario_path,
)
from envs.simulation.federations.fleet.quotas import SharedQuota, instances_of

MappingName = Literal["alone", "in_order", "joint"]
Kind = Literal["rounds", "multi_fedls"]
Positive = Annotated[FiniteFloat, Field(gt=0)]


class _Quota(StrictModel):
    name: str = Field(min_length=1)
    limit: NonNegativeInt
    amounts: dict[str, Usd] = Field(min_length=1)


class _Entry(StrictModel):
    name: str | None = Field(default=None, pattern=r"^[\w.-]+$")
    scenario: str | dict[str, Any]
    policy: str
    start_s: NonNegativeInt = 0
    seed: NonNegativeInt | None = None
    deadline_s: Positive | None = None
    budget_usd: Positive | None = None
    reserve: bool = False


class _Scenario(StrictModel):
    kind: Literal["fleet"]
    name: str = Field(min_length=1)
    source: list[str] = Field(default_factory=list)
    notes: list[str] = Field(default_factory=list)
    applications: list[_Entry] = Field(min_length=1)
    quotas: list[_Quota] = Field(default_factory=list)
    instances: dict[str, NonNegativeInt] = Field(default_factory=dict)
    mapping: MappingName = "alone"


@dataclass(frozen=True)
class FleetEntry:
    """One application of a fleet.

    Attributes:
        name: unique in the fleet; part of file names.
        kind: of its scenario.
        content: its scenario, parsed but not checked.
        where: its scenario's file, for messages and files next to it.
        policy: who takes its decisions.
        start_s: when it may begin.
        seed: its own; None: follows from its place.
        deadline_s: seconds from `start_s` in which it should be over; None for no limit.
        budget_usd: what it should cost; None for no limit.
        reserve: whether it keeps the places that it releases.
    """

    name: str
    kind: Kind
    content: Mapping[str, Any]
    where: str
    policy: str
    start_s: int
    seed: int | None
    deadline_s: float | None
    budget_usd: float | None
    reserve: bool


@dataclass(frozen=True)
class FleetScenario:
    """A scenario file.

    Attributes:
        name: title.
        entries: the applications.
        quotas: shared besides the applications' own.
        mapping: how applications on clouds are placed first: each as if it were alone, within what those
            before it leave, or jointly.
    """

    name: str
    entries: tuple[FleetEntry, ...]
    quotas: tuple[SharedQuota, ...]
    mapping: MappingName


def parse_fleet(content: Mapping[str, Any], where: str) -> FleetScenario:
    """The scenario that a file describes.

    Args:
        content: the parsed JSON.
        where: the file's name, for messages; applications may name scenario files next to it.

    Raises:
        ScenarioError: one line that says what is wrong.
    """
    try:
        scenario = _Scenario.model_validate(content)
    except ValidationError as error:
        raise ScenarioError(f"{where}: {describe_error(error, content)}") from error
    entries: list[FleetEntry] = []
    for number, item in enumerate(scenario.applications, start=1):
        entry = _entry(item, number, where)
        if any(entry.name == other.name for other in entries):
            raise ScenarioError(
                f"{where}: two applications are called {entry.name!r}: give one of them another name"
            )
        entries.append(entry)
    quotas = [SharedQuota(item.name, item.limit, item.amounts) for item in scenario.quotas]
    quotas += [instances_of(offer, limit) for offer, limit in scenario.instances.items()]
    return FleetScenario(scenario.name, tuple(entries), tuple(quotas), scenario.mapping)


def _entry(item: _Entry, number: int, where: str) -> FleetEntry:
    name = item.name
    if isinstance(item.scenario, str):
        beside = Path(where).parent / item.scenario
        path = beside if beside.is_file() else scenario_path(item.scenario)
        content, place = read_json(path), str(path)
        is_file = beside.is_file() or Path(item.scenario).is_file()
        name = name or (path.stem if is_file else item.scenario)
    else:
        content, place = item.scenario, where
    kind = content.get("kind")
    if kind not in ("rounds", "multi_fedls"):
        raise ScenarioError(
            f"{where}: application {number} has a scenario of kind {kind!r}: expected rounds or multi_fedls"
        )
    if name is None:
        raise ScenarioError(f"{where}: application {number} has an inline scenario and no name: give it one")
    return FleetEntry(
        name,
        kind,
        content,
        place,
        item.policy,
        item.start_s,
        item.seed,
        item.deadline_s,
        item.budget_usd,
        item.reserve,
    )
