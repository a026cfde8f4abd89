"""What the emulator knows of an instance and of its disks, in any cloud."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from deploy.emulator.market import Pool
from deploy.providers.local.records import Fate

Behaviour = Literal["terminate", "stop", "hibernate"]


@dataclass
class Stretch:
    """A time that is paid for.

    Attributes:
        start_s: whole epoch seconds.
        end_s: likewise; None while it lasts.
        by_provider: whether the cloud ended it.
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


@dataclass(kw_only=True)
class Instance:
    """An instance.

    Attributes:
        cloud: whose metadata service it has: "aws" or "gcp".
        pool: its type and zone.
        spot: whether it is a spot instance.
        max_usd_hour: spot: above this price it is taken away.
        launched_s: of the latest start, as described.
        first_seen_s: before, it is not described.
        behaviour: when it is interrupted.
        state: "pending", "running", "shutting-down" and "terminated", or "stopping" and "stopped".
        stretches: what is paid for.
        fate: what the market has in store for it.
        generation: changes whenever what was planned for it is void.
        dies: it ends instead of running.
    """

    cloud: ClassVar[str]
    instance_id: str
    region: str
    pool: Pool
    spot: bool
    client_token: str
    address: str
    user_data: bytes
    tags: dict[str, str]
    launched_s: float
    first_seen_s: float
    volumes: list[Volume]
    max_usd_hour: float = 0.0
    behaviour: Behaviour = "terminate"
    state: str = "pending"
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
    def metadata(self) -> dict[str, str]:
        """What its metadata service tells besides its end, by path."""
        return {}
