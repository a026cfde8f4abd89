"""Multi-FedLS (Brum 2022, 2023): its published measurements, and scenario files of kind "multi_fedls".

Keys of a scenario file, all but the first line and `name` optional:

- `kind`, `application`, `clouds`: "multi_fedls"; files next to this one, or bundled names
- `name`, `source`, `notes`, `published`: texts; printed tables
- `rounds`, `clients`, `vm_types`: other than the files': numbers; names to keep
- `setup`: first placement, {"server": TYPE, "clients": TYPE}; default: optimal for `alpha`
- `epoch_scale`, `cold_s`: factor on training and test times; extra of a first epoch by VM type
- `spin_up_s`, `spin_up_billed`, `spin_up_interrupted`: seconds by provider; paid, revocable meanwhile (true)
- `closing_s`, `messages_billed`: seconds to fetch results, paid; whether messages cost
- `revocation_mean_s`, `revocations_per_task`: mean seconds to a revocation; most per task
- `checkpoints`: `every_rounds`, `save_s`, `transfer_s`, `round_s` of the server; `on_clients`,
  `client_round_s`
- `degradations`: `vm_type` or `link` (two regions), `slowdown`, `from_s`, `until_s`
- `epoch_cv`, `run_cv`, `spin_up_cv`: coefficients of variation: rounds, whole runs, spin-ups
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, NonNegativeInt, PositiveInt

from spotweave.documents import Number, Positive, StrictModel, checked
from spotweave.envs.documents.federations import read_application, read_clouds
from spotweave.envs.federated_data.rounds_scenarios import ScenarioError, made_of
from spotweave.envs.simulation.federations.application import FederationError, FlApplication
from spotweave.envs.simulation.federations.clouds import Clouds
from spotweave.envs.simulation.federations.model import Placement
from spotweave.envs.simulation.federations.rounds.application import (
    Application,
    Checkpoints,
    Degradation,
    Market,
)
from spotweave.envs.simulation.federations.rounds.deployment import Conditions, Deployment, keep_types

DIRECTORY = Path(__file__).parent


@cache
def load_clouds(name: str) -> Clouds:
    """Published clouds: "aws_gcp" (13 types, Table 7.1) or "cloudlab" (23 types, Table 7.2).

    Raises:
        FederationError: for another name.
    """
    return read_clouds(_path("clouds_", name))


@cache
def load_application(name: str) -> FlApplication:
    """A published application, e.g. "til_aws4" (Tables 7.8-7.10), "til_cloudlab", "shakespeare" or "femnist".

    Raises:
        FederationError: for another name.
    """
    return read_application(_path("app_", name))


def published_placements() -> dict[str, Any]:
    """Tables 7.8 to 7.10, and the maps of the authors' own planner: parsed published_initial_mapping.json."""
    document: dict[str, Any] = json.loads((DIRECTORY / "published_initial_mapping.json").read_text("utf-8"))
    return document


def _path(prefix: str, name: str) -> Path:
    names = sorted(path.stem.removeprefix(prefix) for path in DIRECTORY.glob(f"{prefix}*.json"))
    if name not in names:
        raise FederationError(f"no published data are named {name!r}: use one of {', '.join(names)}")
    return DIRECTORY / f"{prefix}{name}.json"


# Scenario files of kind "multi_fedls": applications on clouds (docs/federated-rounds.md).

MarketName = Literal["spot", "on_demand"]


class _Checkpoints(StrictModel):
    every_rounds: PositiveInt | None = None
    save_s: Number = 0.0
    transfer_s: Number = 0.0
    round_s: Number = 0.0
    on_clients: bool = True
    client_round_s: Number = 0.0


class _Degradation(StrictModel):
    slowdown: Positive
    from_s: NonNegativeInt = 0
    until_s: NonNegativeInt | None = None
    vm_type: str | None = None
    link: list[str] | None = Field(default=None, min_length=2, max_length=2)


