"""What the emulator knows of an EC2 instance, and of the request it came from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from deploy.emulator.records import Behaviour, Instance

STATES = {"pending": 0, "running": 16, "shutting-down": 32, "terminated": 48, "stopping": 64, "stopped": 80}
"""EC2's codes of an instance's states."""


@dataclass
class SpotRequest:
    """A spot instance request; `state` and `status` as EC2 names them."""

    request_id: str
    instance_id: str
    created_s: float
    persistent: bool
    max_usd_hour: float
    behaviour: Behaviour
    tags: dict[str, str]
    state: str = "active"
    status: str = "fulfilled"
    updated_s: float = 0.0


@dataclass(kw_only=True)
class Ec2Instance(Instance):
    """An instance of EC2; where it is a spot instance, `request` is there."""

    cloud: ClassVar[str] = "aws"
    reservation_id: str
    image_id: str
    architecture: str
    root_device: str
    subnet_id: str
    vpc_id: str
    groups: tuple[tuple[str, str], ...]
    profile_arn: str | None
    hibernates: bool
    request: SpotRequest | None = None
    reason: tuple[str, str] | None = None
    transition: str = ""

    @property
    def metadata(self) -> dict[str, str]:
        """See Instance; below /latest/meta-data/."""
        return {
            "local-ipv4": self.address,
            "ami-id": self.image_id,
            "instance-type": self.pool.instance_type,
            "instance-life-cycle": "spot" if self.spot else "on-demand",
            "placement/availability-zone": self.pool.zone,
            "placement/region": self.region,
        }
