"""app.json and clouds.json: reading, checking and writing them. Standard library only.

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

Both files may have "source", a list of lines for
people. An unknown key is refused: a misspelt one would otherwise be ignored.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

from envs.simulation.federations.application import (
    Aggregation,
    Client,
    FederationError,
    FlApplication,
    Messages,
)
from envs.simulation.federations.clouds import Clouds, Measured, Measurement, Provider, Region, VmType

APPLICATION_FORMAT = "spotweave-fl-app-1"
CLOUDS_FORMAT = "spotweave-clouds-1"

_Read = TypeVar("_Read")
_Kinds = tuple[type, ...]
_TEXT: _Kinds = (str,)
_NUMBER: _Kinds = (int, float)
_WHOLE: _Kinds = (int,)
_OBJECT: _Kinds = (dict,)
_LIST: _Kinds = (list,)

_CLIENT = {"name": _TEXT, "data_region": _TEXT, "train_samples": _WHOLE, "test_samples": _WHOLE}
_CLIENT |= {"train_s": _NUMBER, "test_s": _NUMBER}
_CLIENT_OPTIONAL = {"count": _WHOLE}
_MESSAGES = dict.fromkeys(("server_train", "client_train", "server_aggregate", "client_test"), _NUMBER)
_PROVIDER = {"name": _TEXT, "transfer_usd_gb": _NUMBER}
_REGION = {"name": _TEXT, "provider": _TEXT}
_LIMITS = {"max_gpus": _WHOLE, "max_vcpus": _WHOLE}
_VM_TYPE = {"name": _TEXT, "region": _TEXT, "vcpus": _WHOLE, "gpus": _WHOLE, "memory_gib": _NUMBER}
_VM_TYPE |= {"on_demand_usd_hour": _NUMBER}
_VM_TYPE_OPTIONAL = {"spot_usd_hour": _NUMBER, "product": _TEXT, "gpu": _TEXT, "hosts_clients": (bool,)}

_MEASUREMENT = {"round_s": _NUMBER, "workload": _TEXT}

_KINDS: dict[_Kinds, str] = {
    _TEXT: "text",
    _NUMBER: "a number",
    _WHOLE: "a whole number",
    (bool,): "true or false",
}


def read_application(path: Path) -> FlApplication:
    """Read and check an app.json.

    Raises:
        FederationError: one line that names the file, what is wrong there and what is expected.
    """
    return _in_file(path, APPLICATION_FORMAT, application_of)


def read_clouds(path: Path) -> Clouds:
    """Read and check a clouds.json. Raises as `read_application`."""
    return _in_file(path, CLOUDS_FORMAT, clouds_of)


def application_of(document: Mapping[str, Any]) -> FlApplication:
    """The application that a parsed app.json describes. Raises FederationError."""
    top = {"name": _TEXT, "rounds": _WHOLE, "messages_gb": _OBJECT, "communication_s": _NUMBER}
    top |= {"aggregation": _OBJECT, "clients": _LIST}
    _check("the application", document, top, {"first_round_slowdown": _NUMBER} | _HEADER)
    _check("messages_gb", document["messages_gb"], _MESSAGES, {})
    clients = []
    for number, entry in enumerate(document["clients"], 1):
        _check(_owner("client", number, entry), entry, _CLIENT, _CLIENT_OPTIONAL)
        own = dict(entry)
        count = own.pop("count", None)
        if count is None:
            clients.append(Client(**own))
            continue
        if count < 1:
            raise FederationError(f"client {own['name']!r}: count is {count}, expected at least 1")
        clients += [Client(**own | {"name": f"{own['name']}{k}"}) for k in range(1, count + 1)]
    aggregation = {}
    for name, entry in document["aggregation"].items():
        _check(f"aggregation of {name!r}", entry, {"seconds": _NUMBER}, {"seconds_per_client": _NUMBER})
        aggregation[name] = Aggregation(**_without_null(entry))
    return FlApplication(
        name=document["name"],
        rounds=document["rounds"],
        clients=tuple(clients),
        messages=Messages(**{f"{name}_gb": size for name, size in document["messages_gb"].items()}),
        communication_s=document["communication_s"],
        aggregation=aggregation,
        first_round_slowdown=_without_null(document).get("first_round_slowdown", 1.0),
        source=_source(document),
    )


def clouds_of(document: Mapping[str, Any]) -> Clouds:
    """The clouds that a parsed clouds.json describes. Raises FederationError."""
    top = dict.fromkeys(("providers", "regions", "vm_types", "communication_slowdowns"), _LIST)
    _check("the clouds", document, top | {"compute_slowdowns": _OBJECT}, _HEADER | {"measured": _OBJECT})
    compute: dict[str, Mapping[str, float]] = {}
    for region, slowdowns in document["compute_slowdowns"].items():
        _check(f"compute_slowdowns of {region!r}", slowdowns, {}, dict.fromkeys(_names(slowdowns), _NUMBER))
        compute[region] = dict(slowdowns)
    communication: dict[tuple[str, str], float] = {}
    for number, entry in enumerate(document["communication_slowdowns"], 1):
        owner = f"communication_slowdowns, entry {number}"
        _check(owner, entry, {"between": _LIST, "slowdown": _NUMBER}, {})
        pair = _pair(owner, entry["between"])
        if pair in communication:
            raise FederationError(f"{owner}: regions {pair[0]!r} & {pair[1]!r} are given twice: keep one")
        communication[pair] = entry["slowdown"]
    return Clouds(
        providers=tuple(Provider(**item) for item in _items(document, "providers", _PROVIDER, _LIMITS)),
        regions=tuple(
            Region(**item) for item in _items(document, "regions", _REGION, _LIMITS | {"place": _TEXT})
        ),
        vm_types=tuple(VmType(**item) for item in _items(document, "vm_types", _VM_TYPE, _VM_TYPE_OPTIONAL)),
        compute_slowdowns=compute,
        communication_slowdowns=communication,
        source=_source(document),
        measured=_measured(_without_null(document).get("measured", {})),
    )


def _measured(document: Mapping[str, Any]) -> Measured:
    _check("measured", document, {}, {"baseline": _OBJECT, "compute": _OBJECT, "communication": _LIST})
    baseline = document.get("baseline") or {}
    _check("measured: baseline", baseline, {}, {"vm_type": _TEXT, "between": _LIST})
    compute: dict[str, Mapping[str, Measurement]] = {}
    for region, types in (document.get("compute") or {}).items():
        _check(f"measured with data in {region!r}", types, {}, dict.fromkeys(_names(types), _OBJECT))
        for name, entry in types.items():
            _check(f"measured {name!r}", entry, _MEASUREMENT, {"first_round_s": _NUMBER})
        compute[region] = {name: Measurement(**entry) for name, entry in types.items()}
    communication = {}
    for number, entry in enumerate(document.get("communication") or (), 1):
        owner = f"measured communication, entry {number}"
        _check(owner, entry, _MEASUREMENT | {"between": _LIST}, {})
        pair = _pair(owner, entry["between"])
        communication[pair] = Measurement(entry["round_s"], entry["workload"])
    between = baseline.get("between")
    return Measured(
        baseline_vm_type=baseline.get("vm_type"),
        baseline_between=None if between is None else _pair("measured: baseline", between),
        compute=compute,
        communication=communication,
    )


def _pair(owner: str, between: list[Any]) -> tuple[str, str]:
    if len(between) != 2 or not all(isinstance(name, str) for name in between):
        raise FederationError(f"{owner}: between is {between}, expected the names of two regions")
    return between[0], between[1]


def application_document(application: FlApplication) -> dict[str, Any]:
    """What `application_of` reads back as the same application."""
    return {
        "format": APPLICATION_FORMAT,
        "name": application.name,
        "source": list(application.source),
        "rounds": application.rounds,
        "first_round_slowdown": application.first_round_slowdown,
        "messages_gb": {name: getattr(application.messages, f"{name}_gb") for name in _MESSAGES},
        "communication_s": application.communication_s,
        "aggregation": {name: _plain(entry) for name, entry in application.aggregation.items()},
        "clients": [_plain(client) for client in application.clients],
    }


def clouds_document(clouds: Clouds) -> dict[str, Any]:
    """What `clouds_of` reads back as the same clouds."""
    return {
        "format": CLOUDS_FORMAT,
        "source": list(clouds.source),
        "providers": [_plain(item) for item in clouds.providers],
        "regions": [_plain(item) for item in clouds.regions],
        "vm_types": [_plain(item) for item in clouds.vm_types],
        "compute_slowdowns": {name: dict(row) for name, row in clouds.compute_slowdowns.items()},
        "communication_slowdowns": [
            {"between": list(pair), "slowdown": slowdown}
            for pair, slowdown in clouds.communication_slowdowns.items()
        ],
        **_measured_document(clouds.measured),
    }


def _measured_document(measured: Measured) -> dict[str, Any]:
    if measured == Measured():
        return {}
    baseline = {"vm_type": measured.baseline_vm_type, "between": measured.baseline_between}
    document = {
        "baseline": _without_null({key: _listed(value) for key, value in baseline.items()}),
        "compute": {
            region: {name: _without_null(_plain(entry)) for name, entry in types.items()}
            for region, types in measured.compute.items()
        },
        "communication": [
            {"between": list(pair)} | _without_null(_plain(entry))
            for pair, entry in measured.communication.items()
        ],
    }
    return {"measured": document}


def _listed(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value


_HEADER = {"format": _TEXT, "source": _LIST}


def _in_file(path: Path, expected: str, build: Callable[[Mapping[str, Any]], _Read]) -> _Read:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise FederationError(f"cannot read {path}: {error.strerror or error}") from error
    except ValueError as error:
        raise FederationError(f"{path} is no JSON: {error}") from error
    if not isinstance(document, dict) or document.get("format") != expected:
        found = document.get("format") if isinstance(document, dict) else type(document).__name__
        raise FederationError(f'{path}: format is {found!r}, expected {{"format": "{expected}", ...}}')
    try:
        return build(document)
    except FederationError as error:
        raise FederationError(f"{path}: {error}") from error


def _items(
    document: Mapping[str, Any],
    key: str,
    required: Mapping[str, _Kinds],
    optional: Mapping[str, _Kinds],
) -> list[Mapping[str, Any]]:
    what = key.removesuffix("s").replace("vm_", "VM ")
    for number, entry in enumerate(document[key], 1):
        _check(_owner(what, number, entry), entry, required, optional)
    return [_without_null(entry) for entry in document[key]]


def _without_null(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Null says "no limit" or "not offered", which is what a missing key says too."""
    return {key: value for key, value in entry.items() if value is not None}


