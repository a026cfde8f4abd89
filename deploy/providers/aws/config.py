"""What the AWS provider may rent, and where: a YAML or JSON file. It holds no credentials."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, PositiveInt, ValidationError, model_validator

from deploy.providers.aws.catalogue import Catalogue, CatalogueError, load_catalogue
from deploy.yamlfile import first_mistake, read_mapping

_Positive = Annotated[FiniteFloat, Field(gt=0)]
_Zone = Annotated[str, Field(pattern=r"^[a-z]{2}(-[a-z]+)+-\d[a-z]$")]
_Type = Annotated[str, Field(pattern=r"^[a-z0-9-]+\.[a-z0-9-]+$")]
_Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9._+=,@-]{1,100}$")]
_Queue = Annotated[str, Field(pattern=r"^([A-Za-z0-9_-]{1,80}|https?:/{2}\S+)$")]
AwsMarket = Literal["spot", "on_demand"]
_REGION = re.compile(r"[a-z]{2}(-[a-z]+)+-\d")


class AwsConfigError(ValueError):
    """The configuration cannot be used; one line."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Region(_Part):
    """One region.

    Attributes:
        image: AMI with Python and this package; see `node`.
        security_group: of every instance. It should let in nobody but its own members and the scheduler.
        subnets: one for each zone that may be used.
    """

    image: Annotated[str, Field(pattern=r"^ami-[0-9a-f]+$")]
    security_group: Annotated[str, Field(pattern=r"^sg-[0-9a-f]+$")]
    subnets: Annotated[dict[_Zone, Annotated[str, Field(pattern=r"^subnet-[0-9a-f]+$")]], Field(min_length=1)]


class InstanceType(_Part):
    """One type that may be rented.

    Attributes:
        quota: instances of it that may run at once in one zone and market, for this deployment.
        speed: relative to the reference type (1.0), larger is faster.
        markets: how it may be rented.
        max_price_usd_hour: spot: never pay more; None: the on-demand price is EC2's own limit.
        hibernate: prepare on-demand instances for hibernation (the memory must fit on the disk).
    """

    quota: PositiveInt
    speed: _Positive = 1.0
    markets: Annotated[tuple[AwsMarket, ...], Field(min_length=1)] = ("spot", "on_demand")
    max_price_usd_hour: _Positive | None = None
    hibernate: bool = False


class NodeConfig(_Part):
    """How instances start their node agent.

    Attributes:
        scheduler_url: where a node joins, e.g. "https://scheduler.example:8443"; plain http on loopback only.
        ca_file: PEM of the authority that signed the scheduler's certificate, relative to the
            configuration; None: the image's own trust.
        python: interpreter on the image that has this package.
        setup: commands that cloud-init runs before, as root.
        port: of the node agent.
        workdir: of the node agent.
        imds_poll_s: seconds between two looks at the metadata service.
        address: which address of the instance the scheduler uses. A public one is no weaker: agents speak TLS
            only, and the scheduler pins their certificates.
    """

    scheduler_url: Annotated[
        str, Field(pattern=r"^(https:/{2}[^/\s]+|http:/{2}(127\.[0-9.]+|localhost)(:\d+)?)$")
    ]
    ca_file: Path | None = None
    python: Annotated[str, Field(pattern=r"^/[^\s\"']+$")] = "/opt/spotweave/bin/python"
    setup: tuple[str, ...] = ()
    port: Annotated[int, Field(ge=1024, le=65535)] = 7070
    workdir: Annotated[str, Field(pattern=r"^/[^\s\"']+$")] = "/var/lib/spotweave"
    imds_poll_s: _Positive = 5.0
    address: Literal["private", "public"] = "private"


class AwsConfig(_Part):
    """The AWS provider's configuration.

    Attributes:
        regions: by name.
        instance_types: by name.
        node: how nodes start.
        instance_profile: name of the nodes' instance profile; None: they may call nothing.
        key_name: SSH key pair; None: nobody can log in.
        disk_gib: encrypted root disk (gp3).
        owner: tag of everything that is rented.
        tags: more tags.
        profile: of the SDK's configuration; None: the SDK's own chain decides.
        endpoint_url: of an emulator; None: AWS_ENDPOINT_URL, else AWS itself.
        catalogue: on-demand price list; None: the one that ships.
        prices_every_s: spot prices are asked for so often.
        cool_down_s: an offer that had no capacity is left alone so long; twice as long each further time,
        cool_down_most_s: up to this.
        visible_within_s: a new instance may stay unseen by describe so long.
        launch_s: expected seconds from the request to a ready node.
        state: folder of the availability record, relative to the configuration; None: it is not kept.
        events_queue: SQS queue that gets EC2's warnings of interruptions and its advice to leave: a name that
            each region has one of, or a name or URL by region. It is this deployment's alone. None: the
            scheduler hears of interruptions from nodes only.
    """

    regions: Annotated[dict[str, Region], Field(min_length=1)]
    instance_types: Annotated[dict[_Type, InstanceType], Field(min_length=1)]
    node: NodeConfig
    instance_profile: _Name | None = None
    key_name: str | None = None
    disk_gib: Annotated[int, Field(ge=8, le=16384)] = 50
    owner: Annotated[str, Field(max_length=256)] = ""
    tags: dict[Annotated[str, Field(min_length=1, max_length=128)], Annotated[str, Field(max_length=256)]] = (
        Field(default_factory=dict)
    )
    profile: str | None = None
    endpoint_url: Annotated[str, Field(pattern=r"^https?://")] | None = None
    catalogue: Path | None = None
    prices_every_s: _Positive = 60.0
    cool_down_s: _Positive = 120.0
    cool_down_most_s: _Positive = 3600.0
    visible_within_s: _Positive = 120.0
    launch_s: _Positive = 90.0
    state: Path | None = None
    events_queue: _Queue | dict[str, _Queue] | None = None
    folder: Annotated[Path, Field(exclude=True)] = Path()
    """Against which relative paths are meant; set by `load_config`."""

    @model_validator(mode="after")
    def _consistent(self) -> AwsConfig:
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

    @property
    def state_folder(self) -> Path | None:
        """Absolute."""
        return None if self.state is None else (self.folder / self.state).resolve()

    def prices(self) -> Catalogue:
        """The on-demand price list.

        Raises:
            AwsConfigError: if it cannot be read, or lacks a type that is configured.
        """
        try:
            catalogue = load_catalogue(None if self.catalogue is None else self.folder / self.catalogue)
            for region in self.regions:
                for name in self.instance_types:
                    catalogue.usd_hour(region, name)
                for other in self.regions.keys() - {region}:
                    catalogue.egress_usd_gb(region, other)
        except CatalogueError as error:
            raise AwsConfigError(str(error)) from error
        return catalogue

    def ca_pem(self) -> str | None:
        """Certificate that nodes trust. Raises AwsConfigError."""
        if self.node.ca_file is None:
            return None
        path = self.folder / self.node.ca_file
        try:
            return path.read_text(encoding="ascii")
        except (OSError, UnicodeDecodeError) as error:
            raise AwsConfigError(f"node.ca_file: cannot read {path}: {error}") from error


def load_config(path: Path) -> AwsConfig:
    """Read a YAML or JSON file. Raises AwsConfigError."""
    content = read_mapping(path, AwsConfigError, "regions, instance_types, node")
    try:
        return AwsConfig.model_validate({**content, "folder": path.parent.resolve()})
    except ValidationError as error:
        raise AwsConfigError(f"{path}: {first_mistake(error)}") from error
