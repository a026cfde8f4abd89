"""What Compute Engine does with instances besides: operations, and a meter that runs to the very end."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from deploy.emulator.errors import CloudError
from deploy.emulator.gcp.config import GcpEmulatorConfig
from deploy.emulator.gcp.messages import GcpFailures
from deploy.emulator.market import Market
from deploy.emulator.world import Instance, Machines, World
from deploy.model.clock import Clock

# What the emulator knows of an instance of Compute Engine, and of operations.


@dataclass(kw_only=True)
class GceInstance(Instance):
    """An instance; `instance_id` is its name, which is given by the caller.

    Attributes:
        number: the id that Compute Engine gives it.
        body: as it was asked for.
    """

    cloud: ClassVar[str] = "gcp"
    number: int
    body: dict[str, Any]

    @property
    def metadata(self) -> dict[str, str]:
        """See Instance; below /computeMetadata/v1/instance/."""
        return {
            "id": str(self.number),
            "name": self.instance_id,
            "network-interfaces/0/ip": self.address,
            "machine-type": self.pool.instance_type.partition("+")[0],
            "zone": self.pool.zone,
            "scheduling/preemptible": "TRUE" if self.spot else "FALSE",
        }


@dataclass
class Operation:
    """A long-running operation of a zone.

    Attributes:
        kind: "insert", "start", "stop", "delete" or "compute.instances.preempted".
        target: name of the instance.
        request_id: of the request; "" for none.
        began_s: epoch seconds.
        done_s: when it is done; None: that is not known yet.
    """

    name: str
    number: int
    kind: str
    zone: str
    target: str
    target_number: int
    request_id: str
    began_s: float
    done_s: float | None
    error: CloudError | None = None
    asked: dict[str, Any] = field(default_factory=dict)


PREEMPTED = "compute.instances.preempted"


class GceWorld(World[GceInstance]):
    """See World.

    Attributes:
        operations: by name, in the order of their begin.
    """

    def __init__(self, config: GcpEmulatorConfig, clock: Clock, market: Market, machines: Machines) -> None:
        super().__init__(config, clock, market, machines, GcpFailures())
        self.config = config
        self.operations: dict[str, Operation] = {}
        self._shown: dict[tuple[str, str], GceInstance] = {}

    def new_number(self) -> int:
        """An id: 64 bits."""
        return self.random.getrandbits(63)

    def shown(self, zone: str) -> list[GceInstance]:
        """What a list of a zone may show now."""
        now_s = self.now_s()
        return [one for one in self._shown.values() if one.pool.zone == zone and one.first_seen_s <= now_s]

    def find(self, zone: str, name: str) -> GceInstance | None:
        """An instance that exists."""
        return self._shown.get((zone, name))

    def used_vcpus(self, region: str, *, spot: bool) -> int:
        """Virtual cores that count against a region's quota."""
        return sum(
            one.pool.vcpus
            for one in self._living.values()
            if one.occupies and one.region == region and one.spot is spot
        )

    def add(self, instance: GceInstance) -> None:
        """Launch it now."""
        self._shown[instance.pool.zone, instance.instance_id] = instance
        super().add(instance)

    def operate(
        self, kind: str, zone: str, target: str, number: int, done_s: float | None, request_id: str = ""
    ) -> Operation:
        """A new operation."""
        made = Operation(
            name=f"operation-{self.random.getrandbits(64):016x}",
            number=self.new_number(),
            kind=kind,
            zone=zone,
            target=target,
            target_number=number,
            request_id=request_id,
            began_s=self.now_s(),
            done_s=done_s,
        )
        self.operations[made.name] = made
        return made

    def told_s(self, instance: GceInstance) -> float | None:
        """Since when it is being preempted; None: it is not."""
        notice_s = instance.fate.notice_s
        return notice_s if notice_s is not None and notice_s <= self.clock.now() else None

    def paid_until_s(self, at_s: float) -> float:
        """See World: an instance is paid for until it is TERMINATED."""
        return at_s + self.config.shutdown_s

    def on_begin(self, instance: GceInstance, at_s: float) -> None:
        """See World: its first begin is its insert."""
        if len(instance.stretches) > 1:
            self.operate("start", instance.pool.zone, instance.instance_id, instance.number, at_s)

    def on_notice(self, instance: GceInstance, at_s: float) -> None:
        """See World."""
        made = self.operate(PREEMPTED, instance.pool.zone, instance.instance_id, instance.number, None)
        made.began_s = at_s

    def on_end(self, instance: GceInstance, at_s: float, final: str, *, by_provider: bool) -> None:
        """See World."""
        told = [
            one
            for one in self.operations.values()
            if one.kind == PREEMPTED and one.target_number == instance.number and one.done_s is None
        ]
        if final == "stopped" and not by_provider:
            done_s = self.paid_until_s(at_s)
            self.operate("stop", instance.pool.zone, instance.instance_id, instance.number, done_s)
        if by_provider and not told:
            told = [self.operate(PREEMPTED, instance.pool.zone, instance.instance_id, instance.number, None)]
            told[0].began_s = at_s
        for one in told:
            one.done_s = self.paid_until_s(at_s)

    def on_terminated(self, instance: GceInstance, at_s: float) -> None:
        """See World: its name may be used again."""
        self._shown.pop((instance.pool.zone, instance.instance_id), None)
