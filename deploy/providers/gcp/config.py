"""What the Google Cloud provider may rent, and where: a YAML or JSON file. It holds no credentials."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, ClassVar, Literal
from urllib.parse import urlsplit

from pydantic import Field, FiniteFloat, IPvAnyAddress, PositiveInt, model_validator

from deploy.model.transfers import Transfers
from deploy.providers.base import Provider
from deploy.providers.config import Finding, Place, ProviderConfig
from deploy.providers.gcp.prices import PriceError, PriceList, load_prices
from deploy.providers.userdata import NodeConfig
from deploy.security.sandbox import Sandbox
from deploy.security.tls import is_loopback
from deploy.yamlfile import ConfigError, Part

_Positive = Annotated[FiniteFloat, Field(gt=0)]
_Name = Annotated[str, Field(pattern=r"^[a-z]([a-z0-9-]{0,61}[a-z0-9])?$")]
_Region = Annotated[str, Field(pattern=r"^[a-z]+-[a-z]+\d+$")]
_Zone = Annotated[str, Field(pattern=r"^[a-z]+-[a-z]+\d+-[a-z]$")]
_Type = Annotated[str, Field(pattern=r"^[a-z0-9-]+(\+[1-9]\d*x[a-z0-9-]+)?$")]
_Label = Annotated[str, Field(pattern=r"^[a-z0-9_-]{0,63}$")]
_LabelKey = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]{0,62}$")]
GcpMarket = Literal["spot", "on_demand"]


class Region(Part):
    """One region.

    Attributes:
        zones: that may be used.
        subnetwork: of every instance, in this region.
    """

    zones: Annotated[tuple[_Zone, ...], Field(min_length=1)]
    subnetwork: _Name = "default"


class InstanceType(Part):
    """One machine type, with what is attached to it, that may be rented.

    Attributes:
        quota: instances of it that may run at once in one zone and market, for this deployment.
        speed: relative to the reference type (1.0), larger is faster.
        markets: how it may be rented.
        max_price_usd_hour: spot: while the list's price is higher, nothing is rented. Compute Engine itself
            knows no maximum price.
    """

    quota: PositiveInt
    speed: _Positive = 1.0
    markets: Annotated[tuple[GcpMarket, ...], Field(min_length=1)] = ("spot", "on_demand")
    max_price_usd_hour: _Positive | None = None


class GcpConfig(ProviderConfig):
    """The Google Cloud provider's configuration.

    Attributes:
        project: id of the project that pays.
        regions: by name.
        instance_types: machine types, with attached GPUs as in "n1-standard-4+1xnvidia-tesla-t4".
        image: "projects/P/global/images/I", with Python and this package; see `node`.
        node: how nodes start.
        network_tags: for firewall rules.
        service_account: email of the nodes' own; None: they may call nothing.
        when_preempted: "delete", or "stop": then the disk stays and costs until the scheduler ends it.
        disk_gib: of the boot disk.
        disk_type: of the boot disk.
        owner: label of everything that is rented.
        labels: more labels.
        endpoint_url: of an emulator; None: COMPUTE_EMULATOR_HOST, else Google Cloud itself.
        prices_file: price list, relative to the configuration; None: the one that ships.
        cool_down_s: an offer that had no capacity is left alone so long; twice as long each further time,
        cool_down_most_s: up to this.
        visible_within_s: a new instance may stay unlisted so long.
        launch_s: expected seconds from the request to a ready node.
        state: folder of the availability record, relative to the configuration; None: it is not kept.
    """

    project: Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{4,28}[a-z0-9]$")]
    regions: Annotated[dict[_Region, Region], Field(min_length=1)]
    instance_types: Annotated[dict[_Type, InstanceType], Field(min_length=1)]
    image: Annotated[str, Field(pattern=r"^projects/[a-z0-9-]+/global/images/[a-z0-9-]+$")]
    node: NodeConfig
    network_tags: tuple[_Name, ...] = ()
    service_account: Annotated[str, Field(pattern=r"^[^@\s]+@[^@\s]+$")] | None = None
    when_preempted: Literal["delete", "stop"] = "delete"
    disk_gib: Annotated[int, Field(ge=10, le=65536)] = 50
    disk_type: _Name = "pd-balanced"
    owner: _Label = ""
    labels: dict[_LabelKey, _Label] = Field(default_factory=dict)
    endpoint_url: Annotated[str, Field(pattern=r"^https?://")] | None = None
    prices_file: Path | None = None
    cool_down_s: _Positive = 120.0
    cool_down_most_s: _Positive = 3600.0
    visible_within_s: _Positive = 120.0
    launch_s: _Positive = 60.0
    joins: ClassVar[bool] = True

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
        """The price list.

        Raises:
            ConfigError: if it cannot be read, or lacks something that is configured.
        """
        try:
            found = load_prices(None if self.prices_file is None else self.folder / self.prices_file)
            for place in self._places():
                found.hardware(place.instance_type)
                found.steps(place)
                found.disk_usd_gib_month(place.region, self.disk_type)
        except PriceError as error:
            raise ConfigError(str(error)) from error
        return found

    def open(self, sandbox: Sandbox | None = None) -> Provider:
        """Compute Engine. Raises ConfigError, ProviderError."""
        from deploy.providers.gcp.provider import GcpProvider

        return GcpProvider(self)

    def places(self) -> dict[str, Place]:
        """By offer id; the price list and the certificate are read too. Raises ConfigError."""
        self.prices()
        self.node.ca_pem(self.folder)
        return {place.offer_id: place for place in self._places()}

    def _places(self) -> Iterator[Place]:
        for region, part in self.regions.items():
            for zone in part.zones:
                for name, kind in self.instance_types.items():
                    for market in kind.markets:
                        yield Place("gcp", region, zone, name, market)

    def looks_after(self, region: str) -> bool:
        """Whether instances in this region would be seen and ended."""
        return region in self.regions

    def require_reachable(self, address: IPvAnyAddress) -> None:
        """Nodes find what runs jobs at this address. Raises ConfigError."""
        if address.is_loopback and not is_loopback(urlsplit(self.node.scheduler_url).hostname or ""):
            raise ConfigError(
                f"runners.address is {address}, which instances of Google Cloud cannot reach: set it to "
                "this machine's address in their network"
            )

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
