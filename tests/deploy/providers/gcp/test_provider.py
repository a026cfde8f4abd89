"""What only Compute Engine has: operations, announced preemptions, GPUs beside machines, permissions."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

import google.auth
import pytest
from google.auth.exceptions import DefaultCredentialsError, RefreshError

from spotweave.deploy.billing import PriceSegment, Usage, bill, micro_usd_hour, micro_usd_month
from spotweave.deploy.emulator.config import FaultConfig
from spotweave.deploy.emulator.gcp.world import GcpError, denied, disabled
from spotweave.deploy.model.instances import InstanceState
from spotweave.deploy.providers.base import (
    CapacityError,
    PartialError,
    ProviderError,
    QuotaError,
    RefusedError,
)
from spotweave.deploy.providers.cloud import AGAIN_S
from spotweave.deploy.providers.gcp import catalogue
from spotweave.deploy.providers.gcp.catalogue import indexed, main, read, refreshed
from spotweave.deploy.providers.gcp.check import check, needed
from spotweave.deploy.providers.gcp.clients import VARIABLE, Clients
from spotweave.deploy.providers.gcp.config import instance_name, token_of
from spotweave.deploy.providers.gcp.prices import SHIPPED, load_prices
from spotweave.deploy.providers.offers import CatalogueError
from tests.deploy.emulator.transport import InProcess
from tests.deploy.providers.contract import DEPLOYMENT, by_id, request
from tests.deploy.providers.gcp.project import GPU_TYPE, START_S, TYPE, ZONES, Project
from tests.deploy.test_guides import granted

OPEN = f"gcp/{ZONES[0]}/{TYPE}/spot"


def spell(**about: Any) -> FaultConfig:
    return FaultConfig.model_validate({"spells": [about]})


@pytest.mark.real
def test_a_thousand_instances_in_three_regions_are_seen_in_few_calls(tmp_path: Path) -> None:
    zones = ("us-central1-a", "us-east1-b", "us-west1-c")
    many = {"instance_types": {TYPE: {"quota": 1000}}}
    project = Project(tmp_path, {zone: [(0.0, 0.05)] for zone in zones}, many, quota_vcpus=10_000)
    for pool in project.emulator.world.market.pools.values():
        pool.spot_capacity = 1000
    rented = project.provider()
    asked = [request(f"gcp/{zones[n % 3]}/{TYPE}/spot") for n in range(1000)]
    for one in asked:
        body = rented._launcher.body(one, rented._places[one.offer_id])
        where = {"project": project.content["project"], "zone": one.offer_id.split("/")[1]}
        rented.clients.instances.insert_unary(**where, instance_resource=body)
    project.emulator.advance(60)
    fresh = project.provider()
    before = project.calls()
    reports = by_id(fresh.describe(DEPLOYMENT))
    assert {one.client_token for one in reports.values()} == {one.client_token for one in asked}
    assert {one.state for one in reports.values()} == {InstanceState.RUNNING}
    # Two pages of instances; of operations, 1,000 inserts on two pages.
    assert project.calls() - before == 4


def test_a_stock_out_and_a_full_quota_are_told_by_the_operation(tmp_path: Path) -> None:
    project = Project(tmp_path, rented={"instance_types": {TYPE: {"quota": 9}}}, quota_vcpus=4)
    provider = project.provider()
    assert provider.launch(request(OPEN)).state is InstanceState.LAUNCHING
    with pytest.raises(QuotaError, match=r"QUOTA_EXCEEDED: Quota 'PREEMPTIBLE_CPUS' exceeded.*Limit: 4.0"):
        provider.launch(request(OPEN))
    pool = project.emulator.world.market.pools[ZONES[1], TYPE]
    pool.spot_capacity = 0
    project.emulator.config = project.emulator.config.model_copy(update={"quota_vcpus": 400})
    closed = request(f"gcp/{ZONES[1]}/{TYPE}/on_demand")
    pool.on_demand_capacity = 0
    for _ in range(2):
        with pytest.raises(CapacityError, match="ZONE_RESOURCE_POOL_EXHAUSTED"):
            provider.launch(closed)
    (offer,) = [one for one in provider.offers() if one.offer_id == closed.offer_id]
    assert not offer.available
    assert "ZONE_RESOURCE_POOL_EXHAUSTED" in offer.reason
    # A refusal holds for its request only: the same token is good for an instance later.
    pool.on_demand_capacity = 1
    assert provider.launch(closed).state is InstanceState.LAUNCHING


def test_a_code_that_is_new_is_no_reason_to_give_up(tmp_path: Path) -> None:
    project = Project(tmp_path)
    provider = project.provider()
    project.emulator.faults.change(spell(actions=["compute:instances.create"], answer="ACodeThatIsNew"))
    with pytest.raises(ProviderError, match="ACodeThatIsNew") as caught:
        provider.launch(request(OPEN))
    assert type(caught.value) is ProviderError
    project.emulator.faults.change(spell(actions=["compute:instances.create"], answer="badRequest"))
    with pytest.raises(RefusedError):
        provider.launch(request(OPEN))


def test_an_insert_whose_answer_is_lost_gives_one_instance(tmp_path: Path) -> None:
    project = Project(tmp_path)
    provider = project.provider()
    asked = request(OPEN)
    project.emulator.faults.change(FaultConfig(lost=1.0, actions=("compute:instances.create",), most=1))
    first = provider.launch(asked)
    assert project.emulator.calls["compute:instances.create"] == 2
    assert [one.instance_id for one in project.emulator.world.living()] == [first.instance_id]


def test_an_instance_that_is_preempted_runs_on_for_its_last_seconds(tmp_path: Path) -> None:
    project = Project(tmp_path, shutdown_s=5)
    provider = project.provider()
    name = provider.launch(request(OPEN)).instance_id
    project.emulator.advance(100)
    now_s = project.emulator.world.now_s()
    project.emulator.world.interrupt(project.emulator.world.instances[name], 30)
    told = by_id(provider.describe(DEPLOYMENT))[name]
    assert (told.state, told.notice_s) == (InstanceState.RUNNING, now_s + 30)
    project.emulator.advance(60)
    for seen in (provider, project.provider()):
        ended = by_id(seen.describe(DEPLOYMENT))[name]
        assert (ended.state, ended.by_provider) == (InstanceState.TERMINATED, True)
        # Compute Engine's meter runs until the instance is gone: 30 s of notice and 5 s of shutdown.
        assert ended.ended_s == now_s + 35


@pytest.mark.real
def test_a_region_that_is_dark_does_not_hide_the_others(tmp_path: Path) -> None:
    project = Project(tmp_path, {"us-central1-a": [(0.0, 0.05)], "us-east1-b": [(0.0, 0.06)]})
    provider, far = project.provider(), f"gcp/us-east1-b/{TYPE}/spot"
    here, there = (provider.launch(request(one)).instance_id for one in (OPEN, far))
    provider.describe(DEPLOYMENT)
    project.emulator.faults.change(spell(regions=["us-east1"], answer="backendError"))
    with pytest.raises(PartialError) as caught:
        provider.describe(DEPLOYMENT)
    assert [one.instance_id for one in caught.value.reports] == [here]
    assert list(caught.value.silent) == ["us-east1"]
    offers = {one.offer_id: one for one in provider.offers()}
    assert "its region is silent" in offers[far].reason
    assert offers[OPEN].available
    with pytest.raises(ProviderError, match="nothing is launched where nothing is seen"):
        provider.launch(request(far))
    # It is left alone for a minute: the other region's zone is asked for instances and for operations.
    asked = project.calls()
    with pytest.raises(PartialError):
        provider.describe(DEPLOYMENT)
    assert project.calls() - asked == 2
    # After a restart it does not keep launches from the others either.
    fresh = project.provider()
    second = fresh.launch(request(OPEN))
    assert second.state is InstanceState.LAUNCHING
    with pytest.raises(ProviderError, match="us-east1-b"):
        fresh.launch(request(far))
    project.emulator.faults.change(FaultConfig())
    project.clock.sleep(AGAIN_S)
    assert set(by_id(provider.describe(DEPLOYMENT))) == {here, there, second.instance_id}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"token": "another"}, "does not accept these credentials, or they have expired"),
        (
            {"disabled": ["compute.googleapis.com"]},
            "is not enabled: gcloud services enable compute.googleapis",
        ),
        ({"denied": ["compute.instances.create"]}, "may not compute.instances.create on projects/spotweave-"),
        ({"project": "another-project"}, "The resource 'projects/spotweave-emulated' was not found"),
    ],
)
def test_what_a_person_must_mend_is_one_line(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    project = Project(tmp_path, **changes)
    provider = project.provider()
    with pytest.raises(RefusedError) as caught:
        provider.launch(request(OPEN))
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_gpus_are_attached_and_billed_beside_the_machine(tmp_path: Path) -> None:
    """0.05 + 0.11 USD an hour for a minute and a half; a disk of 50 GiB at 0.1 USD for 90 s of June."""
    types = {GPU_TYPE: {"quota": 1}, "a2-highgpu-1g": {"quota": 1}}
    project = Project(tmp_path, rented={"instance_types": types})
    provider = project.provider()
    (offer,) = [one for one in provider.offers() if one.offer_id == f"gcp/{ZONES[0]}/{GPU_TYPE}/spot"]
    assert offer.price_usd_hour == pytest.approx(0.16)
    assert offer.on_demand_usd_hour == pytest.approx(0.54)
    assert (offer.gpus, offer.gpu, offer.gpu_memory_gib) == (1, "T4", 16.0)
    assert (offer.free_first_s, offer.billing_minimum_s, offer.notice_s) == (1.0, 60.0, 30.0)
    name = provider.launch(request(offer.offer_id)).instance_id
    body = project.emulator.world.instances[name].body
    assert body["scheduling"]["provisioningModel"] == "SPOT"
    assert body["scheduling"]["onHostMaintenance"] == "TERMINATE"
    assert body["guestAccelerators"][0]["acceleratorCount"] == 1
    assert by_id(provider.describe(DEPLOYMENT))[name].offer_id == offer.offer_id
    built_in = provider.launch(request(f"gcp/{ZONES[0]}/a2-highgpu-1g/on_demand"))
    assert "guestAccelerators" not in project.emulator.world.instances[built_in.instance_id].body


def test_the_bill_is_by_the_second_from_a_minute_on_at_the_price_of_each_day(tmp_path: Path) -> None:
    """Two hours across a change of the price: half at 0.05, half at 0.07."""
    change_s = START_S + 3600
    spot = {ZONES[0]: [(0.0, 0.05), (change_s, 0.07)]}
    project = Project(tmp_path, spot, operation_s=0)
    (offer,) = [one for one in project.provider().offers() if one.market == "spot"]
    provider = project.provider()
    name = provider.launch(request(OPEN)).instance_id
    project.emulator.advance(7200)
    provider.terminate([name])
    report = by_id(provider.describe(DEPLOYMENT))[name]
    (after,) = [one for one in provider.offers() if one.market == "spot"]
    assert after.price_steps == ((0.0, 0.05), (change_s, 0.07))
    assert offer.price_usd_hour == 0.05
    usage = Usage(
        launched_s=report.launched_s,
        ended_s=report.ended_s,
        by_provider=report.by_provider,
        segments=tuple(PriceSegment(at_s, micro_usd_hour(usd)) for at_s, usd in after.price_steps),
        on_demand_micro_usd_hour=micro_usd_hour(after.on_demand_usd_hour),
        minimum_s=after.billing_minimum_s,
        free_first_s=after.free_first_s,
        disk_micro_usd_month=micro_usd_month(after.disk_usd_month),
    )
    ours = bill(usage, START_S + 10_000)
    # 3600 s at 0.05 and 3600 s at 0.07 are 0.12 USD; 5 USD a month of 30 days for 7,200 s are 0.013889 USD.
    assert float(ours.usd) == pytest.approx(0.12 + 5 * 7200 / 2_592_000, abs=2e-6)


def test_names_say_whose_an_ended_instance_was(tmp_path: Path) -> None:
    places = Project(tmp_path).config().places()
    asked = request(OPEN, token="sw-0123456789ab-i-0123456789abcdef")
    name = instance_name(asked)
    assert len(name) <= 63
    assert token_of(name, DEPLOYMENT, places) == (asked.client_token, places[OPEN])
    assert token_of(name, "other", places) is None
    hidden = instance_name(request(OPEN, token="Has_Other_Letters" * 5))
    assert len(hidden) <= 63
    assert token_of(hidden, DEPLOYMENT, places) is None


def expired(**_: Any) -> Any:
    return Expired(), None  # type: ignore[no-untyped-call]


class Expired(google.auth.credentials.Credentials):
    """A token that has run out, and whose owner has withdrawn the rest."""

    def refresh(self, request: object) -> None:
        raise RefreshError("invalid_grant: Token has been expired or revoked.")  # type: ignore[no-untyped-call]


def none(**_: Any) -> Any:
    raise DefaultCredentialsError("Your default credentials were not found.")  # type: ignore[no-untyped-call]


@pytest.mark.parametrize(
    ("chain", "words"),
    [
        (expired, "the credentials have expired or were withdrawn: gcloud auth"),
        (none, "no Google credentials: gcloud auth application-default login"),
    ],
)
def test_credentials_that_are_no_good_are_one_line_and_the_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chain: Any, words: str
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr("google.auth.default", chain)
    prices, found = check(Project(tmp_path).config(), Clients())
    assert prices.what == "prices"
    assert (found.verdict, found.what) == ("missing", "us-central1 project")
    assert words in found.text
    assert "\n" not in found.text


def test_only_permissions_that_the_configuration_makes_use_of_are_asked_for(tmp_path: Path) -> None:
    project = Project(tmp_path)
    role = granted("role.yaml")
    plain = set(needed(project.config()))
    others = {"acceleratorTypes.get", "instances.setServiceAccount", "subnetworks.useExternalIp"}
    assert role - plain == {f"compute.{one}" for one in others}
    full = project.config(
        instance_types={TYPE: {"quota": 1}, GPU_TYPE: {"quota": 1}},
        service_account="nodes@spotweave-emulated.iam.gserviceaccount.com",
        node={"scheduler_url": "https://scheduler.example:8443", "address": "public"},
    )
    assert set(needed(full)) == role


# Prices from the Cloud Billing Catalog, in answers of its documented shape.


if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

US = ("us-central1", "us-east1", "us-west1")
UNITS = {
    "N1 Predefined Instance Core running in Americas": 0.031611,
    "N1 Predefined Instance Ram running in Americas": 0.004237,
    "A2 Instance Core running in Americas": 0.031611,
    "A2 Instance Ram running in Americas": 0.004237,
    "Nvidia Tesla A100 GPU running in Americas": 2.933908,
    "Nvidia Tesla A100 80GB GPU running in Americas": 3.92808,
    "SSD backed Local Storage": 0.08,
    "Nvidia Tesla T4 GPU running in Americas": 0.35,
    "Balanced PD Capacity": 0.10,
    "Regional Balanced PD Capacity": 0.20,
    "Commitment v1: A2 Cpu in Americas for 1 Year": 0.019915,
}
"""On demand in us-central1, as Google publishes them for a core, a GiB, a GPU, or a GiB and month."""
SPOT = {
    "Spot Preemptible E2 Instance Core running in Americas": 0.00872,
    "Spot Preemptible E2 Instance Ram running in Americas": 0.001169,
    "Nvidia Tesla T4 GPU attached to Spot Preemptible VMs running in Americas": 0.14,
}
"""https://cloud.google.com/spot-vms/pricing; of the T4 as SkyPilot's catalogue has it."""


