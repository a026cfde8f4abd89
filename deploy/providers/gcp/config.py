"""What the Google Cloud provider may rent, and where: a YAML or JSON file. It holds no credentials."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from deploy.model.transfers import Transfers
from deploy.providers.base import Provider
from deploy.providers.cloudconfig import CloudConfig, InstanceType, Positive
from deploy.providers.config import Finding
from deploy.providers.gcp.prices import PriceList, load_prices
from deploy.providers.offers import CatalogueError
from deploy.security.sandbox import Sandbox
from deploy.yamlfile import ConfigError, Part

_Name = Annotated[str, Field(pattern=r"^[a-z]([a-z0-9-]{0,61}[a-z0-9])?$")]
_Region = Annotated[str, Field(pattern=r"^[a-z]+-[a-z]+\d+$")]
_Zone = Annotated[str, Field(pattern=r"^[a-z]+-[a-z]+\d+-[a-z]$")]
_Type = Annotated[str, Field(pattern=r"^[a-z0-9-]+(\+[1-9]\d*x[a-z0-9-]+)?$")]
_Label = Annotated[str, Field(pattern=r"^[a-z0-9_-]{0,63}$")]
_LabelKey = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]{0,62}$")]


class Region(Part):
    """One region.

    Attributes:
        zones: that may be used.
        subnetwork: of every instance, in this region.
    """

    zones: Annotated[tuple[_Zone, ...], Field(min_length=1)]
    subnetwork: _Name = "default"


class GcpConfig(CloudConfig):
    """The Google Cloud provider's configuration, besides the keys of `CloudConfig`.

    Attributes:
        project: id of the project that pays.
        instance_types: machine types, with attached GPUs as in "n1-standard-4+1xnvidia-tesla-t4".
        image: "projects/P/global/images/I", with Python and this package; see `node`.
        network_tags: for firewall rules.
        service_account: email of the nodes' own; None: they may call nothing.
        when_preempted: "delete", or "stop": then the disk stays and costs until the scheduler ends it.
        disk_gib: of the boot disk.
        disk_type: of the boot disk.
        owner: label of everything that is rented.
        labels: more labels.
        endpoint_url: of an emulator; None: COMPUTE_EMULATOR_HOST, else Google Cloud itself.
        prices_file: price list, relative to the configuration; None: the one that ships.
    """

    project: Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{4,28}[a-z0-9]$")]
    regions: Annotated[dict[_Region, Region], Field(min_length=1)]
    instance_types: Annotated[dict[_Type, InstanceType], Field(min_length=1)]
    image: Annotated[str, Field(pattern=r"^projects/[a-z0-9-]+/global/images/[a-z0-9-]+$")]
    network_tags: tuple[_Name, ...] = ()
    service_account: Annotated[str, Field(pattern=r"^[^@\s]+@[^@\s]+$")] | None = None
    when_preempted: Literal["delete", "stop"] = "delete"
    disk_gib: Annotated[int, Field(ge=10, le=65536)] = 50
    disk_type: _Name = "pd-balanced"
    owner: _Label = ""
    labels: dict[_LabelKey, _Label] = Field(default_factory=dict)
    prices_file: Path | None = None
    launch_s: Positive = 60.0
    provider: ClassVar[str] = "gcp"
    cloud: ClassVar[str] = "Google Cloud"

    @model_validator(mode="after")
    def _consistent(self) -> GcpConfig:
        try:
            importlib.import_module("google.cloud.compute_v1")
        except ImportError as error:
            raise ValueError(
                "renting from Google Cloud needs google-cloud-compute: pip install 'spotweave[deploy,gcp]'"
            ) from error
        for name, region in self.regions.items():
            for zone in region.zones:
                if zone.rpartition("-")[0] != name:
                    raise ValueError(f"zone {zone} is not in the region {name}")
        taken = sorted(key for key in self.labels if key.startswith("spotweave"))
        if taken:
            raise ValueError(f"label {taken[0]}: those that begin with spotweave are reserved")
        return self

    def region_of(self, zone: str) -> str:
        """`us-central1-a` lies in `us-central1`."""
        return zone.rpartition("-")[0]

    def prices(self) -> PriceList:
        """The price list; see `CloudConfig.prices`."""
        try:
            found = load_prices(None if self.prices_file is None else self.folder / self.prices_file)
            for place in self.unchecked_places():
                found.hardware(place.instance_type)
                found.steps(place)
                found.disk_usd_gib_month(place.region, self.disk_type)
        except CatalogueError as error:
            raise ConfigError(str(error)) from error
        return found

    def open(self, sandbox: Sandbox | None = None) -> Provider:
        """Compute Engine. Raises ConfigError, ProviderError."""
        from deploy.providers.gcp.provider import GcpProvider

        return GcpProvider(self)

    def zones(self, region: str) -> Iterable[str]:
        """As configured."""
        return self.regions[region].zones

    def check(self, deployment: str) -> Iterator[Finding]:
        """Credentials, rights, quotas, image and networks. Raises ConfigError."""
        from deploy.providers.gcp.check import check

        return check(self)

    def transfers(self) -> Transfers:
        """Between its regions, and what leaves them for another cloud. Raises ConfigError."""
        prices = self.prices()
        return Transfers(
            regions=tuple(self.regions),
            usd_gb={
                (start, end): prices.egress_usd_gb(start, end)
                for start in prices.regions
                for end in self.regions
                if start != end
            },
            internet_usd_gb=dict.fromkeys(prices.regions, prices.egress.internet),
        )
