"""A price list from the Cloud Billing Catalog, for `prices_file`.

    python -m spotweave.deploy.providers.gcp.catalogue --out prices.json [--region R] [--list prices.json]

A machine costs what its cores, memory, GPUs and bundled local disks cost, each of which is a SKU. The new
prices become steps after those of the list that it begins with; moves of data are taken over from it.

https://cloud.google.com/billing/docs/reference/rest/v1/services.skus/list
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, time
from pathlib import Path
from typing import Any

from spotweave.deploy.providers.base import ProviderError
from spotweave.deploy.providers.gcp.clients import Clients, gcp_errors
from spotweave.deploy.providers.gcp.prices import PriceList, Region, Step, load_prices
from spotweave.deploy.providers.offers import CatalogueError, Hardware
from spotweave.files import write_bytes

HOST = "cloudbilling.googleapis.com"
PATH = "/v1/services/6F81-5844-456A/skus"  # path of Compute Engine's prices
_PAGE = 5000
_FAMILIES = {
    "n1": "N1 Predefined Instance",
    "n2": "N2 Instance",
    "e2": "E2 Instance",
    "a2": "A2 Instance",
    "g2": "G2 Instance",
}
_GPUS = {
    "A100": "Nvidia Tesla A100 GPU",
    "A100-80GB": "Nvidia Tesla A100 80GB GPU",
    "L4": "Nvidia L4 GPU",
    "nvidia-tesla-t4": "Nvidia Tesla T4 GPU",
    "nvidia-tesla-v100": "Nvidia Tesla V100 GPU",
}
_ATTACHED = ("nvidia-tesla-t4", "nvidia-tesla-v100")
_DISKS = {
    "pd-balanced": "Balanced PD Capacity",
    "pd-ssd": "SSD backed PD Capacity",
    "pd-standard": "Storage PD Capacity",
}
_LOCAL = "SSD backed Local Storage"
_LOCAL_GIB = {"a2-ultragpu": 375}
"""For each GPU, bundled with the machine and priced per month of 730 hours.

