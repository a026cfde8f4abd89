"""What Compute Engine does with instances besides: operations, and a meter that runs to the very end."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import Field, PositiveInt, model_validator
from werkzeug.wrappers import Response

from spotweave.deploy.emulator.config import CloudError, EmulatorConfig, PoolConfig
from spotweave.deploy.emulator.world import Instance, World
from spotweave.deploy.model.clock import Clock
from spotweave.deploy.yamlfile import NotNegative


def json_answer(found: Mapping[str, object], status: int = 200) -> Response:
    """An object of JSON."""
    return Response(json.dumps(found), status, content_type="application/json; charset=UTF-8")


# Errors as Google's APIs answer them.
#
# https://cloud.google.com/apis/design/errors and
# https://cloud.google.com/compute/docs/troubleshooting/troubleshooting-api-errors

_STATUSES = {"backendError": 503, "internalError": 500, "rateLimitExceeded": 403, "authError": 401}


class GcpError(CloudError):
    """A refusal; `code` is the reason of the error's first entry."""

    def json(self) -> dict[str, Any]:
        """The body of the answer."""
        return {
            "error": {
                "code": self.status,
                "message": self.message,
                "errors": [{"message": self.message, "domain": "global", "reason": self.code}],
            }
        }


def gcp_failure(service: str, kind: str) -> GcpError:
    """How Google Cloud says what goes wrong on demand; see `deploy.emulator.config.Failure`."""
    if kind == "throttled":
        status = 429 if service == "storage" else 403
        return GcpError("rateLimitExceeded", f"Rate Limit Exceeded for {service}", status)
    if kind == "internal":
        return GcpError("internalError", "Internal error", 500)
    if kind == "unavailable":
        return GcpError("backendError", "The service is currently unavailable.", 503)
    return GcpError(kind, "It is so for a while.", _STATUSES.get(kind, 400))


def not_found(what: str) -> GcpError:
    """A resource."""
    return GcpError("notFound", f"The resource '{what}' was not found", 404)


def denied(permission: str, what: str) -> GcpError:
    """A permission."""
    return GcpError("forbidden", f"Required '{permission}' permission for '{what}'", 403)


def disabled(api: str, project: str) -> GcpError:
    """An API, such as "compute.googleapis.com", that the project has not enabled."""
    text = (
        f"The API has not been used in project {project} before or it is disabled. Enable it by visiting "
        f"https://console.developers.google.com/apis/api/{api}/overview?project={project} then retry."
    )
    return GcpError("accessNotConfigured", text, 403)


@dataclass(kw_only=True)
class GceInstance(Instance):
    """An instance; its id is the name that the caller gives it, `number` the one that Compute Engine does."""

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
    """A long-running operation of a zone on an instance; when it is done may not be known yet."""

    name: str
    kind: str
    zone: str
    target: str
    target_number: int
    began_s: float
    done_s: float | None
    error: CloudError | None = None


PREEMPTED = "compute.instances.preempted"