def sku(name: str, usd: float, usage: str = "OnDemand", regions: Iterable[str] = US) -> dict[str, Any]:
    """As services.skus.list answers it, of which what is read."""
    price = {"currencyCode": "USD", "units": str(int(usd)), "nanos": round((usd - int(usd)) * 1e9)}
    rates = [{"startUsageAmount": 0, "unitPrice": price}]
    return {
        "description": name,
        "category": {"usageType": "Commit1Yr" if name.startswith("Commitment") else usage},
        "serviceRegions": list(regions),
        "pricingInfo": [{"pricingExpression": {"usageUnit": "h", "tieredRates": rates}}],
    }


ALL = [*(sku(name, usd) for name, usd in UNITS.items()), *(sku(n, u, "Preemptible") for n, u in SPOT.items())]


class Catalogue:
    """Answers in pages of five, or with an error."""

    def __init__(self, skus: list[dict[str, Any]], error: GcpError | None = None) -> None:
        self._skus, self._error = skus, error
        self.asked: list[Mapping[str, list[str]]] = []

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        assert environ["PATH_INFO"] == catalogue.PATH
        query = parse_qs(environ["QUERY_STRING"])
        self.asked.append(query)
        if self._error is not None:
            start_response(f"{self._error.status} Error", [])
            return [json.dumps(self._error.json()).encode()]
        start = int(query.get("pageToken", ["0"])[0])
        more = {"nextPageToken": str(start + 5)} if start + 5 < len(self._skus) else {}
        start_response("200 OK", [])
        return [json.dumps({"skus": self._skus[start : start + 5], **more}).encode()]