class _Setup(StrictModel):
    server: str
    clients: str


class _Run(StrictModel):
    server: NonNegativeInt = 0
    clients: NonNegativeInt = 0


class _Published(StrictModel):
    time: str | None = Field(default=None, pattern=r"^\d+:\d\d:\d\d$")
    cost_usd: Number | None = None


class _Row(_Published):
    server: MarketName
    clients: MarketName
    label: str = ""
    revocation_mean_s: Positive
    revocations: Number | None = None
    runs: list[_Run] | None = None
    why: str = ""


class _Table(StrictModel):
    number: str
    exclude_revoked: bool
    on_demand: _Published
    rows: list[_Row] = Field(min_length=1)


class _Scenario(StrictModel):
    kind: Literal["multi_fedls"]
    name: str = Field(min_length=1)
    source: list[str] = Field(default_factory=list)
    notes: list[str] = Field(default_factory=list)
    application: str
    clouds: str
    rounds: PositiveInt | None = None
    clients: list[str] | None = Field(default=None, min_length=1)
    vm_types: list[str] | None = Field(default=None, min_length=1)
    setup: _Setup | None = None
    alpha: Annotated[Number, Field(le=1)] = 0.5
    epoch_scale: Positive = 1.0
    cold_s: dict[str, Number] = Field(default_factory=dict)
    spin_up_s: dict[str, Number] = Field(default_factory=dict)
    spin_up_billed: bool = True
    spin_up_interrupted: bool = True
    revocations_per_task: NonNegativeInt | None = None
    closing_s: NonNegativeInt = 0
    messages_billed: bool = True
    epoch_cv: Number = 0.0
    run_cv: Number = 0.0
    spin_up_cv: Number = 0.0
    revocation_mean_s: Positive | None = None
    checkpoints: _Checkpoints | None = None
    degradations: list[_Degradation] = Field(default_factory=list)
    published: list[_Table] = Field(default_factory=list)


@dataclass(frozen=True)
class PublishedRow:
    """One row of a published table: means of three runs."""

    label: str  # what is special about it, for people
    server: Market  # the server's market
    clients: Market  # the clients' market
    revocation_mean_s: float  # k_r
    revocations: float | None  # mean number
    time_s: int | None  # mean seconds of everything; None where it was not printed (or is lost)
    cost_usd: float | None  # mean USD; None likewise
    # (server, clients) that were revoked in each of the three runs; None where it is not known
    runs: tuple[tuple[int, int], ...] | None
    why: str  # why our numbers differ where they do


@dataclass(frozen=True)
class PublishedTable:
    """A table of the thesis: its number, whether the revoked type is excluded, on demand, and its rows."""

    number: str
    exclude_revoked: bool
    on_demand_time_s: int | None
    on_demand_usd: float | None
    rows: tuple[PublishedRow, ...]


@dataclass(frozen=True)
class MultiFedlsScenario:
    """A scenario file."""

    name: str  # title
    deployment: Deployment  # application, clouds, conditions
    placement: Placement | None  # the first placement; None: the optimal initial mapping
    alpha: float  # weight of cost against time
    published: tuple[PublishedTable, ...]  # the tables that it is compared with
    notes: tuple[str, ...]  # for people

    @cached_property
    def unchecked(self) -> Application:
        """The application without checkpoints, as all tasks on demand are played."""
        return dataclasses.replace(self.deployment.application, checkpoints=None)


