"""The model of federated applications: published tables to the cent, hand-made figures, bad input."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spotweave.envs.documents.federations import (
    application_of,
    clouds_of,
    read_application,
    read_clouds,
)
from spotweave.envs.federated_data.multi_fedls import (
    DIRECTORY,
    load_application,
    load_clouds,
    published_placements,
)
from spotweave.envs.simulation.federations.application import (
    Aggregation,
    Client,
    FederationError,
    FlApplication,
    Messages,
)
from spotweave.envs.simulation.federations.clouds import Market, Region, VmType
from spotweave.envs.simulation.federations.model import Federation, Outcome
from tests.envs.checks import put, refused
from tests.federation_cases import published_federation

SETUPS: list[dict[str, Any]] = published_placements()["tables_7_8_to_7_10"]


def published_outcome(setup: dict[str, Any]) -> Outcome:
    federation = published_federation(setup)
    return federation.outcome(federation.placement(setup["server"], setup["clients"]))


def clock(seconds: float) -> str:
    whole = round(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}"


@pytest.mark.parametrize("setup", SETUPS, ids=lambda setup: f"{setup['application']} {setup['setup']}")
def test_tables_7_8_and_7_10_to_the_second_the_cent_and_the_hundredth_of_a_percent(
    setup: dict[str, Any],
) -> None:
    outcome = published_outcome(setup)
    assert clock(outcome.round_s) == setup["round_time"]
    assert f"{outcome.round_usd:.2f}" == f"{setup['round_usd']:.2f}"
    if setup["setup"] == "optimal":
        return
    best = published_outcome(next(other for other in SETUPS if other["application"] == setup["application"]))
    saved_time = 100 * (1 - best.round_s / outcome.round_s)
    saved_usd = 100 * (1 - best.round_usd / outcome.round_usd)
    assert f"{saved_time:.2f}" == f"{setup['saved_time_percent']:.2f}"
    assert f"{saved_usd:.2f}" == f"{setup['saved_usd_percent']:.2f}"


def test_every_setup_of_the_three_tables_is_there() -> None:
    assert [setup["table"] for setup in SETUPS] == ["7.8"] * 4 + ["7.10"] * 9


def test_the_printed_slowdown_of_vm213_does_not_give_table_7_8() -> None:
    setup = {key: value for key, value in SETUPS[0].items() if key != "slowdown_of_vm213"}
    outcome = published_outcome(setup)
    assert (clock(outcome.round_s), f"{outcome.round_usd:.2f}") == ("0:01:47", "13.93")


@pytest.mark.parametrize("row", published_placements()["authors_maps"], ids=lambda row: row["application"])
def test_the_authors_own_cloudlab_maps(row: dict[str, Any]) -> None:
    federation = Federation(load_application(row["application"]), load_clouds("cloudlab"))
    clients = [row["client"]] * len(federation.application.clients)
    outcome = federation.outcome(federation.placement(row["server"], clients))
    assert outcome.round_s == pytest.approx(row["round_s"], abs=1e-9)
    # Their prices are not rounded, and APT's machines cost a little more there than in the thesis.
    assert outcome.round_usd == pytest.approx(row["round_usd"], rel=2e-3)


def test_the_normalisation_of_eq_6_8_by_hand() -> None:
    federation = Federation(load_application("til_gcp4"), load_clouds("aws_gcp"))
    # vm122 (1.92) with the server in N. Virginia (5.84), which aggregates in 0.3 s
    assert federation.t_max == pytest.approx(233.01 * 1.92 + 27.26 * 5.84 + 0.3, abs=1e-9)
    message = (3 * 0.537082008 + 1.808e-6) * 0.12
    expected = 2.86 / 3600 * federation.t_max * 5 + 4 * message
    assert federation.cost_max == pytest.approx(expected, abs=1e-12)
    outcome = federation.outcome(federation.placement("vm214", ["vm213"] * 4), alpha=0.3)
    normalised = 0.3 * outcome.round_usd / federation.cost_max + 0.7 * outcome.round_s / federation.t_max
    assert outcome.objective == pytest.approx(normalised, abs=1e-15)


def test_published_slowdowns_follow_from_the_published_seconds() -> None:
    times = json.loads((DIRECTORY / "measured_times.json").read_text("utf-8"))
    tables = (
        ("aws_gcp_data_in_us_east_1", "vm111", "us-east-1", 0.0095),
        ("aws_gcp_data_in_us_central1", "vm111", "us-central1", 0.0095),
        ("cloudlab_data_in_utah", "vm321", "utah", 0.0095),
    )
    for table, baseline, region, tolerance in tables:
        rows = {row["vm_type"]: row for row in times[table]}
        base = rows[baseline]["train_s"] + rows[baseline]["test_s"]
        clouds = load_clouds("cloudlab" if region == "utah" else "aws_gcp")
        assert set(rows) == set(clouds.compute_slowdowns[region])
        for name, row in rows.items():
            ratio = (row["train_s"] + row["test_s"]) / base
            assert ratio == pytest.approx(row["slowdown"], abs=tolerance), (table, name)
            assert clouds.compute_slowdown(region, name) == pytest.approx(row["slowdown"], abs=0.0095)
    for row in times["between_regions"]:
        first, second = row["between"]
        cloudlab = first in load_clouds("cloudlab").region
        base = 5.61 + 3.05 if cloudlab else 6.68 + 3.59
        assert (row["train_s"] + row["test_s"]) / base == pytest.approx(row["slowdown"], rel=0.006, abs=0.006)
        clouds = load_clouds("cloudlab" if cloudlab else "aws_gcp")
        assert clouds.communication_slowdown(second, first) == pytest.approx(row["slowdown"], abs=0.0095)


def test_cloudlab_prices_follow_from_those_per_vcpu_and_gb() -> None:
    clouds = load_clouds("cloudlab")
    assert len(clouds.vm_types) == 23
    for vm in clouds.vm_types:
        assert vm.spot_usd_hour == pytest.approx(0.3 * vm.on_demand_usd_hour, abs=1e-3)
        cpu, ram = (
            (0.03398, 0.00455) if clouds.region[vm.region].provider == "Cloud A" else (0.031611, 0.004237)
        )
        if not vm.gpus:
            expected = vm.vcpus * cpu + vm.memory_gib * ram
            assert vm.on_demand_usd_hour == pytest.approx(expected, abs=6e-4), vm.name


# --- hand-made figures ---

CLOUD: dict[str, Any] = {
    "format": "spotweave-clouds-1",
    "providers": [
        {"name": "A", "transfer_usd_gb": 0.1, "max_gpus": None},
        {"name": "B", "transfer_usd_gb": 0.2, "max_gpus": 2},
    ],
    "regions": [{"name": "a", "provider": "A"}, {"name": "b", "provider": "B", "max_vcpus": 9}],
    "vm_types": [
        {"name": "small", "region": "a", "vcpus": 2, "gpus": 0, "memory_gib": 4}
        | {"on_demand_usd_hour": 0.36, "spot_usd_hour": 0.18},
        {"name": "large", "region": "b", "vcpus": 8, "gpus": 1, "memory_gib": 32, "on_demand_usd_hour": 3.6},
        {"name": "server", "region": "b", "vcpus": 1, "gpus": 0, "memory_gib": 4, "hosts_clients": False}
        | {"on_demand_usd_hour": 0.036},
    ],
    "compute_slowdowns": {"a": {"small": 2.0, "large": 0.5}},
    "communication_slowdowns": [
        {"between": pair.split(), "slowdown": slowdown}
        for pair, slowdown in {"a a": 1.0, "a b": 3.0, "b b": 1.5}.items()
    ],
}
APP: dict[str, Any] = {
    "format": "spotweave-fl-app-1",
    "name": "two clients",
    "rounds": 5,
    "clients": [
        {"name": name, "data_region": "a", "train_samples": 10 * k, "test_samples": 2 * k}
        | {"train_s": 90.0 * k, "test_s": 10.0 * k}
        for k, name in enumerate("xy", start=1)
    ],
    "messages_gb": {"server_train": 1, "client_train": 2, "server_aggregate": 3, "client_test": 4},
    "communication_s": 10,
    "aggregation": {
        "A": {"seconds": 1},
        "b": {"seconds": 0, "seconds_per_client": 2},
        "server": {"seconds": 0.5},
    },
    "first_round_slowdown": 3,
}
APPLICATION, CLOUDS = application_of(APP), clouds_of(CLOUD)


def test_documents_are_read_as_they_stand() -> None:
    assert (
        FlApplication(
            name="two clients",
            rounds=5,
            clients=(Client("x", "a", 10, 2, 90.0, 10.0), Client("y", "a", 20, 4, 180.0, 20.0)),
            messages=Messages(1.0, 2.0, 3.0, 4.0),
            communication_s=10.0,
            aggregation={"A": Aggregation(1.0), "b": Aggregation(0.0, 2.0), "server": Aggregation(0.5)},
            first_round_slowdown=3.0,
        )
        == APPLICATION
    )
    assert CLOUDS.regions == (Region("a", "A"), Region("b", "B", max_vcpus=9))
    assert CLOUDS.vm_types[1:] == (
        VmType("large", "b", 8, 1, 32, on_demand_usd_hour=3.6),
        VmType("server", "b", 1, 0, 4, on_demand_usd_hour=0.036, hosts_clients=False),
    )
    assert CLOUDS.communication_slowdowns == {("a", "a"): 1.0, ("a", "b"): 3.0, ("b", "b"): 1.5}


def test_a_round_by_hand() -> None:
    federation = Federation(APPLICATION, CLOUDS)
    outcome = federation.outcome(federation.placement("server", ["small", "large"]))
    # x: 100 * 2 + 10 * 3 + 0.5; y: 200 * 0.5 + 10 * 1.5 + 0.5; first round: x computes 3 * 200
    assert outcome.round_s == pytest.approx(230.5)
    assert outcome.first_round_s == pytest.approx(630.5)
    assert outcome.total_s == pytest.approx(630.5 + 4 * 230.5)
    # x's messages: 4 GB from the server (B), 6 from x (A); y's: 4 and 6 from B
    messages = (4 * 0.2 + 6 * 0.1) + 10 * 0.2
    rate = (0.36 + 3.6 + 0.036) / 3600
    assert outcome.round_usd == pytest.approx(rate * 230.5 + messages)
    assert outcome.total_usd == pytest.approx(rate * outcome.total_s + 5 * messages)
    # The narrowest aggregation time counts, and grows with the clients.
    assert federation.aggregation_s.tolist() == [1.0, 4.0, 0.5]


def test_spot_prices_where_they_are_offered() -> None:
    federation = Federation(APPLICATION, CLOUDS, client_market=Market.SPOT)
    outcome = federation.outcome(federation.placement("large", ["small", "small"]))
    assert outcome.round_s == pytest.approx(400 + 30 + 4)
    messages = 2 * (4 * 0.2 + 6 * 0.1)
    assert outcome.round_usd == pytest.approx((2 * 0.18 + 3.6) / 3600 * 434 + messages)
    with pytest.raises(FederationError, match="cannot run"):
        federation.outcome(federation.placement("large", ["small", "large"]))


# --- documents ---


def test_published_data_are_all_there() -> None:
    clients = {
        "femnist": 5,
        "shakespeare": 8,
        "til_aws25_gcp25": 50,
        "til_aws2_gcp2": 4,
        "til_aws4": 4,
        "til_cloudlab": 4,
        "til_gcp4": 4,
        "til_gcp50": 50,
    }
    assert {name: len(load_application(name).clients) for name in clients} == clients
    assert len(load_clouds("aws_gcp").vm_types) == 13
    for load, names in ((load_application, clients), (load_clouds, ("aws_gcp", "cloudlab"))):
        with pytest.raises(FederationError, match=f"'til': use one of {', '.join(names)}$"):
            load("til")


BAD_APPLICATIONS: list[tuple[str, Any, str]] = [
    ("clients", [], "has no clients"),
    ("rounds", 0, "rounds is 0, expected a number > 0"),
    ("rounds", True, "rounds: input should be a valid integer, got True"),
    ("communication_s", -1, "communication_s is -1.0, expected a number >= 0"),
    ("communication_s", float("nan"), "communication_s is nan"),
    ("round", 3, "round: unknown key: remove it or correct its spelling"),
    ("aggregation", {"A": {"seconds": -2}}, "seconds is -2"),
    ("clients/0/data_region", ..., "clients.x.data_region: field required"),
    ("clients/0/data_region", "", "client 'x' has no data: name the region"),
    ("clients/0/train_samples", 0, "client 'x' has no data: train_samples is 0, expected at least 1"),
    ("clients/0/train_samples", -3, "client 'x': train_samples is -3"),
    ("clients/0/test_s", -0.5, "client 'x': test_s is -0.5"),
    ("clients/0/name", "y", "2 clients are named 'y'"),
    ("clients/0/name", ..., "clients.0.name: field required"),
    ("clients/0/count", 0, "client 'x': count is 0, expected a whole number >= 1"),
]


def between(*pairs: list[str]) -> list[dict[str, Any]]:
    return [{"between": pair, "slowdown": slowdown} for slowdown, pair in enumerate(pairs, start=1)]


BAD_CLOUDS: list[tuple[str, Any, str]] = [
    ("providers", [], "no provider"),
    ("vm_types", [], "no VM type"),
    ("providers/0/name", "B", "2 providers are named 'B'"),
    ("regions/0/name", "b", "2 regions are named 'b'"),
    ("vm_types/0/name", "large", "2 VM types are named 'large'"),
    ("providers/0/transfer_usd_gb", -1, "provider 'A': transfer_usd_gb is -1"),
    ("providers/0/max_gpus", -1, "provider 'A': max_gpus is -1"),
    ("regions/0/provider", "C", "region 'a' names provider 'C', which is not there: use one of A, B"),
    ("vm_types/0/region", "c", "VM type 'small' names region 'c', which is not there"),
    ("vm_types/0/vcpus", 0, "VM type 'small': vcpus is 0, expected a number > 0"),
    ("vm_types/0/spot_usd_hour", -1, "spot_usd_hour is -1"),
    ("vm_types/0/hosts_clients", "no", "hosts_clients: input should be a valid boolean, got 'no'"),
    ("compute_slowdowns", {"c": {}}, "compute_slowdowns names region 'c'"),
    ("compute_slowdowns", {"a": {"tiny": 1}}, "compute_slowdowns names VM type 'tiny'"),
    ("compute_slowdowns", {"a": {"small": 0}}, "small is 0.0, expected a number > 0"),
    ("communication_slowdowns", between(["a", "z"]), "communication_slowdowns names region 'z'"),
    ("communication_slowdowns", between(["a", "b"], ["b", "a"]), "give the pair once"),
]


@pytest.mark.parametrize(
    ("read", "document", "path", "value", "message"),
    [(application_of, APP, *row) for row in BAD_APPLICATIONS]
    + [(clouds_of, CLOUD, *row) for row in BAD_CLOUDS],
    ids=[message for _, _, message in BAD_APPLICATIONS + BAD_CLOUDS],
)
def test_a_bad_document_gets_one_line(
    read: Callable[[Any], object], document: dict[str, Any], path: str, value: Any, message: str
) -> None:
    with refused(FederationError, message):
        read(put(document, path, value))


def test_count_makes_equal_clients_with_their_own_names() -> None:
    document = put(APP, "clients", [APP["clients"][0] | {"count": 3}])
    clients = application_of(document).clients
    assert [client.name for client in clients] == ["x1", "x2", "x3"]
    assert {replace(client, name="") for client in clients} == {replace(APPLICATION.clients[0], name="")}


STRAY = replace(APPLICATION.clients[0], data_region="mars")
BAD_TOGETHER: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({}, {"compute_slowdowns": {}}, "no compute slowdown for VM type 'small' with data in region 'a'"),
    ({}, {"compute_slowdowns": {"a": {"small": 1.0}}}, "no compute slowdown for VM type 'large'"),
    (
        {},
        {"communication_slowdowns": {("a", "a"): 1.0, ("b", "b"): 1.0}},
        "no communication slowdown for regions 'a' & 'b'",
    ),
    (
        {},
        {"vm_types": tuple(replace(vm, hosts_clients=False) for vm in CLOUDS.vm_types)},
        "no VM type hosts clients",
    ),
    ({"clients": (STRAY,)}, {}, "client 'x' names region 'mars', which is not there: use one of a, b"),
    ({"aggregation": {"b": Aggregation(1.0)}}, {}, "no aggregation time for a server on 'small'"),
]


@pytest.mark.parametrize(
    ("application", "clouds", "message"), BAD_TOGETHER, ids=[case[2] for case in BAD_TOGETHER]
)
def test_what_is_missing_for_this_application_is_named(
    application: dict[str, Any], clouds: dict[str, Any], message: str
) -> None:
    with refused(FederationError, message):
        Federation(replace(APPLICATION, **application), replace(CLOUDS, **clouds))


def test_a_market_without_any_offer_is_named() -> None:
    types = tuple(replace(vm, spot_usd_hour=None) for vm in CLOUDS.vm_types)
    with refused(FederationError, "no VM type is offered on the spot market"):
        Federation(APPLICATION, replace(CLOUDS, vm_types=types), server_market=Market.SPOT)


def test_files_that_are_no_such_files(tmp_path: Path) -> None:
    path = tmp_path / "app.json"
    with refused(FederationError, "cannot read"):
        read_application(path)
    path.write_text("{")
    with refused(FederationError, "is not YAML"):
        read_application(path)
    path.write_text(json.dumps(CLOUD))
    with refused(FederationError, "format is 'spotweave-clouds-1', expected"):
        read_application(path)
    path.write_text(json.dumps(put(CLOUD, "regions/0/provider", "C")))
    with refused(FederationError, "app.json: region 'a' names provider 'C'"):
        read_clouds(path)
