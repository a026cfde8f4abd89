"""What the AWS provider may rent, and where: a YAML or JSON file. It holds no credentials."""

from __future__ import annotations

import hashlib
import importlib.util
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, cast

from pydantic import Field, model_validator

from spotweave.deploy.billing import Transfers
from spotweave.deploy.model.instances import LaunchRequest, Offer
from spotweave.deploy.providers.aws.catalogue import Catalogue, load_catalogue
from spotweave.deploy.providers.base import Provider
from spotweave.deploy.providers.cloud import CloudConfig, InstanceType
from spotweave.deploy.providers.config import Finding
from spotweave.deploy.security.sandbox import Sandbox
from spotweave.deploy.yamlfile import Part, Positive

if TYPE_CHECKING:
    from spotweave.deploy.providers.aws.provider import AwsProvider

_Zone = Annotated[str, Field(pattern=r"^[a-z]{2}(-[a-z]+)+-\d[a-z]$")]
_Type = Annotated[str, Field(pattern=r"^[a-z0-9-]+\.[a-z0-9-]+$")]
_Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9._+=,@-]{1,100}$")]
_Queue = Annotated[str, Field(pattern=r"^([A-Za-z0-9_-]{1,80}|https?:/{2}\S+)$")]
INTERNET_USD_GB = 0.09
"""USD per GB that leaves a region for another cloud, for the first 10 TB of a month.

https://aws.amazon.com/ec2/pricing/on-demand/#Data_Transfer; the page itself was not read. A published bill
of June 2026 has for us-east-1: "$0.090 per GB - first 10 TB / month data transfer out beyond the global free
tier". Other regions: unverified.
"""
_REGION = re.compile(r"[a-z]{2}(-[a-z]+)+-\d")


class Region(Part):
    """One region."""

    image: Annotated[str, Field(pattern=r"^ami-[0-9a-f]+$")]  # AMI with Python and this package; see `node`
    # of every instance; it should admit only its own members and the scheduler
    security_group: Annotated[str, Field(pattern=r"^sg-[0-9a-f]+$")]
    # one for each zone that may be used
    subnets: Annotated[dict[_Zone, Annotated[str, Field(pattern=r"^subnet-[0-9a-f]+$")]], Field(min_length=1)]

    @property
    def zones(self) -> Iterable[str]:
        """Those with a subnet. On-demand capacity is a zone's own."""
        return self.subnets


