"""Offers and instances, as providers describe them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from spotweave.envs.simulation.snapshot import REFERENCE_HETERO

Market = Literal["owned", "on_demand", "spot"]
SHORTEST_MONTH_S = 28 * 86_400.0


@dataclass(frozen=True)
class Offer:
    """Something that can be rented, as it is now."""

    offer_id: str  # unique over all providers and stable over time, e.g. "aws/us-east-1a/g5.xlarge/spot"
    provider: str  # "local", "aws", "gcp", "azure", "simulated"
    region: str  # of the provider
    zone: str  # "" where the offer is for the whole region
    instance_type: str  # the provider's name
    market: Market  # how it is rented
    vcpus: int  # of one instance
    memory_gib: float  # of one instance
    gpu: str | None  # model of its GPUs, None for none
    speed: float  # relative to the reference instance type (1.0), larger is faster
    price_usd_hour: float  # of one instance, now
    on_demand_usd_hour: float  # the same type on demand in that region
    available: bool  # whether a launch is believed possible now
    quota: int  # instances that may run at once
    gpus: int = 0  # how many one instance has
    gpu_memory_gib: float = 0.0  # of each of them
    up_ratio: float = 1.0  # share of the latest 24 h in which it was available
    spell_s: float = 0.0  # seconds since availability last changed
    mean_up_s: float = 0.0  # mean length of the up-spells of the latest 7 days (0: none seen, or not spot)
    launch_s: float = 60.0  # expected seconds from the request to a ready node
    notice_s: float = 0.0  # seconds of interruption notice
    free_first_s: float = 0.0  # an instance that the provider interrupts earlier costs nothing
    billing_minimum_s: float = 60.0  # every instance costs at least this many seconds
    # of the disk that an instance has from its launch to its end, also while it is stopped
    disk_usd_month: float = 0.0
    reason: str = ""  # why it is not available; "" where it is
    # whether what does not fit now may wait inside it (an owned cluster with a queue of its own)
    queues: bool = False
    halted: int = 0  # instances that wait inside it now
    # (epoch seconds, USD per hour) of its latest prices by rising time, up to now, where the provider dates
    # them; () where it does not: then a price holds from when it was seen
    price_steps: tuple[tuple[float, float], ...] = field(default=(), repr=False)

    def least_usd(self, seconds: float) -> float:
        """What an instance costs that is kept so long, at its price of now and with its disk, at most."""
        billed_s = max(self.billing_minimum_s, seconds)
        return self.price_usd_hour * billed_s / 3600 + self.disk_usd_month * billed_s / SHORTEST_MONTH_S


class InstanceState(StrEnum):
    """Life cycle of an instance; states only advance, also where a cloud would let it go back."""

    REQUESTED = "requested"
    """The intent is in the store; the provider may or may not have it yet."""
    LAUNCHING = "launching"
    """The provider has it; its node agent has not answered yet."""
    RUNNING = "running"
    STOPPED = "stopped"
    """Not by us: nothing runs on it, or will, and its disk goes on costing."""
    STOPPING = "stopping"
    """We are ending it."""
    TERMINATED = "terminated"

    @property
    def live(self) -> bool:
        """Whether the instance exists, or may exist."""
        return self is not InstanceState.TERMINATED


@dataclass(frozen=True)
class LaunchRequest:
    """What a provider is asked for."""

    client_token: str  # makes it idempotent: the same token never gives a second instance
    offer_id: str
    deployment: str  # name of the scheduler's deployment; tags every instance
    job_id: str  # for tags, as the task
    task: str
    # secret with which the scheduler talks to the node agent. Never logged.
    node_token: str = field(repr=False)


@dataclass(frozen=True)
class InstanceReport:
    """An instance as its provider describes it now. Terminated ones are reported for at least an hour."""

    instance_id: str  # the provider's name for it, unique within the provider
    client_token: str  # of the request it came from
    offer_id: str
    address: str  # IP address of its node, "" before it has one
    node_port: int  # port of its node agent, 0 before it has one
    state: InstanceState  # LAUNCHING, RUNNING, STOPPED, STOPPING or TERMINATED
    launched_s: float  # epoch seconds when billing began: of the latest start, if it was stopped before
    ended_s: float | None = None  # epoch seconds when billing ended; None while it lasts
    by_provider: bool = False  # whether the provider ended it (an interruption)
    # epoch seconds at which the provider said it will end it; None without notice
    notice_s: float | None = None
    rebalance: bool = False  # whether the provider recommends to leave it
    # epoch seconds at which it stopped, kept once it has ended; None if it runs or the provider does not say
    stopped_s: float | None = None
    tags: Mapping[str, str] = field(default_factory=dict)  # deployment, job_id, task
    # of its node agent, PEM, where the provider knows it; "": the node shows it when it joins
    certificate: str = field(default="", repr=False)


# How far the speed of an instance counts for a task (Liu 2022, section 5.3).


ZETA = 10.0
"""A sensitivity of 1 lets speeds count within so much of a task's reference."""


def hetero_of(speed: float) -> float:
    """A speed on the scale of the snapshot, without the noise of the division that made it."""
    return round(REFERENCE_HETERO * speed, 6)


def slowness(speed: float, reference_speed: float, sensitivity: float | None) -> float:
    """How many times as long as at the reference speed a task takes.

    Args:
        speed: of the instance.
        reference_speed: that the task's standard time refers to.
        sensitivity: how far other speeds count; None: all the way.
    """
    reference, effective = hetero_of(reference_speed), hetero_of(speed)
    if sensitivity is not None:
        width = ZETA * sensitivity
        effective = min(max(effective, reference - width, 1.0), reference + width)
    return reference / effective
