"""app.json and clouds.json: reading and checking them.

app.json (`spotweave-fl-app-1`), seconds and GB as in `FlApplication`:

    {"format": "spotweave-fl-app-1", "name": "TIL", "rounds": 10, "first_round_slowdown": 1.0,
     "messages_gb": {"server_train": 0.537, "client_train": 0.537, "server_aggregate": 0.537,
                     "client_test": 2e-6},
     "communication_s": 27.26,
     "aggregation": {"AWS": {"seconds": 0.3}, "GCP": {"seconds": 0.2, "seconds_per_client": 0.0}},
     "clients": [{"name": "c", "count": 2, "data_region": "us-east-1", "train_samples": 948,
                  "test_samples": 522, "train_s": 412.94, "test_s": 182.77}]}

`count` makes that many equal clients, c1, c2, ... A name below "aggregation" is a VM type, a region or a
provider.

clouds.json (`spotweave-clouds-1`), prices in USD, null or nothing for "no limit" and "not offered":

    {"format": "spotweave-clouds-1",
     "providers": [{"name": "AWS", "transfer_usd_gb": 0.09, "max_gpus": null, "max_vcpus": null}],
     "regions": [{"name": "us-east-1", "provider": "AWS", "place": "N. Virginia", "max_gpus": null,
                  "max_vcpus": 52}],
     "vm_types": [{"name": "vm111", "region": "us-east-1", "product": "g4dn.2xlarge", "vcpus": 8, "gpus": 1,
                   "gpu": "T4", "memory_gib": 32, "on_demand_usd_hour": 0.752, "spot_usd_hour": 0.318,
                   "hosts_clients": true}],
     "compute_slowdowns": {"us-east-1": {"vm111": 1.0}},
     "communication_slowdowns": [{"between": ["us-east-1", "us-east-1"], "slowdown": 1.0}]}

The outer keys of "compute_slowdowns" are regions of data. `spotweave measure fl` adds the seconds behind the
slowdowns that it measured:

     "measured": {"baseline": {"vm_type": "vm111", "between": ["us-east-1", "us-east-1"]},
                  "compute": {"us-east-1": {"vm111": {"round_s": 1.5, "first_round_s": 1.9, "workload": ""}}},
                  "communication": [{"between": ["us-east-1", "us-east-1"], "round_s": 0.8, "workload": ""}]}

Both files may have "source", a list of lines for people. An unknown key is refused: a misspelt
one would otherwise be ignored.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import Field

from spotweave.documents import StrictModel, checked, load
from spotweave.envs.simulation.federations.application import (
    Aggregation,
    Client,
    FederationError,
    FlApplication,
    Messages,
)
from spotweave.envs.simulation.federations.clouds import (
    Clouds,
    Measured,
    Measurement,
    Provider,
    Region,
    VmType,
)

Pair = tuple[str, str]


class _File(StrictModel):
    format: str
    source: tuple[str, ...] = ()


class _Messages(StrictModel):
    server_train: float
    client_train: float
    server_aggregate: float
    client_test: float


class _Application(_File):
    name: str
    rounds: int
    first_round_slowdown: float = 1.0
    messages_gb: _Messages
    communication_s: float
    aggregation: dict[str, Aggregation]
    clients: tuple[Client, ...]


class _Slowdown(StrictModel):
    between: Pair
    slowdown: float


class _Seconds(StrictModel):
    between: Pair
    round_s: float
    workload: str


class _Baseline(StrictModel):
    vm_type: str | None = None
    between: Pair | None = None


class _Measured(StrictModel):
    baseline: _Baseline = _Baseline()
    compute: dict[str, dict[str, Measurement]] = Field(default_factory=dict)
    communication: tuple[_Seconds, ...] = ()


class _Clouds(_File):
    providers: tuple[Provider, ...]
    regions: tuple[Region, ...]
    vm_types: tuple[VmType, ...]
    compute_slowdowns: dict[str, dict[str, float]]
    communication_slowdowns: tuple[_Slowdown, ...]
    measured: _Measured = _Measured()


def read_application(path: Path) -> FlApplication:
    """Read and check an app.json.

    Raises:
        FederationError: one line that names the file, what is wrong there and what is expected.
    """
    return load(path, application_of, FederationError)


def read_clouds(path: Path) -> Clouds:
    """Read and check a clouds.json. Raises as `read_application`."""
    return load(path, clouds_of, FederationError)


def application_of(document: object) -> FlApplication:
    """The application that a parsed app.json describes. Raises FederationError."""
    plain = _in_format("spotweave-fl-app-1", document)
    if isinstance(plain.get("clients"), list):
        plain["clients"] = [client for entry in plain["clients"] for client in _equal_clients(entry)]
    found = checked(_Application, plain, FederationError)
    messages = {f"{name}_gb": size for name, size in found.messages_gb}
    same = dict(found)
    del same["format"], same["messages_gb"]
    return FlApplication(messages=Messages(**messages), **same)


def clouds_of(document: object) -> Clouds:
    """The clouds that a parsed clouds.json describes. Raises FederationError."""
    found = checked(_Clouds, _in_format("spotweave-clouds-1", document), FederationError)
    communication: dict[Pair, float] = {}
    for entry in found.communication_slowdowns:
        first, second = entry.between
        if entry.between in communication:
            raise FederationError(
                f"communication_slowdowns: regions {first!r} & {second!r} are given twice: keep one"
            )
        communication[entry.between] = entry.slowdown
    seconds = found.measured
    measured = Measured(
        seconds.baseline.vm_type,
        seconds.baseline.between,
        seconds.compute,
        {entry.between: Measurement(entry.round_s, entry.workload) for entry in seconds.communication},
    )
    return Clouds(
        found.providers,
        found.regions,
        found.vm_types,
        found.compute_slowdowns,
        communication,
        found.source,
        measured,
    )


def _in_format(name: str, document: object) -> dict[str, Any]:
    found = document.get("format") if isinstance(document, dict) else type(document).__name__
    if found != name:
        raise FederationError(f'format is {found!r}, expected {{"format": "{name}", ...}}')
    plain: dict[str, Any] = _without_null(document)
    return plain


def _equal_clients(entry: Any) -> list[Any]:
    if not isinstance(entry, dict) or not {"name", "count"} <= entry.keys():
        return [entry]
    name, count = entry["name"], entry["count"]
    if type(count) is not int or count < 1:
        raise FederationError(f"client {name!r}: count is {count!r}, expected a whole number >= 1")
    own = {key: value for key, value in entry.items() if key != "count"}
    return [own | {"name": f"{name}{k}"} for k in range(1, count + 1)]


def _without_null(value: Any) -> Any:
    """Null says "no limit" or "not offered", which is what a missing key says too."""
    if isinstance(value, dict):
        return {key: _without_null(item) for key, item in value.items() if item is not None}
    return [_without_null(item) for item in value] if isinstance(value, list) else value
