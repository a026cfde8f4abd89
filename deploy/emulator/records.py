"""What the emulator knows of an instance, of its disks, and of the request it came from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from deploy.emulator.market import Pool
from deploy.providers.local.records import Fate

Behaviour = Literal["terminate", "stop", "hibernate"]

STATES = {"pending": 0, "running": 16, "shutting-down": 32, "terminated": 48, "stopping": 64, "stopped": 80}
"""EC2's codes of an instance's states."""


@dataclass
class Stretch:
    """A time that is paid for.

    Attributes:
        start_s: whole epoch seconds.
        end_s: likewise; None while it lasts.
        by_provider: whether EC2 ended it.
    """

    start_s: float
    end_s: float | None = None
    by_provider: bool = False


@dataclass
class Volume:
    """A disk. It exists from its instance's launch on."""

    volume_id: str
    device: str
    size_gib: int
    kind: str
    encrypted: bool
    delete_on_termination: bool
    tags: dict[str, str]
    zone: str
    created_s: float
    instance_id: str | None
    deleted_s: float | None = None


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


@dataclass
class Instance:
    """An instance.

    Attributes:
        pool: its type and zone.
        spot: whether it is a spot instance; then `request` is there.
        max_usd_hour: spot: above this price it is taken away.
        launched_s: of the latest start, as described (`LaunchTime`).
        first_seen_s: before, it is not described.
        stretches: what is paid for.
        fate: what the market has in store for it.
        generation: changes whenever what was planned for it is void.
        dies: it ends instead of running.
    """

    instance_id: str
    region: str
    pool: Pool
    spot: bool
    reservation_id: str
    client_token: str
    image_id: str
    architecture: str
    root_device: str
    subnet_id: str
    vpc_id: str
    groups: tuple[tuple[str, str], ...]
    profile_arn: str | None
    address: str
    user_data: bytes
    tags: dict[str, str]
    hibernates: bool
    launched_s: float
    first_seen_s: float
    volumes: list[Volume]
    max_usd_hour: float = 0.0
    request: SpotRequest | None = None
    fleet_id: str | None = None
    state: str = "pending"
    reason: tuple[str, str] | None = None
    transition: str = ""
    stretches: list[Stretch] = field(default_factory=list)
    fate: Fate = field(default_factory=Fate)
    generation: int = 0
    dies: bool = False
    ended_s: float | None = None
    running_s: float | None = None

    @property
    def occupies(self) -> bool:
        """Whether it takes capacity and quota."""
        return self.state in ("pending", "running")

    @property
    def behaviour(self) -> Behaviour:
        """When it is interrupted."""
        return self.request.behaviour if self.request else "terminate"
