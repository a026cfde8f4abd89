"""The live scheduler in an emulated AWS and an emulated Google Cloud, each with what it has of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from deploy.emulator.aws.account import group_of, subnet_of
from deploy.emulator.aws.app import App
from deploy.emulator.aws.config import AwsEmulatorConfig
from deploy.emulator.aws.config import region_of as aws_region_of
from deploy.emulator.aws.emulator import AwsEmulator
from deploy.emulator.gcp.config import GcpEmulatorConfig, region_of
from deploy.emulator.gcp.emulator import GcpEmulator
from deploy.model.clock import VirtualClock
from deploy.providers.aws import names as aws_names
from deploy.providers.aws.config import AwsConfig
from deploy.providers.aws.provider import AwsProvider
from deploy.providers.gcp import names
from deploy.providers.gcp.config import GcpConfig
from deploy.providers.gcp.provider import GcpProvider
from tests.deploy.emulator.aws.conftest import IMAGE as AWS_IMAGE
from tests.deploy.emulator.aws.transport import in_process
from tests.deploy.emulator.chaos import HOUR_S, Account, CloudWorld, Tags
from tests.deploy.emulator.gcp.transport import InProcess
from tests.deploy.emulator.traces import START_S
from tests.deploy.providers.gcp.project import IMAGE, PROJECT, TYPE, prices

ON_DEMAND_USD = 0.526
NODE = {"scheduler_url": "https://scheduler.example:8443"}


def aws_account(clock: VirtualClock, emulated: dict[str, Any], zones: Sequence[str]) -> Account:
    """An emulated AWS, in all of whose zones one type is rented."""
    config = AwsEmulatorConfig.model_validate({"images": [{"image_id": AWS_IMAGE}], **emulated})
    emulator = AwsEmulator(config, clock)
    session = in_process(App(emulator))
    regions = {
        region: {
            "image": AWS_IMAGE,
            "security_group": group_of(region),
            "subnets": {zone: subnet_of(zone) for zone in zones if aws_region_of(zone) == region},
        }
        for region in map(aws_region_of, zones)
    }
    rents = AwsConfig.model_validate(
        {
            "regions": regions,
            "instance_types": {AwsWorld.kind: {"quota": 20}},
            "node": NODE,
            "prices_every_s": 300.0,
            "launch_s": 30.0,
        }
    )
    return Account(emulator, rents, lambda: AwsProvider(rents, session, clock.now), AwsWorld.tags)


def gcp_account(
    folder: Path, clock: VirtualClock, emulated: dict[str, Any], zones: Sequence[str], hours: float
) -> Account:
    """An emulated Google Cloud, in all of whose zones one type is rented, and its prices for so long."""
    emulator = GcpEmulator(GcpEmulatorConfig.model_validate(emulated), clock)
    market = emulator.world.market
    # What Google publishes: every price, and since when.
    spot = {
        pool.zone: list(market.prices(pool, START_S, START_S + hours * HOUR_S))
        for pool in market.pools.values()
    }
    regions = {
        region: {"zones": [zone for zone in zones if region_of(zone) == region]}
        for region in map(region_of, zones)
    }
    rents = GcpConfig.model_validate(
        {
            "project": PROJECT,
            "regions": regions,
            "instance_types": {GcpWorld.kind: {"quota": 20}},
            "image": IMAGE,
            "node": NODE,
            "prices_file": str(prices(folder, spot, {TYPE: 4}, ON_DEMAND_USD)),
            "launch_s": 30.0,
        }
    )
    app = emulator.app()
    return Account(emulator, rents, lambda: GcpProvider(rents, InProcess(app), clock.now), GcpWorld.tags)


class OneCloud(CloudWorld):
    """A world of one of the clouds.

    Attributes:
        kind: the type that is rented.
        pool: what all of its pools have in common.
        quotas: of the account, more than enough.
        calls: limits of the interface.
        shutdown_paid_s: how long one that was stopped is paid for still.
        disk_usd_gib_month: of its disks.
    """

    kind: ClassVar[str]
    pool: ClassVar[Mapping[str, Any]]
    quotas: ClassVar[Mapping[str, Any]]
    calls: ClassVar[Mapping[str, Any]]
    shutdown_paid_s: ClassVar[float] = 0.0
    disk_usd_gib_month: ClassVar[float] = 0.08
    on_demand_usd_hour = ON_DEMAND_USD

    @classmethod
    def steady(cls, spot_usd_hour: float = 0.2) -> dict[str, Any]:
        """An emulator in which capacity never ends and the price stays."""
        pools = [{**cls.pool, "zone": zone, "spot_usd_hour": spot_usd_hour} for zone in cls.zones]
        return {"pools": pools, "launch_s": 25.0}


class AwsWorld(OneCloud):
    """EC2 shows what ended for an hour only.

    Of what ended unseen before that nobody knows when it did, and it is billed until it is missed. So nothing
    is hidden for longer than an hour, less the longest pause between two looks.
    """

    kind = "g4dn.xlarge"
    pool: ClassVar[Mapping[str, Any]] = {"instance_type": kind, "on_demand_usd_hour": ON_DEMAND_USD}
    quotas: ClassVar[Mapping[str, Any]] = {"spot_quota": {"g": 400}, "on_demand_quota": {"g": 400}}
    calls: ClassVar[Mapping[str, Any]] = {"launch_death": 0.02}
    tags = Tags(aws_names.TOKEN, aws_names.DEPLOYMENT, aws_names.JOB)
    zones = ("us-east-1a", "us-east-1b", "us-west-2a", "us-west-2b")
    regions = ("us-east-1", "us-west-2")
    troubles = (
        ("ec2:DescribeInstances", "empty", 0.7),
        ("ec2:*", "Unavailable", 0.7),
        ("ec2:*", "RequestLimitExceeded", 0.2),
        ("ec2:RunInstances", "lost", 0.5),
        ("ec2:RunInstances", "ACodeThatIsNew", 1.5),
        ("ec2:RunInstances", "InsufficientInstanceCapacity", 4.0),
        ("ec2:TerminateInstances", "ACodeThatIsNew", 0.5),
        ("ec2:Describe*", "UnauthorizedOperation", 0.7),
        ("ec2:TerminateInstances", "lost", 0.5),
    )

    def emulate(self, emulated: dict[str, Any]) -> Sequence[Account]:
        return [aws_account(self.clock, emulated, self.zones)]


class GcpWorld(OneCloud):
    """What ended is told by its operations, of any age."""

    kind = TYPE
    pool: ClassVar[Mapping[str, Any]] = {
        "instance_type": kind,
        "n_vcpus": 4,
        "on_demand_usd_hour": ON_DEMAND_USD,
    }
    quotas: ClassVar[Mapping[str, Any]] = {"quota_vcpus": 400}
    shutdown_paid_s = 5.0
    disk_usd_gib_month = 0.1
    # Compute Engine allows some tens of calls a second. Where a region is dark, each zone is a call.
    calls: ClassVar[Mapping[str, Any]] = {"calls_per_s": 0.4, "burst": 12}
    tags = Tags(names.TOKEN, names.DEPLOYMENT, names.JOB)
    zones = ("us-central1-a", "us-central1-b", "us-west1-a", "us-west1-b")
    regions = ("us-central1", "us-west1")
    troubles = (
        ("compute:instances.list", "empty", 0.7),
        ("compute:*", "backendError", 0.7),
        ("compute:*", "rateLimitExceeded", 0.2),
        ("compute:instances.create", "lost", 0.5),
        ("compute:instances.create", "ACodeThatIsNew", 1.5),
        ("compute:instances.create", "ZONE_RESOURCE_POOL_EXHAUSTED", 4.0),
        ("compute:instances.delete", "ACodeThatIsNew", 0.5),
        ("compute:*.list", "forbidden", 0.7),
        ("compute:instances.delete", "lost", 0.5),
    )

    def emulate(self, emulated: dict[str, Any]) -> Sequence[Account]:
        return [gcp_account(self.folder, self.clock, emulated, self.zones, 1200.0)]


CLOUDS: dict[str, type[OneCloud]] = {"aws": AwsWorld, "gcp": GcpWorld}
