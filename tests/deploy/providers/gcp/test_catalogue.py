"""Prices from the Cloud Billing Catalog, in answers of its documented shape."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

import pytest

from deploy.emulator.gcp.messages import GcpError, denied, disabled
from deploy.providers.gcp import catalogue
from deploy.providers.gcp.catalogue import indexed, main, read, refreshed
from deploy.providers.gcp.prices import SHIPPED, load_prices
from deploy.providers.offers import CatalogueError
from tests.deploy.emulator.gcp.transport import InProcess

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
    """As services.skus.list answers it."""
    price = {"currencyCode": "USD", "units": str(int(usd)), "nanos": round((usd - int(usd)) * 1e9)}
    category = {"serviceDisplayName": "Compute Engine", "resourceFamily": "Compute", "resourceGroup": "CPU"}
    rates = [{"startUsageAmount": 0, "unitPrice": price}]
    pricing = {
        "summary": "",
        "pricingExpression": {"usageUnit": "h", "displayQuantity": 1, "tieredRates": rates},
        "currencyConversionRate": 1,
        "effectiveTime": "2026-11-22T08:00:00Z",
    }
    return {
        "name": "services/6F81-5844-456A/skus/0000-0000-0000",
        "skuId": "0000-0000-0000",
        "description": name,
        "category": {**category, "usageType": "Commit1Yr" if name.startswith("Commitment") else usage},
        "serviceRegions": list(regions),
        "pricingInfo": [pricing],
        "serviceProviderName": "Google",
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
