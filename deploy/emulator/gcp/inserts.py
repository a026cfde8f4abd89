"""instances.insert: from a request to an operation, and to an instance where there is room for it.

What there is no capacity or quota for is an error of the operation, minutes later on the real service; see
https://cloud.google.com/compute/docs/troubleshooting/troubleshooting-resource-availability
"""

from __future__ import annotations

import json
import re
import uuid
from typing import Any

from deploy.emulator.gcp.config import GcpEmulatorConfig
from deploy.emulator.gcp.messages import GcpError, not_found
from deploy.emulator.gcp.world import GceInstance, GceWorld, Operation
from deploy.emulator.market import Pool
from deploy.emulator.world import Volume

_NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
_LABEL = re.compile(r"[a-z0-9_-]{0,63}")
_MOST_BYTES = 262144
_ACTIONS = {"STOP": "stop", "DELETE": "terminate"}


class Inserts:
    """Launches into a world. Hold its lock."""

    def __init__(self, config: GcpEmulatorConfig, world: GceWorld) -> None:
        self._config, self._world = config, world
        self._requests: dict[tuple[str, str], Operation] = {}

    def insert(self, zone: str, request_id: str, body: dict[str, Any]) -> Operation:
        """The operation; of a request that was made before, that one's. Raises GcpError."""
        if request_id:
            _require_uuid(request_id)
            before = self._requests.get((zone, request_id))
            if before is not None:
                return before
        pool = self._checked(zone, body)
        name = body["name"]
        world = self._world
        number = world.new_number()
        error = self._refusal(pool, spot=_is_spot(body))
        made = world.operate("insert", zone, name, number, world.now_s() + self._config.operation_s)
        made.error = error
        if error is None:
            world.add(self._instance(pool, name, number, request_id, body))
        if request_id:
            self._requests[zone, request_id] = made
        return made

    def _checked(self, zone: str, body: dict[str, Any]) -> Pool:
        """The pool that was asked for. Raises GcpError, without any effect."""
        name, place = str(body.get("name", "")), f"projects/{self._config.project}/zones/{zone}"
        if _NAME.fullmatch(name) is None:
            raise GcpError("invalid", f"Invalid value for field 'resource.name': '{name}'.", 400)
        if self._world.find(zone, name) is not None:
            raise GcpError(
                "alreadyExists",
                f"The resource '{place}/instances/{name}' already exists",
                409,
            )
        for key, value in body.get("labels", {}).items():
            if _LABEL.fullmatch(str(value)) is None or _LABEL.fullmatch(key) is None:
                raise GcpError("invalid", f"Invalid value for field 'resource.labels': '{key}={value}'", 400)
        if len(json.dumps(body.get("metadata", {}))) > _MOST_BYTES:
            raise GcpError("invalid", "The total size of metadata exceeds 262144 bytes", 400)
        for disk in body.get("disks", []):
            image = str(disk.get("initializeParams", {}).get("sourceImage", ""))
            if image and image not in self._config.images:
                raise not_found(image)
        for network in body.get("networkInterfaces", []):
            subnetwork = str(network.get("subnetwork", "default")).rpartition("/")[2]
            if subnetwork not in self._config.subnetworks:
                raise not_found(f"subnetworks/{subnetwork}")
        kind = str(body.get("machineType", "")).rpartition("/")[2]
        for attached in body.get("guestAccelerators", []):
            gpu = str(attached["acceleratorType"]).rpartition("/")[2]
            kind += f"+{attached['acceleratorCount']}x{gpu}"
        scheduling = body.get("scheduling", {})
        if ("+" in kind or kind.startswith(("a2-", "g2-"))) and scheduling.get(
            "onHostMaintenance"
        ) != "TERMINATE":
            raise GcpError("invalid", "Instances with guest accelerators do not support live migration.", 400)
        pool = self._world.market.find(zone, kind)
        if pool is None:
            raise GcpError(
                "notFound",
                f"The resource '{place}/machineTypes/{kind}' was not found",
                404,
            )
        return pool

    def _refusal(self, pool: Pool, *, spot: bool) -> GcpError | None:
        """Why an operation fails; None if there is room."""
        world, config = self._world, self._config
        if world.faults.strikes("launch failure", world.faults.config.launch_failure):
            return _exhausted(config.project, pool)
        if world.used_vcpus(pool.region, spot=spot) + pool.vcpus > config.quota_vcpus:
            metric = "PREEMPTIBLE_CPUS" if spot else "CPUS"
            return GcpError(
                "QUOTA_EXCEEDED",
                f"Quota '{metric}' exceeded.  Limit: {config.quota_vcpus:.1f} in region {pool.region}.",
                403,
            )
        if spot and not world.market.has_spot(pool, world.clock.now()):
            return _exhausted(config.project, pool)
        most = pool.spot_capacity if spot else pool.on_demand_capacity
        return _exhausted(config.project, pool) if world.used(pool, spot=spot) >= most else None

    def _instance(
        self, pool: Pool, name: str, number: int, request_id: str, body: dict[str, Any]
    ) -> GceInstance:
        world = self._world
        now_s = world.now_s()
        spot = _is_spot(body)
        items = {one["key"]: str(one["value"]) for one in body.get("metadata", {}).get("items", [])}
        action = body.get("scheduling", {}).get("instanceTerminationAction", "STOP")
        return GceInstance(
            instance_id=name,
            region=pool.region,
            pool=pool,
            spot=spot,
            client_token=request_id,
            address=world.machines.address({one.address for one in world.living()}),
            user_data=items.get("user-data", "").encode(),
            tags=dict(body.get("labels", {})),
            launched_s=now_s,
            first_seen_s=now_s + world.faults.config.describe_delay_s,
            volumes=[
                Volume(
                    volume_id=f"{name}-{number}",
                    size_gib=int(disk.get("initializeParams", {}).get("diskSizeGb", 10)),
                    delete_on_termination=bool(disk.get("autoDelete", False)),
                    created_s=now_s,
                )
                for disk in body.get("disks", [])
            ],
            # Spot VMs have no maximum price: capacity alone ends them.
            max_usd_hour=float("inf") if spot else 0.0,
            behaviour="stop" if _ACTIONS[action] == "stop" else "terminate",
            number=number,
            body=body,
        )


def _is_spot(body: dict[str, Any]) -> bool:
    return bool(body.get("scheduling", {}).get("provisioningModel") == "SPOT")


def _require_uuid(text: str) -> None:
    try:
        valid = uuid.UUID(text).int != 0
    except ValueError:
        valid = False
    if not valid:
        raise GcpError("invalid", f"Invalid value for field 'requestId': '{text}'. Expected a UUID.", 400)


def _exhausted(project: str, pool: Pool) -> GcpError:
    return GcpError(
        "ZONE_RESOURCE_POOL_EXHAUSTED",
        f"The zone 'projects/{project}/zones/{pool.zone}' does not have enough resources available to "
        "fulfill the request.  Try a different zone, or try again later.",
        503,
    )
