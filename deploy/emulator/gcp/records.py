"""What the emulator knows of an instance of Compute Engine, and of operations."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from deploy.emulator.errors import CloudError
from deploy.emulator.records import Instance


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