def test_a_list_is_made_of_what_the_parts_cost() -> None:
    """The sums are the published prices of whole machines, which the list that ships has from another source.

    n1-standard-4: 4 x 0.031611 + 15 x 0.004237 = 0.189999
    a2-highgpu-1g: 12 x 0.031611 + 85 x 0.004237 + 2.933908 = 3.673385
    a2-ultragpu-1g: 12 x 0.031611 + 170 x 0.004237 + 3.92808 + 375 x 0.08 / 730 = 5.068798
    e2-standard-4, spot: 4 x 0.00872 + 16 x 0.001169 = 0.053584
    """
    app = Catalogue(ALL)
    shipped = load_prices(None)
    skus, left_out = indexed(read(InProcess(app)))
    assert left_out == []
    made = refreshed(shipped, skus, ["us-central1"], date(2026, 11, 23))
    assert len(app.asked) == 3
    assert app.asked[0]["currencyCode"] == ["USD"]
    region, old = made.regions["us-central1"], shipped.regions["us-central1"]
    for name, usd in (("n1-standard-4", 0.189999), ("a2-highgpu-1g", 3.673385), ("a2-ultragpu-1g", 5.068798)):
        assert region.types[name][-1].on_demand_usd_hour == usd == old.types[name][-1].on_demand_usd_hour
    e2 = region.types["e2-standard-4"][-1]
    assert (e2.since, e2.spot_usd_hour) == (datetime(2026, 11, 23, tzinfo=UTC), 0.053584)
    assert region.types["e2-standard-4"][:-1] == old.types["e2-standard-4"]
    t4 = region.gpus["nvidia-tesla-t4"][-1]
    assert (t4.on_demand_usd_hour, t4.spot_usd_hour) == (0.35, 0.14)
    assert region.disk_usd_gib_month == {"pd-balanced": 0.10}
    # What the catalogue did not tell stays.
    assert region.types["n2-standard-4"] == old.types["n2-standard-4"]
    assert made.regions["europe-west4"] == shipped.regions["europe-west4"]
    assert made.sources["types"].startswith(
        "Cloud Billing Catalog API, us-central1 read 2026-11-23; else: http"
    )


