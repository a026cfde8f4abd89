"""The configuration that the providers of all clouds share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal
from urllib.parse import urlsplit

from pydantic import Field, IPvAnyAddress, PositiveInt

from spotweave.deploy.providers.config import Place, ProviderConfig
from spotweave.deploy.providers.userdata import NodeConfig
from spotweave.deploy.security.tls import is_loopback
from spotweave.deploy.yamlfile import ConfigError, Part, Positive

CloudMarket = Literal["spot", "on_demand"]


class InstanceType(Part):
    """One type that may be rented."""

    quota: PositiveInt  # instances of it that may run at once in one zone and market, for this deployment
    speed: Positive = 1.0  # relative to the reference type (1.0), larger is faster
    # how it may be rented
    markets: Annotated[tuple[CloudMarket, ...], Field(min_length=1)] = ("spot", "on_demand")
    # spot: never pay more. EC2 ends what costs more; on Google Cloud, which knows no maximum price, nothing
    # is rented while the list's price is higher. None: the on-demand price on EC2, no limit on Google Cloud.
    max_price_usd_hour: Positive | None = None


class CloudConfig(ProviderConfig):
    """What the configurations of all clouds have; `state` is for the availability record, if it is kept."""

    regions: Mapping[str, Any]  # by name; each has `zones` that may be used
    instance_types: Mapping[str, InstanceType]  # by name
    node: NodeConfig  # how nodes start
    disk_gib: int = 50  # size of the root disk
    # of an emulator; None: what AWS_ENDPOINT_URL or COMPUTE_EMULATOR_HOST says, else the cloud itself
    endpoint_url: Annotated[str, Field(pattern=r"^https?://")] | None = None
    # an offer that had no capacity is left alone so long; twice as long each further time,
    cool_down_s: Positive = 120.0
    cool_down_most_s: Positive = 3600.0  # up to this
    visible_within_s: Positive = 120.0  # a new instance may stay unlisted so long
    launch_s: Positive = 90.0  # expected seconds from the request to a ready node
    joins: ClassVar[bool] = True
    provider: ClassVar[str]
    cloud: ClassVar[str]  # name of the cloud in messages

    @abstractmethod
    def prices(self) -> Any:
        """The price list. Raises ConfigError if it cannot be read, or lacks something that is configured."""

    def ca_pem(self) -> str | None:
        """Certificate that nodes trust. Raises ConfigError."""
        return self.node.ca_pem(self.folder)

    def places(self) -> dict[str, Place]:
        """By offer id; the price list and the certificate are read too. Raises ConfigError."""
        self.prices()
        self.ca_pem()
        return {place.offer_id: place for place in self.unchecked_places()}

    def unchecked_places(self) -> Iterator[Place]:
        """Everything that may be rented; nothing else is read."""
        for region in self.regions:
            for zone in self.regions[region].zones:
                for name, kind in self.instance_types.items():
                    for market in kind.markets:
                        yield Place(self.provider, region, zone, name, market)

    def looks_after(self, region: str) -> bool:
        """Whether instances in this region would be seen and ended."""
        return region in self.regions

    def require_reachable(self, address: IPvAnyAddress) -> None:
        """Nodes find what runs jobs at this address. Raises ConfigError."""
        if address.is_loopback and not is_loopback(urlsplit(self.node.scheduler_url).hostname or ""):
            raise ConfigError(
                f"runners.address is {address}, which instances of {self.cloud} cannot reach: set it to "
                "this machine's address in their network"
            )
