"""Scenario files of applications with synchronous rounds (docs/federated-rounds.md).

Keys:

- `kind`, `name`, `rounds`: "rounds"; title; number of rounds
- `zones`: `name`, `spot_usd_hour` (a number, or {"times_s": [...], "usd_hour": [...]}), `on_demand_usd_hour`,
  `mean_time_to_interruption_s`, `spot_available` ({"times_s": [...], "available": [...]})
- `clients`: `name`, `epoch_warm_s`, `epoch_cold_s`, `spin_up_s`; optional `images`, `zones` (default: all),
  `budget_usd`
- `interruptions`: optional, {"client": NAME, "time_s": SECOND}
- `epoch_cv`, `spin_up_cv`: coefficients of variation; 0
- `aggregation_s`, `checkpoint_s`, `billing_minimum_s`, `free_first_s`, `server_usd_hour`, `start_together`:
  0, 60, 60, 0, 0, true
- `source`, `notes`, `published`: origin; `published` is shown next to our numbers
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np
from pydantic import Field, NonNegativeInt, PositiveInt

from spotweave.documents import Number, Positive, StrictModel, checked, load
from spotweave.envs.simulation.federations.rounds.application import (
    Application,
    Client,
    Interruption,
    Market,
    Offer,
    Tariff,
)
from spotweave.envs.simulation.series import StepSeries

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

BUNDLED = Path(__file__).resolve().parent
PREFIX = "fedcostaware_"
"""Prefix of the files of the four data sets of Sinha 2025."""
PREFIXES = {"rounds": PREFIX, "multi_fedls": "multi_fedls_"}
"""By the kind of their scenarios; the rest of a file's name is the scenario's."""

Made = TypeVar("Made", bound="DataclassInstance")


class ScenarioError(ValueError):
    """A scenario file is wrong; one line says where, what was given and what is expected."""


class _Prices(StrictModel):
    times_s: list[NonNegativeInt] = Field(min_length=1)
    usd_hour: list[Number] = Field(min_length=1)


class _Availability(StrictModel):
    times_s: list[NonNegativeInt] = Field(min_length=1)
    available: list[bool] = Field(min_length=1)


class _Zone(StrictModel):
    name: str = Field(min_length=1)
    spot_usd_hour: Number | _Prices | None = None
    on_demand_usd_hour: Number | None = None
    mean_time_to_interruption_s: Positive | None = None
    spot_available: _Availability | None = None


class _Client(StrictModel):
    name: str = Field(min_length=1)
    images: PositiveInt | None = None
    epoch_warm_s: Positive
    epoch_cold_s: Positive
    spin_up_s: Number
    zones: list[str] | None = Field(default=None, min_length=1)
    budget_usd: Number | None = None


class _Interruption(StrictModel):
    client: str
    time_s: NonNegativeInt


class _Scenario(StrictModel):
    kind: Literal["rounds"]
    name: str = Field(min_length=1)
    source: str = ""
    notes: list[str] = Field(default_factory=list)
    published: dict[str, dict[str, float]] = Field(default_factory=dict)
    rounds: PositiveInt
    aggregation_s: NonNegativeInt = 0
    start_together: bool = True
    checkpoint_s: PositiveInt | None = 60
    epoch_cv: Number = 0.0
    spin_up_cv: Number = 0.0
    billing_minimum_s: NonNegativeInt = 60
    free_first_s: NonNegativeInt = 0
    server_usd_hour: Number = 0.0
    zones: list[_Zone] = Field(min_length=1)
    clients: list[_Client] = Field(min_length=1)
    interruptions: list[_Interruption] = Field(default_factory=list)


def bundled_scenarios(kind: str = "rounds") -> list[str]:
    """Names of the scenarios of a kind that come with the package."""
    return sorted(_bundled(kind))


def _bundled(kind: str) -> dict[str, Path]:
    prefix = PREFIXES[kind]
    return {
        path.stem.removeprefix(prefix).replace("_", "-"): path for path in BUNDLED.glob(f"{prefix}*.json")
    }


def scenario_path(name: str) -> Path:
    """The file of a bundled scenario, or `name` as a path; a file that exists wins.

    Raises:
        ScenarioError: if there is neither.
    """
    if Path(name).is_file():
        return Path(name)
    found = {name: path for kind in PREFIXES for name, path in _bundled(kind).items()}
    if name in found:
        return found[name]
    raise ScenarioError(
        f"{name}: no such file, and no bundled scenario: expected a JSON file or one of {', '.join(found)}"
    )


def read_json(path: Path) -> dict[str, Any]:
    """A document with a scenario. Raises ScenarioError if the file cannot be read or holds something else."""
    return load(path, _mapping, ScenarioError)


def _mapping(content: Any) -> dict[str, Any]:
    if not isinstance(content, dict):
        raise ScenarioError(f"holds a {type(content).__name__}: expected an object with a scenario")
    return content


def parse_rounds(content: Mapping[str, Any], where: str) -> Application:
    """The application that a scenario describes.

    Args:
        content: the parsed JSON.
        where: the file's name, for messages.

    Raises:
        ScenarioError: one line that says what is wrong.
    """
    try:
        return _application(checked(_Scenario, content))
    except ValueError as error:
        raise ScenarioError(f"{where}: {error}") from error


def published_table(content: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """What a source printed for each policy: time_min, cost_usd, savings_percent; empty without one."""
    return _Scenario.model_validate(content).published


def _application(scenario: _Scenario) -> Application:
    offers: list[Offer] = []
    in_zone: dict[str, list[int]] = {}
    for zone in scenario.zones:
        if zone.name in in_zone:
            raise ScenarioError(f"two zones are called {zone.name!r}: names must differ")
        in_zone[zone.name] = []
        for offer in _offers(zone):
            in_zone[zone.name].append(len(offers))
            offers.append(offer)
    index = {client.name: k for k, client in enumerate(scenario.clients)}
    for interruption in scenario.interruptions:
        if interruption.client not in index:
            raise ScenarioError(
                f"an interruption names client {interruption.client!r}: expected one of {', '.join(index)}"
            )
    return made_of(
        scenario,
        Application,
        clients=tuple(_client(client, in_zone) for client in scenario.clients),
        offers=tuple(offers),
        interruptions=tuple(Interruption(index[item.client], item.time_s) for item in scenario.interruptions),
    )


def _offers(zone: _Zone) -> list[Offer]:
    offers, price, up = [], zone.spot_usd_hour, zone.spot_available
    if price is not None:
        tariff = (
            Tariff(price.times_s, price.usd_hour) if isinstance(price, _Prices) else Tariff.constant(price)
        )
        series, mean_s = None, zone.mean_time_to_interruption_s
        if up is not None:
            series = StepSeries(np.array(up.times_s, np.int64), np.array(up.available, np.float64))
        offers.append(Offer(f"{zone.name} spot", zone.name, Market.SPOT, tariff, mean_s, series))
    if zone.on_demand_usd_hour is not None:
        tariff = Tariff.constant(zone.on_demand_usd_hour)
        offers.append(Offer(f"{zone.name} on-demand", zone.name, Market.ON_DEMAND, tariff))
    if not offers:
        raise ScenarioError(f"zone {zone.name!r} has neither spot_usd_hour nor on_demand_usd_hour: give one")
    return offers


def _client(client: _Client, in_zone: Mapping[str, list[int]]) -> Client:
    zones = list(in_zone) if client.zones is None else client.zones
    for zone in zones:
        if zone not in in_zone:
            raise ScenarioError(
                f"client {client.name!r} names zone {zone!r}: expected one of {', '.join(in_zone)}"
            )
    return made_of(client, Client, offers=tuple(offer for zone in zones for offer in in_zone[zone]))


def made_of(part: StrictModel, made: type[Made], **others: Any) -> Made:
    """A dataclass of a part's fields that have the same names, and of others."""
    names = {item.name for item in fields(made)} & type(part).model_fields.keys()
    return made(**{name: getattr(part, name) for name in names} | others)