def _check(
    owner: str,
    entry: object,
    required: Mapping[str, _Kinds],
    optional: Mapping[str, _Kinds],
) -> None:
    if not isinstance(entry, dict):
        raise FederationError(f'{owner} is {entry!r}, expected {{"key": value, ...}}')
    for key in required:
        if entry.get(key) is None:
            raise FederationError(f"{owner} lacks {key!r}")
    for key, value in entry.items():
        kinds = required.get(key) or optional.get(key)
        if kinds is None:
            raise FederationError(
                f"{owner} has the key {key!r}, which means nothing here: "
                f"use {', '.join({**required, **optional})}"
            )
        if value is None and key in optional:
            continue
        # True and False are numbers to Python, never to people.
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            expected = _KINDS.get(kinds, "a list" if list in kinds else '{"key": value, ...}')
            raise FederationError(f"{owner}: {key} is {value!r}, expected {expected}")


def _owner(what: str, number: int, entry: object) -> str:
    name = entry.get("name") if isinstance(entry, dict) else None
    return f"{what} {name!r}" if isinstance(name, str) and name else f"{what} number {number}"


def _names(entry: object) -> list[str]:
    return list(entry) if isinstance(entry, dict) else []


def _source(document: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(str(line) for line in document.get("source") or ())


def _plain(thing: Any) -> dict[str, Any]:
    return {field.name: getattr(thing, field.name) for field in fields(thing)}