class GceWorld(World[GceInstance]):
    """See World."""

    def __init__(self, config: GcpEmulatorConfig, clock: Clock | None) -> None:
        super().__init__(config, clock, gcp_failure)
        self.config = config
        self.operations: dict[str, Operation] = {}
        self._shown: dict[tuple[str, str], GceInstance] = {}

    def shown(self, zone: str) -> list[GceInstance]:
        """Instances that a list of a zone may show now."""
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

    def operate(self, kind: str, zone: str, target: str, number: int, done_s: float | None) -> Operation:
        """A new operation."""
        made = Operation(
            name=f"operation-{self.random.getrandbits(64):016x}",
            kind=kind,
            zone=zone,
            target=target,
            target_number=number,
            began_s=self.now_s(),
            done_s=done_s,
        )
        self.operations[made.name] = made
        return made

    def _operate_on(self, kind: str, one: GceInstance, done_s: float | None) -> Operation:
        return self.operate(kind, one.pool.zone, one.instance_id, one.number, done_s)

    def told_s(self, instance: GceInstance) -> float | None:
        """Since when it is being preempted; None: it is not."""
        notice_s = instance.fate.notice_s
        return notice_s if notice_s is not None and notice_s <= self.clock.now() else None

    def _paid_until_s(self, at_s: float) -> float:
        """See World: an instance is paid for until it is TERMINATED."""
        return at_s + self.config.shutdown_s

    def _on_begin(self, instance: GceInstance, at_s: float) -> None:
        """See World: its first begin is its insert."""
        if len(instance.stretches) > 1:
            self._operate_on("start", instance, at_s)

    def _on_notice(self, instance: GceInstance, at_s: float) -> None:
        self._operate_on(PREEMPTED, instance, None).began_s = at_s

    def _on_end(self, instance: GceInstance, at_s: float, final: str, *, by_provider: bool) -> None:
        told = [
            one
            for one in self.operations.values()
            if one.kind == PREEMPTED and one.target_number == instance.number and one.done_s is None
        ]
        if final == "stopped" and not by_provider:
            self._operate_on("stop", instance, self._paid_until_s(at_s))
        if by_provider and not told:
            told = [self._operate_on(PREEMPTED, instance, None)]
            told[0].began_s = at_s
        for one in told:
            one.done_s = self._paid_until_s(at_s)

    def _on_turn(self, instance: GceInstance, at_s: float) -> None:
        """See World: when it is gone its name may be used again."""
        if instance.state == "terminated":
            self._shown.pop((instance.pool.zone, instance.instance_id), None)


# What is emulated of Google Cloud: a YAML or JSON file.


class GcpPoolConfig(PoolConfig):
    """A pool of Compute Engine. Its prices are of a whole instance, with its GPUs."""

    zone: Annotated[str, Field(pattern=r"^[a-z]+-[a-z]+\d+-[a-z]$")]
    # a machine type, and what is attached to it: `n1-standard-4+1xnvidia-tesla-t4`
    instance_type: Annotated[str, Field(pattern=r"^[a-z0-9-]+(\+\d+x[a-z0-9-]+)?$")]
    n_vcpus: PositiveInt  # virtual cores of one instance

    @property
    def vcpus(self) -> int:
        """See PoolConfig."""
        return self.n_vcpus


class GcpEmulatorConfig(EmulatorConfig):
    """The configuration of an emulated Google Cloud project."""

    disks: ClassVar[str] = "disk_usd_gib_month"
    state: Path = Path("emulated-gcp")
    # the only one that there is
    project: Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{4,28}[a-z0-9]$")] = "spotweave-emulated"
    pools: Annotated[tuple[GcpPoolConfig, ...], Field(min_length=1)]  # what can be rented
    # names of images, as `projects/P/global/images/I`, that exist
    images: tuple[str, ...] = ("projects/spotweave-emulated/global/images/spotweave",)
    subnetworks: tuple[str, ...] = ("default",)  # names of subnetworks that each region has
    # permissions that the caller does not have, such as `compute.instances.create`
    denied: tuple[str, ...] = ()
    disabled: tuple[str, ...] = ()  # APIs that are not enabled, such as `compute.googleapis.com`
    token: str | None = None  # what callers must show; None: anything, also nothing
    # cores that may run at once in a region, spot and on demand apart
    quota_vcpus: Annotated[int, Field(ge=0)] = 256
    # further quotas of each region, by metric, such as `NVIDIA_T4_GPUS`; they are shown only
    quotas: dict[str, int] = Field(default_factory=dict)
    notice_s: NotNegative = 30.0
    # from an insert's request until its operation is done. In virtual time that passes.
    operation_s: NotNegative = 1.0
    # of disks, by region
    disk_usd_gib_month: dict[str, NotNegative] = Field(
        default={"us-central1": 0.1, "us-east1": 0.1, "us-west1": 0.1, "europe-west4": 0.11}
    )

    @model_validator(mode="after")
    def _consistent(self) -> GcpEmulatorConfig:
        if self.faults.launch_death:
            raise ValueError("faults.launch_death: what Compute Engine cannot launch is an operation's error")
        return self