class AwsConfig(CloudConfig):
    """The AWS provider's configuration, besides the keys of `CloudConfig`."""

    regions: Annotated[dict[str, Region], Field(min_length=1)]
    instance_types: Annotated[dict[_Type, InstanceType], Field(min_length=1)]
    instance_profile: _Name | None = None  # name of the nodes' instance profile; None: they may call nothing
    key_name: str | None = None  # SSH key pair; None: no SSH login
    disk_gib: Annotated[int, Field(ge=8, le=16384)] = 50  # encrypted root disk (gp3)
    owner: Annotated[str, Field(max_length=256)] = ""  # tag of everything that is rented
    # more tags
    tags: dict[Annotated[str, Field(min_length=1, max_length=128)], Annotated[str, Field(max_length=256)]] = (
        Field(default_factory=dict)
    )
    profile: str | None = None  # of the SDK's configuration; None: the SDK's own chain decides
    catalogue: Path | None = None  # on-demand price list; None: the one that ships
    prices_every_s: Positive = 60.0  # spot prices are asked for so often
    # SQS queue that gets EC2's warnings of interruptions and its advice to leave: a name that each region has
    # one of, or a name or URL by region. It is this deployment's alone. None: the scheduler hears of
    # interruptions from nodes only.
    events_queue: _Queue | dict[str, _Queue] | None = None
    provider: ClassVar[str] = "aws"
    cloud: ClassVar[str] = "AWS"

    @model_validator(mode="after")
    def _consistent(self) -> AwsConfig:
        if importlib.util.find_spec("boto3") is None:
            raise ValueError("renting from AWS needs boto3: pip install 'spotweave[deploy,aws]'")
        for name, region in self.regions.items():
            if not _REGION.fullmatch(name):
                raise ValueError(f"region {name!r}: expected a name like us-east-1")
            for zone in region.subnets:
                if not zone.startswith(name):
                    raise ValueError(f"zone {zone} is not in the region {name}")
        taken = sorted(tag for tag in self.tags if tag.startswith(("spotweave:", "aws:")))
        if taken:
            raise ValueError(f"tag {taken[0]}: spotweave: and aws: are reserved")
        if isinstance(self.events_queue, dict) and self.events_queue.keys() != self.regions.keys():
            raise ValueError(f"events_queue: expected one for each of {', '.join(self.regions)}")
        if isinstance(self.events_queue, str) and "://" in self.events_queue and len(self.regions) > 1:
            raise ValueError("events_queue: a URL is of one region; give a name, or one URL for each region")
        return self

    @property
    def queues(self) -> dict[str, str]:
        """Name or URL of each region's queue of events; empty for none."""
        if isinstance(self.events_queue, str):
            return dict.fromkeys(self.regions, self.events_queue)
        return self.events_queue or {}

    def prices(self) -> Catalogue:
        """The on-demand price list; see `CloudConfig.prices`."""
        catalogue = load_catalogue(None if self.catalogue is None else self.folder / self.catalogue)
        for region in self.regions:
            for name in self.instance_types:
                catalogue.usd_hour(region, name)
            for other in self.regions.keys() - {region}:
                catalogue.egress_usd_gb(region, other)
        return catalogue

    def open(self, sandbox: Sandbox | None = None) -> Provider:
        """EC2. Raises ConfigError, ProviderError."""
        from spotweave.deploy.providers.aws.provider import AwsProvider

        return AwsProvider(self)

    def check(self, deployment: str) -> Iterator[Finding]:
        """Credentials, rights, quotas, images and networks. Raises ConfigError."""
        from spotweave.deploy.providers.aws.check import check

        return check(self, deployment=deployment or "not-made-yet")

    def transfers(self) -> Transfers:
        """Transfers from any priced region to the rented ones, without speeds. Raises ConfigError."""
        listed = self.prices().regions
        return Transfers(
            regions=tuple(self.regions),
            usd_gb={
                (start, end): prices.egress.usd_gb[end]
                for start, prices in listed.items()
                for end in self.regions
                if end in prices.egress.usd_gb
            },
            internet_usd_gb=dict.fromkeys(listed, INTERNET_USD_GB),
        )

    def details(
        self, provider: Provider, offers: Sequence[Offer], now_s: float
    ) -> tuple[Mapping[str, Mapping[str, Any]], Sequence[str]]:
        """Mean price and placement score of spot offers. Raises ProviderError."""
        return cast("AwsProvider", provider).details(offers, now_s)


DEPLOYMENT = "spotweave:deployment"
JOB = "spotweave:job"
TASK = "spotweave:task"
OWNER = "spotweave:owner"
TOKEN = "spotweave:client-token"
TAGS = {"deployment": DEPLOYMENT, "job_id": JOB, "task": TASK}  # by what a report calls them


def tags_of(request: LaunchRequest, config: AwsConfig) -> list[dict[str, str]]:
    """Tags of an instance, as EC2 takes them."""
    values = {
        **config.tags,
        "Name": f"spotweave {request.job_id} {request.task}"[:256],
        **{tag: getattr(request, name) for name, tag in TAGS.items()},
        TOKEN: request.client_token,
    }
    if config.owner:
        values[OWNER] = config.owner
    return [{"Key": key, "Value": value} for key, value in values.items()]


def client_token(request: LaunchRequest) -> str:
    """At most 64 characters for any token and deployment."""
    return hashlib.sha256(f"{request.deployment}\n{request.client_token}".encode()).hexdigest()


def batches(items: Sequence[str], size: int) -> list[Sequence[str]]:
    """Pieces of at most `size`."""
    return [items[start : start + size] for start in range(0, len(items), size)]