def test_a_price_that_is_the_same_gives_no_step_and_a_second_reading_of_a_day_replaces_the_first() -> None:
    shipped, day = load_prices(None), date(2026, 11, 23)
    skus, _ = indexed(ALL)
    once = refreshed(shipped, skus, ["us-central1"], day)
    again = refreshed(once, skus, ["us-central1"], day)
    later = refreshed(once, skus, ["us-central1"], date(2026, 11, 24))
    assert once.regions == again.regions == later.regions


@pytest.mark.parametrize(
    ("skus", "words"),
    [
        ([sku("N1 Predefined Instance Core running in Americas", 1.0, regions=["us-east1"])], "no machine"),
        ([{**ALL[0], "pricingInfo": []}], "has an unexpected SKU"),
    ],
)
def test_what_the_catalogue_does_not_say_clearly_is_refused(skus: list[dict[str, Any]], words: str) -> None:
    with pytest.raises(CatalogueError, match=words):
        refreshed(load_prices(None), indexed(skus)[0], ["us-central1"], date(2026, 11, 23))


def test_what_has_two_prices_stays_as_it_was_and_a_line_says_so() -> None:
    shipped = load_prices(None)
    other = sku("Nvidia Tesla T4 GPU running in Iowa", 0.2, regions=["us-central1"])
    skus, left_out = indexed([*ALL, other])
    assert left_out == ["two prices of Nvidia Tesla T4 GPU in us-central1: 0.35 and 0.2 USD"]
    made = refreshed(shipped, skus, ["us-central1"], date(2026, 11, 23)).regions["us-central1"]
    old = shipped.regions["us-central1"].gpus["nvidia-tesla-t4"]
    assert made.gpus["nvidia-tesla-t4"][:-1] == old
    assert made.gpus["nvidia-tesla-t4"][-1].on_demand_usd_hour is None


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (disabled(catalogue.HOST, "p"), f"is not enabled: gcloud services enable {catalogue.HOST}"),
        (denied("billing.accounts.list", "p"), "this identity may not billing.accounts.list on p"),
        (GcpError("authError", "Invalid", 401), "does not accept these credentials, or they have"),
    ],
)
def test_where_it_may_not_be_read_the_dated_list_stays_and_one_line_says_so(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: GcpError,
    words: str,
) -> None:
    monkeypatch.setattr(catalogue, "Clients", lambda: InProcess(Catalogue([], error)))
    assert main(["--out", str(tmp_path / "prices.json")]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert words in line
    assert line.endswith("; nothing is written, and the dated list stays in force")
    assert list(tmp_path.iterdir()) == []


def test_the_command_writes_a_list_that_the_provider_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(catalogue, "Clients", lambda: InProcess(Catalogue(ALL)))
    out = tmp_path / "prices.json"
    assert main(["--out", str(out), "--list", str(SHIPPED), *(f"--region={name}" for name in US)]) == 0
    assert capsys.readouterr().out == f"written: {out}\n"
    assert load_prices(out).regions["us-east1"].gpus["nvidia-tesla-t4"][-1].spot_usd_hour == 0.14
    assert main(["--out", str(out), "--list", str(tmp_path / "none.json")]) == 1
    assert "cannot read" in capsys.readouterr().err
