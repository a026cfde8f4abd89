"""Offers and instances, as providers describe them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

Market = Literal["owned", "on_demand", "spot"]
SHORTEST_MONTH_S = 28 * 86_400.0


@dataclass(frozen=True)
class Offer:
    """Something that can be rented, as it is now.

    Attributes:
        offer_id: unique over all providers and stable over time, e.g. "aws/us-east-1a/g5.xlarge/spot".
        provider: "local", "aws", "gcp", "azure", "simulated".
        region: of the provider.
        zone: "" where the offer is for the whole region.
        instance_type: the provider's name.
        market: how it is rented.
        vcpus: of one instance.
        memory_gib: of one instance.
        gpu: model of its GPUs, None for none.
        gpus: how many one instance has.
        gpu_memory_gib: of each of them.
        speed: relative to the reference instance type (1.0), larger is faster.
        price_usd_hour: of one instance, now.
        on_demand_usd_hour: the same type on demand in that region.
        available: whether a launch is believed possible now.
        quota: instances that may run at once.
        up_ratio: share of the latest 24 h in which it was available.
        spell_s: seconds since availability last changed.
        mean_up_s: mean length of the up-spells of the latest 7 days (0: none seen, or not spot).
        launch_s: expected seconds from the request to a ready node.
        notice_s: seconds of interruption notice.
        free_first_s: an instance that the provider interrupts earlier costs nothing.
        billing_minimum_s: every instance costs at least this many seconds.
        disk_usd_month: of the disk that an instance has from its launch to its end, also while it is stopped.
        reason: why it is not available; "" where it is.
        queues: whether what does not fit now may wait inside it (an owned cluster with a queue of its own).
        halted: instances that wait inside it now.
        price_steps: (epoch seconds, USD per hour) of its latest prices by rising time, up to now, where the
            provider dates them; () where it does not: then a price holds from when it was seen.
    """

    offer_id: str
    provider: str
    region: str
    zone: str
    instance_type: str
    market: Market
    vcpus: int
    memory_gib: float
    gpu: str | None
    speed: float
    price_usd_hour: float
    on_demand_usd_hour: float
    available: bool
    quota: int
    gpus: int = 0
    gpu_memory_gib: float = 0.0
    up_ratio: float = 1.0
    spell_s: float = 0.0
    mean_up_s: float = 0.0
    launch_s: float = 60.0
    notice_s: float = 0.0
    free_first_s: float = 0.0
    billing_minimum_s: float = 60.0
    disk_usd_month: float = 0.0
    reason: str = ""
    queues: bool = False
    halted: int = 0
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
    """What a provider is asked for.

    Attributes:
        client_token: makes it idempotent: the same token never gives a second instance.
        offer_id: what to rent.
        deployment: name of the scheduler's deployment; tags every instance.
        job_id: for tags.
        task: for tags.
        node_token: secret with which the scheduler talks to the node agent. Never logged.
    """

    client_token: str
    offer_id: str
    deployment: str
    job_id: str
    task: str
    node_token: str = field(repr=False)


@dataclass(frozen=True)
class InstanceReport:
    """An instance as its provider describes it now. Terminated ones are reported for at least an hour.

    Attributes:
        instance_id: the provider's name for it, unique within the provider.
        client_token: of the request it came from.
        offer_id: what it is.
        address: IP address of its node, "" before it has one.
        node_port: port of its node agent, 0 before it has one.
        state: LAUNCHING, RUNNING, STOPPED, STOPPING or TERMINATED.
        launched_s: epoch seconds when billing began: of the latest start, if it was stopped before.
        ended_s: epoch seconds when billing ended; None while it lasts.
        by_provider: whether the provider ended it (an interruption).
        notice_s: epoch seconds at which the provider said it will end it; None without notice.
        rebalance: whether the provider recommends to leave it.
        stopped_s: epoch seconds since which it is stopped, or was until it ended; None where it is not, or
            nobody says.
        tags: deployment, job_id, task.
        certificate: of its node agent, PEM, where the provider knows it; "": the node shows it when it joins.
    """

    instance_id: str
    client_token: str
    offer_id: str
    address: str
    node_port: int
    state: InstanceState
    launched_s: float
    ended_s: float | None = None
    by_provider: bool = False
    notice_s: float | None = None
    rebalance: bool = False
    stopped_s: float | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    certificate: str = field(default="", repr=False)
