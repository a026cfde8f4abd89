"""Configuration of the emulated AWS: a YAML or JSON file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar, Literal

from moto.ec2.models.instance_types import INSTANCE_TYPES
from pydantic import Field, PositiveInt

from spotweave.deploy.emulator.config import EmulatorConfig, PoolConfig
from spotweave.deploy.yamlfile import NotNegative, Part

Bucket = Literal["standard", "g", "p", "inf"]  # which of the account's vCPU limits a type counts against


class AwsPoolConfig(PoolConfig):
    """A pool of EC2; the price on demand is also the default of a spot request's maximum price."""

    zone: Annotated[str, Field(pattern=r"^[a-z]{2}(-[a-z]+)+-\d[a-z]$")]
    instance_type: Annotated[str, Field(pattern=r"^[a-z0-9-]+\.[a-z0-9-]+$")]

    @property
    def vcpus(self) -> int:
        """As moto's copy of AWS's own list has them."""
        return int(INSTANCE_TYPES[self.instance_type]["VCpuInfo"]["DefaultVCpus"])


class ImageConfig(Part):
    """A machine image that exists."""

    image_id: Annotated[str, Field(pattern=r"^ami-[0-9a-f]{8,17}$")]
    name: str = "emulated"
    architecture: Literal["x86_64", "arm64"] = "x86_64"
    root_device: str = "/dev/xvda"
    root_gib: PositiveInt = 8


class QuotaConfig(Part):
    """vCPUs that may run at once, per region."""

    standard: Annotated[int, Field(ge=0)] = 256
    g: Annotated[int, Field(ge=0)] = 64
    p: Annotated[int, Field(ge=0)] = 64
    inf: Annotated[int, Field(ge=0)] = 64


class AwsEmulatorConfig(EmulatorConfig):
    """The configuration of an emulated AWS."""

    disks: ClassVar[str] = "gp3_usd_gib_month"
    state: Path = Path("emulated-aws")
    pools: Annotated[tuple[AwsPoolConfig, ...], Field(min_length=1)]  # what can be rented
    images: tuple[ImageConfig, ...] = ()  # machine images besides those that moto knows
    access_keys: tuple[str, ...] | None = None  # key ids that are accepted; None: any
    denied: tuple[str, ...] = ()  # actions that the caller may not do, such as `ec2:RunInstances` or `s3:*`
    spot_quota: QuotaConfig = QuotaConfig()  # of the account
    on_demand_quota: QuotaConfig = QuotaConfig()  # of the account
    # of disks, by region; every region with pools must be there
    gp3_usd_gib_month: dict[str, NotNegative] = Field(
        default={"us-east-1": 0.08, "us-east-2": 0.08, "us-west-2": 0.08}
    )
    notice_s: NotNegative = 120.0
    rebalance_s: NotNegative = 60.0  # the rebalance recommendation comes so long before the notice
    # name of a queue that is made at the start and gets the EC2 events; None: only rules made through the API
    # are served
    events_queue: str | None = None

    def limit(self, *, spot: bool, instance_type: str) -> int:
        """Virtual cores that may run at once of all types that share this type's limit."""
        quota = self.spot_quota if spot else self.on_demand_quota
        return int(getattr(quota, bucket_of(instance_type)))


def bucket_of(instance_type: str) -> Bucket:
    """The vCPU limit that a type counts against.

    https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/ec2-instance-quotas.html
    """
    family = instance_type.partition(".")[0]
    if family.startswith("inf"):
        return "inf"
    if family.startswith("vt") or family[0] == "g":
        return "g"
    return "p" if family[0] == "p" else "standard"