https://cloud.google.com/compute/docs/accelerator-optimized-machines
"""
_MONTH_H = 730
_SPOT = ("", "Spot Preemptible ")
_ATTACHED_TO_SPOT = " attached to Spot Preemptible VMs"
_USAGES = ("OnDemand", "Preemptible")

Skus = Mapping[tuple[str, str], float]  # USD for a unit, by the SKU's name without its place, and region


def read(clients: Clients) -> Iterator[dict[str, Any]]:
    """All SKUs of Compute Engine, in some ten pages. Raises ProviderError."""
    token = ""
    while True:
        asked = {"currencyCode": "USD", "pageSize": _PAGE, "pageToken": token}
        with gcp_errors("Cloud Billing Catalog"):
            page = clients.ask("GET", HOST, PATH, params=asked)
        yield from page.get("skus", ())
        token = page.get("nextPageToken", "")
        if not token:
            return


def indexed(skus: Iterable[Mapping[str, Any]]) -> tuple[Skus, list[str]]:
    """The SKUs that prices are made of, and a line for each with two prices. Raises CatalogueError."""
    names = {
        *(
            f"{spot}{name} {what}"
            for name in _FAMILIES.values()
            for what in ("Core", "Ram")
            for spot in _SPOT
        ),
        *(f"{name}{spot}" for name in (*_GPUS.values(), _LOCAL) for spot in ("", _ATTACHED_TO_SPOT)),
        *_DISKS.values(),
    }
    found: dict[tuple[str, str], float] = {}
    twice: dict[tuple[str, str], str] = {}
    for sku in skus:
        try:
            name = re.split(r" (?:running )?in ", sku["description"])[0]
            if name not in names or sku["category"]["usageType"] not in _USAGES:
                continue
            # The last tier: what is free of a disk is so for a project, not for each.
            price = sku["pricingInfo"][-1]["pricingExpression"]["tieredRates"][-1]["unitPrice"]
            usd = int(price.get("units", 0)) + price.get("nanos", 0) / 1e9
            regions = sku["serviceRegions"]
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise CatalogueError(f"the Cloud Billing Catalog has an unexpected SKU: {sku}") from error
        for region in regions:
            first_usd = found.setdefault((name, region), usd)
            if first_usd != usd:
                twice[name, region] = f"two prices of {name} in {region}: {first_usd} and {usd} USD"
    return {key: usd for key, usd in found.items() if key not in twice}, list(twice.values())


def refreshed(base: PriceList, skus: Skus, regions: Sequence[str], today: date) -> PriceList:
    """The list with a step of today for each price of these regions that changed. Raises CatalogueError."""
    since = datetime.combine(today, time(), UTC)
    made = dict(base.regions)
    for region in regions:
        old = base.regions.get(region, Region())
        types = {name: _machine(name, about, skus, region, since) for name, about in base.types.items()}
        gpus = {name: _step(since, *_gpu(name, skus, region)) for name in _ATTACHED}
        if not any(types.values()):
            raise CatalogueError(f"the Cloud Billing Catalog has no machine of the list in {region}")
        disks = {kind: skus[name, region] for kind, name in _DISKS.items() if (name, region) in skus}
        made[region] = Region(
            types=_continued(old.types, types),
            gpus=_continued(old.gpus, gpus),
            disk_usd_gib_month={**old.disk_usd_gib_month, **disks},
        )
    new = f"Cloud Billing Catalog API, {', '.join(regions)} read {today}"
    sources = {what: f"{new}; else: {base.sources.get(what, '')}" for what in ("types", "gpus", "disks")}
    return base.model_copy(update={"regions": made, "sources": {**base.sources, **sources}})


def _machine(name: str, about: Hardware, skus: Skus, region: str, since: datetime) -> Step | None:
    series, _, kind = name.partition("-")
    family = _FAMILIES.get(series)
    if family is None:
        return None
    prices = []
    for spot in (False, True):
        unit = f"{_SPOT[spot]}{family}"
        parts = [
            (about.vcpus, skus.get((f"{unit} Core", region))),
            (about.memory_gib, skus.get((f"{unit} Ram", region))),
        ]
        if about.gpu is not None:
            parts.append((about.gpus, _gpu(about.gpu, skus, region)[spot]))
        gib = _LOCAL_GIB.get(f"{series}-{kind.partition('-')[0]}", 0) * about.gpus
        if gib:
            local = skus.get((f"{_LOCAL}{_ATTACHED_TO_SPOT if spot else ''}", region))
            parts.append((gib / _MONTH_H, local))
        known = [count * usd for count, usd in parts if usd is not None]
        prices.append(round(sum(known), 6) if len(known) == len(parts) else None)
    return _step(since, *prices)


def _gpu(name: str, skus: Skus, region: str) -> tuple[float | None, float | None]:
    """On demand and spot."""
    unit = _GPUS[name]
    return skus.get((unit, region)), skus.get((f"{unit}{_ATTACHED_TO_SPOT}", region))


def _step(since: datetime, on_demand_usd: float | None, spot_usd: float | None) -> Step | None:
    if on_demand_usd is None and spot_usd is None:
        return None
    return Step(since=since, on_demand_usd_hour=on_demand_usd, spot_usd_hour=spot_usd)


def _continued(
    old: Mapping[str, tuple[Step, ...]], new: Mapping[str, Step | None]
) -> dict[str, tuple[Step, ...]]:
    made = dict(old)
    for name, step in new.items():
        if step is None:
            continue
        before = tuple(one for one in old.get(name, ()) if one.since_s < step.since_s)
        same = before and before[-1] == step.model_copy(update={"since": before[-1].since})
        made[name] = before if same else (*before, step)
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit code: 1 after a mistake that was named in one line."""
    parser = argparse.ArgumentParser(prog="python -m spotweave.deploy.providers.gcp.catalogue")
    parser.add_argument("--out", type=Path, required=True, help="the new list, for prices_file")
    parser.add_argument("--list", type=Path, help="what it begins with; default: the one that ships")
    parser.add_argument("--region", action="append", help="default: those of the list")
    given = parser.parse_args(arguments)
    try:
        base = load_prices(given.list)
        regions = given.region or [name for name in base.regions if re.fullmatch(r"[a-z]+-[a-z]+\d+", name)]
        skus, left_out = indexed(read(Clients()))
        made = refreshed(base, skus, regions, datetime.now(UTC).date())
        text = made.model_dump_json(indent=1, exclude_none=True, exclude_defaults=True)
        write_bytes(given.out, f"{text}\n".encode())
    except ProviderError as error:
        print(f"error: {error}; nothing is written, and the dated list stays in force", file=sys.stderr)
        return 1
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    for line in left_out:
        print(f"note: {line}: what is made of it stays as it was", file=sys.stderr)
    print(f"written: {given.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