def parse_multi_fedls(content: Mapping[str, Any], where: str) -> MultiFedlsScenario:
    """The scenario that a file describes.

    Args:
        content: the parsed JSON.
        where: the file's name, for messages; "application" and "clouds" may name files next to it.

    Raises:
        ScenarioError: one line that says what is wrong.
    """
    try:
        scenario = checked(_Scenario, content)
        application = _application(scenario, Path(where).parent)
        clouds = _clouds(scenario, Path(where).parent)
        deployment = Deployment(application, clouds)
        deployment = deployment.with_conditions(_conditions(scenario, deployment))
        _ = deployment.application
        federation = deployment.federation(Market.ON_DEMAND, Market.ON_DEMAND)
        placement = None
        if scenario.setup is not None:
            clients = [scenario.setup.clients] * len(application.clients)
            placement = federation.placement(scenario.setup.server, clients)
        return MultiFedlsScenario(
            scenario.name,
            deployment,
            placement,
            scenario.alpha,
            tuple(_table(table) for table in scenario.published),
            tuple(scenario.notes),
        )
    except ValueError as error:
        raise ScenarioError(f"{where}: {error}") from error


def _application(scenario: _Scenario, directory: Path) -> FlApplication:
    name = scenario.application
    path = directory / name
    application = read_application(path) if path.is_file() else load_application(name)
    if scenario.clients is not None:
        known = {client.name: client for client in application.clients}
        for client in scenario.clients:
            if client not in known:
                raise ScenarioError(f"clients names {client!r}: expected some of {', '.join(known)}")
        application = dataclasses.replace(
            application, clients=tuple(known[client] for client in scenario.clients)
        )
    scaled = tuple(
        dataclasses.replace(
            client,
            train_s=client.train_s * scenario.epoch_scale,
            test_s=client.test_s * scenario.epoch_scale,
        )
        for client in application.clients
    )
    rounds = scenario.rounds or application.rounds
    return dataclasses.replace(application, clients=scaled, rounds=rounds)


def _clouds(scenario: _Scenario, directory: Path) -> Clouds:
    path = directory / scenario.clouds
    clouds = read_clouds(path) if path.is_file() else load_clouds(scenario.clouds)
    return clouds if scenario.vm_types is None else keep_types(clouds, scenario.vm_types)


def _conditions(scenario: _Scenario, deployment: Deployment) -> Conditions:
    clouds = deployment.clouds
    for name in scenario.spin_up_s:
        if name not in clouds.provider:
            raise ScenarioError(f"spin_up_s names provider {name!r}: expected {', '.join(clouds.provider)}")
    for name in scenario.cold_s:
        clouds.require_vm_type("cold_s", name)
    given = scenario.checkpoints
    degradations = [item for each in scenario.degradations for item in _degradations(each, deployment)]
    return made_of(
        scenario,
        Conditions,
        checkpoints=None if given is None else made_of(given, Checkpoints),
        degradations=tuple(degradations),
    )


def _degradations(item: _Degradation, deployment: Deployment) -> list[Degradation]:
    """A VM type is degraded on both its markets."""
    clouds = deployment.clouds
    if item.vm_type is None:
        link = None if item.link is None else (item.link[0], item.link[1])
        for region in link or ():
            clouds.require_region("a degradation", region)
        return [Degradation(item.slowdown, item.from_s, item.until_s, link=link)]
    clouds.require_vm_type("a degradation", item.vm_type)
    if item.link is not None:
        raise ScenarioError("a degradation is of a vm_type or of a link: give one of both")
    return [
        Degradation(item.slowdown, item.from_s, item.until_s, offer=offer)
        for (k, _), offer in deployment.offer_of.items()
        if clouds.vm_types[k].name == item.vm_type
    ]


def _table(table: _Table) -> PublishedTable:
    rows = tuple(
        made_of(
            row,
            PublishedRow,
            server=Market[row.server.upper()],
            clients=Market[row.clients.upper()],
            time_s=_seconds(row.time),
            runs=None if row.runs is None else tuple((run.server, run.clients) for run in row.runs),
        )
        for row in table.rows
    )
    return PublishedTable(
        table.number, table.exclude_revoked, _seconds(table.on_demand.time), table.on_demand.cost_usd, rows
    )


def _seconds(clock: str | None) -> int | None:
    if clock is None:
        return None
    hours, minutes, seconds = (int(part) for part in clock.split(":"))
    return 3600 * hours + 60 * minutes + seconds
