"""On-demand prices, those of disks and of moving data, and what types have: a dated list, and its refresh.

    python -m spotweave.deploy.providers.aws.catalogue show
    python -m spotweave.deploy.providers.aws.catalogue refresh --out FILE [--region R ...] [--type T ...]

Refreshing asks pricing:GetProducts and ec2:DescribeInstanceTypes, so it needs an account.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field, FiniteFloat

from spotweave.deploy.providers.offers import CatalogueError, Hardware, Price, load_list
from spotweave.deploy.yamlfile import Part
from spotweave.files import write_private

SHIPPED = Path(__file__).with_name("on_demand.json")
PRICING_REGION = "us-east-1"  # the Price List API lives in few regions and knows the prices of all
_LINUX = {
    "operatingSystem": "Linux",
    "tenancy": "Shared",
    "preInstalledSw": "NA",
    "capacitystatus": "Used",
    "marketoption": "OnDemand",
}
_Listed = TypeVar("_Listed")


class Ec2Hardware(Hardware):
    """What an instance of a type has, with its architecture as images call it."""

    architecture: Literal["x86_64", "arm64"] = "x86_64"


class _Sourced(Part):
    """What a source says, and when it was published or read."""

    date: date
    source: str


class DiskPrice(_Sourced):
    """What a GiB of an EBS volume of type gp3 costs in a calendar month, with the speed that is included."""

    usd_gib_month: Price


class EgressPrices(_Sourced):
    """What moving data out of a region costs, by the region where to."""

    usd_gb: dict[str, Annotated[FiniteFloat, Field(ge=0)]]


class RegionPrices(_Sourced):
    """On-demand prices (Linux, shared tenancy) of one region, by instance type, and of disks and moves."""

    usd_hour: dict[str, Price]
    disk: DiskPrice
    egress: EgressPrices


class Catalogue(Part):
    """The list, by type and by region."""

    format: Literal[1]
    types: dict[str, Ec2Hardware]
    regions: dict[str, RegionPrices]

    def hardware(self, instance_type: str) -> Ec2Hardware:
        """Hardware of a type. Raises CatalogueError."""
        return _listed(self.types, instance_type, f"the price list has no {instance_type}")

    def usd_hour(self, region: str, instance_type: str) -> float:
        """On demand. Raises CatalogueError."""
        self.hardware(instance_type)
        lacks = f"the price list has no {instance_type} in {region}"
        return _listed(self._of(region).usd_hour, instance_type, lacks)

    def disk_usd_gib_month(self, region: str) -> float:
        """Price of a gp3 volume in USD per GiB-month. Raises CatalogueError."""
        return self._of(region).disk.usd_gib_month

    def egress_usd_gb(self, start: str, end: str) -> float:
        """Price of moving data between two regions in USD per GB. Raises CatalogueError."""
        lacks = f"the price list has no way from {start} to {end}"
        return _listed(self._of(start).egress.usd_gb, end, lacks)

    def _of(self, region: str) -> RegionPrices:
        return _listed(self.regions, region, f"region {region} is not in the price list")


def _listed(known: Mapping[str, _Listed], name: str, lacks: str) -> _Listed:
    if name in known:
        return known[name]
    raise CatalogueError(
        f"{lacks}: it has {', '.join(sorted(known))}; make one with "
        "python -m spotweave.deploy.providers.aws.catalogue refresh --out FILE and set `catalogue`"
    )


def load_catalogue(path: Path | None = None) -> Catalogue:
    """Read a list, or the one that ships. Raises CatalogueError."""
    return load_list(Catalogue, SHIPPED if path is None else path)


def refreshed(pricing: Any, ec2: Any, regions: Sequence[str], types: Sequence[str], today: date) -> Catalogue:
    """A new list from AWS itself. Raises CatalogueError where there is not exactly one price."""
    hardware: dict[str, Ec2Hardware] = {}
    pages = ec2.get_paginator("describe_instance_types").paginate(InstanceTypes=list(types))
    for page in pages:
        for entry in page["InstanceTypes"]:
            hardware[entry["InstanceType"]] = _hardware(entry)
    source = "AWS Price List API, pricing:GetProducts, https://api.pricing.us-east-1.amazonaws.com"

    def only(what: str, remedy: str, service: str, unit: str, **wanted: str) -> float:
        prices = set(_published(pricing, service, wanted, unit))
        if len(prices) != 1:
            raise CatalogueError(f"AWS lists {len(prices)} {what}, expected one: {remedy}")
        return prices.pop()

    found: dict[str, RegionPrices] = {}
    for region in regions:
        prices = {
            name: only(
                f"on-demand prices for {name} in {region}",
                "the region may not have this type; leave it out with --type",
                "AmazonEC2",
                "Hrs",
                regionCode=region,
                instanceType=name,
                **_LINUX,
            )
            for name in types
        }
        out = "leave a region out"
        ways = {
            other: only(
                f"prices for moving data from {region} to {other}",
                out,
                "AWSDataTransfer",
                "GB",
                fromRegionCode=region,
                toRegionCode=other,
                transferType="InterRegion Outbound",
            )
            for other in regions
            if other != region
        }
        gp3 = {"productFamily": "Storage", "volumeApiName": "gp3"}
        disk = only(f"prices for gp3 in {region}", out, "AmazonEC2", "GB-Mo", regionCode=region, **gp3)
        found[region] = RegionPrices(
            date=today,
            source=source,
            usd_hour=prices,
            disk=DiskPrice(date=today, source=source, usd_gib_month=disk),
            egress=EgressPrices(date=today, source=source, usd_gb=ways),
        )
    return Catalogue(format=1, types=hardware, regions=found)


def _hardware(entry: Mapping[str, Any]) -> Ec2Hardware:
    # Jobs run CUDA: accelerators of others are none to them.
    gpus = [one for one in entry.get("GpuInfo", {}).get("Gpus", []) if one["Manufacturer"] == "NVIDIA"]
    architectures = entry["ProcessorInfo"]["SupportedArchitectures"]
    return Ec2Hardware(
        vcpus=entry["VCpuInfo"]["DefaultVCpus"],
        memory_gib=entry["MemoryInfo"]["SizeInMiB"] / 1024,
        gpu=gpus[0]["Name"] if gpus else None,
        gpus=sum(gpu["Count"] for gpu in gpus),
        gpu_memory_gib=gpus[0]["MemoryInfo"]["SizeInMiB"] / 1024 if gpus else 0.0,
        architecture="x86_64" if "x86_64" in architectures else "arm64",
    )


def _published(pricing: Any, service: str, wanted: Mapping[str, str], unit: str) -> Iterator[float]:
    filters = [{"Type": "TERM_MATCH", "Field": key, "Value": value} for key, value in wanted.items()]
    for page in pricing.get_paginator("get_products").paginate(
        ServiceCode=service, Filters=filters, FormatVersion="aws_v1"
    ):
        for text in page["PriceList"]:
            for term in json.loads(text)["terms"].get("OnDemand", {}).values():
                for dimension in term["priceDimensions"].values():
                    if dimension["unit"] == unit:
                        yield float(dimension["pricePerUnit"]["USD"])


def main(arguments: Sequence[str] | None = None) -> int:
    """Show or refresh; 1 after a mistake that was named in one line."""
    # Here, because whoever only reads the list needs no SDK and no network.
    from spotweave.deploy.providers.aws.clients import Clients, aws_errors
    from spotweave.deploy.providers.base import ProviderError

    shipped = load_catalogue()
    parser = argparse.ArgumentParser(
        prog="python -m spotweave.deploy.providers.aws.catalogue", description=__doc__
    )
    commands = parser.add_subparsers(dest="command", required=True)
    show = commands.add_parser("show", help="the list as a table")
    show.add_argument("--catalogue", type=Path, help="default: the one that ships")
    refresh = commands.add_parser("refresh", help="make a new one from AWS")
    refresh.add_argument("--out", type=Path, required=True)
    refresh.add_argument("--region", action="append", help="default: those of the list that ships")
    refresh.add_argument("--type", action="append", help="default: those of the list that ships")
    refresh.add_argument("--profile", help="of the SDK's configuration")
    options = parser.parse_args(arguments)
    try:
        if options.command == "show":
            for region, prices in load_catalogue(options.catalogue).regions.items():
                for name, price in sorted(prices.usd_hour.items()):
                    print(f"{region}\t{name}\t{price}\t{prices.date}\t{prices.source}")
                disk, egress = prices.disk, prices.egress
                print(f"{region}\tgp3 GiB-month\t{disk.usd_gib_month}\t{disk.date}\t{disk.source}")
                for other, price in sorted(egress.usd_gb.items()):
                    print(f"{region}\tGB to {other}\t{price}\t{egress.date}\t{egress.source}")
            return 0
        regions = options.region or sorted(shipped.regions)
        clients = Clients(options.profile)
        with aws_errors("refresh of the price list"):
            made = refreshed(
                clients.get("pricing", PRICING_REGION),
                clients.get("ec2", regions[0]),
                regions,
                options.type or sorted(shipped.types),
                datetime.now(UTC).date(),
            )
        write_private(options.out, made.model_dump_json(indent=1))
    except (CatalogueError, ProviderError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"written: {options.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
