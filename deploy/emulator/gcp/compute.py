"""Compute Engine's REST API: instances, operations and what is looked at before a launch.

https://cloud.google.com/compute/docs/reference/rest/v1
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any, TypeVar

from spotweave.deploy.emulator.gcp.world import (
    GceInstance,
    GceWorld,
    GcpEmulatorConfig,
    GcpError,
    Operation,
    denied,
    not_found,
)
from spotweave.deploy.emulator.world import Pool, Volume

_VALID_NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
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
        number = world.random.getrandbits(63)
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
        if _VALID_NAME.fullmatch(name) is None:
            raise GcpError("invalid", f"Invalid value for field 'resource.name': '{name}'.", 400)
        if self._world.find(zone, name) is not None:
            raise GcpError("alreadyExists", f"The resource '{place}/instances/{name}' already exists", 409)
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
            raise GcpError("notFound", f"The resource '{place}/machineTypes/{kind}' was not found", 404)
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


_Json = dict[str, Any]
Handler = Callable[[dict[str, str], Mapping[str, str], _Json], _Json]
"""Maps path parts, query and body to an answer; raises GcpError."""
ROOT = "/compute/v1/projects/"
_T = TypeVar("_T")
_PAGE, _MOST = 500, 500
_STATES = {
    "pending": "STAGING",
    "running": "RUNNING",
    "shutting-down": "STOPPING",
    "stopping": "STOPPING",
    "stopped": "TERMINATED",
}
_ZONE, _REGION, _NAME = r"zones/(?P<zone>[^/]+)", r"regions/(?P<region>[^/]+)", r"(?P<name>[^/]+)"
_ROUTES: tuple[tuple[str, str, str, str], ...] = (
    ("GET", r"aggregated/(?P<what>instances|operations)", "aggregated", "compute.{what}.list"),
    ("GET", rf"{_ZONE}/instances", "zonal", "compute.instances.list"),
    ("POST", rf"{_ZONE}/instances", "insert", "compute.instances.create"),
    ("GET", rf"{_ZONE}/instances/{_NAME}", "get", "compute.instances.get"),
    ("DELETE", rf"{_ZONE}/instances/{_NAME}", "delete", "compute.instances.delete"),
    ("GET", rf"{_ZONE}/operations", "zonal_operations", "compute.zoneOperations.list"),
    ("POST", rf"{_ZONE}/operations/{_NAME}/wait", "wait", "compute.zoneOperations.get"),
    ("GET", _ZONE, "zone", "compute.zones.get"),
    ("GET", rf"{_ZONE}/machineTypes/{_NAME}", "machine_type", "compute.machineTypes.get"),
    ("GET", rf"{_ZONE}/acceleratorTypes/{_NAME}", "accelerator_type", "compute.acceleratorTypes.get"),
    ("GET", _REGION, "region", "compute.regions.get"),
    ("GET", rf"{_REGION}/subnetworks/{_NAME}", "subnetwork", "compute.subnetworks.get"),
    ("GET", rf"global/images/{_NAME}", "image", "compute.images.get"),
)


class Compute:
    """Answers for one project. Hold the world's lock."""

    def __init__(self, config: GcpEmulatorConfig, world: GceWorld) -> None:
        self._config, self._world = config, world
        self._inserts = Inserts(config, world)
        self._zones = {pool.zone: pool.region for pool in config.pools}

    def region(self, path: str) -> str:
        """Region of a request; "" for all."""
        found = re.search(r"/(zones|regions)/([^/]+)", path)
        if found is None:
            return ""
        return found[2] if found[1] == "regions" else self._zones.get(found[2], "")

    def answer(
        self, method: str, path: str, query: Mapping[str, str], body: _Json, dark: Callable[[str], bool]
    ) -> _Json:
        """The answer to a request; `dark` tells whether a region does not answer now. Raises GcpError."""
        act, permission, found = self.route(method, path)
        # Images may be of any project.
        if found["project"] != self._config.project and act != "image":
            raise not_found(f"projects/{found['project']}")
        zone = found.get("zone")
        if zone is not None and zone not in self._zones:
            raise GcpError("invalid", f"Invalid value for field 'zone': '{zone}'. Unknown zone.", 400)
        if permission in self._config.denied and found["project"] == self._config.project:
            raise denied(permission, f"projects/{self._config.project}")
        if act == "aggregated":
            return self._aggregated(found["what"], query, dark)
        handler: Handler = getattr(self, f"_{act}")
        return handler(found, query, body)

    def route(self, method: str, path: str) -> tuple[str, str, dict[str, str]]:
        """What is done, the permission for it, e.g. "compute.instances.create", and parts of the path."""
        project, _, rest = path.removeprefix(ROOT).partition("/")
        for verb, pattern, act, permission in _ROUTES:
            found = re.fullmatch(pattern, rest)
            if found is not None and verb == method:
                about = {**found.groupdict(), "project": project}
                needed = permission.format_map(about).replace(".operations.", ".globalOperations.")
                return act, needed, about
        raise GcpError("notFound", f"{method} {path} is not emulated", 404)

    # Instances.

    def _insert(self, found: dict[str, str], query: Mapping[str, str], body: _Json) -> _Json:
        return self._operation(self._inserts.insert(found["zone"], query.get("requestId", ""), body))

    def _get(self, found: dict[str, str], query: Mapping[str, str], body: _Json) -> _Json:
        return self._instance(self._existing(found))

    def _delete(self, found: dict[str, str], query: Mapping[str, str], body: _Json) -> _Json:
        one = self._existing(found)
        self._world.terminate(one)
        made = self._world.operate("delete", found["zone"], found["name"], one.number, one.ended_s)
        self._world.settle()
        return self._operation(made)

    def _existing(self, found: dict[str, str]) -> GceInstance:
        one = self._world.find(found["zone"], found["name"])
        if one is None:
            raise not_found(self._link(found["zone"], "instances", found["name"]))
        return one

    def _zonal(self, found: dict[str, str], query: Mapping[str, str], body: _Json) -> _Json:
        return _paged(self._listed([found["zone"]], query), self._instance, query)

    def _zonal_operations(self, found: dict[str, str], query: Mapping[str, str], body: _Json) -> _Json:
        return _paged(self._operations([found["zone"]], query), self._operation, query)

    def _aggregated(self, what: str, query: Mapping[str, str], dark: Callable[[str], bool]) -> _Json:
        bright = [zone for zone, region in self._zones.items() if not dark(region)]
        if len(bright) < len(self._zones):
            # Without returnPartialSuccess one scope that does not answer fails the whole list.
            raise GcpError("backendError", "Some scopes could not be reached.", 503)
        if what == "instances":
            page = _paged(self._listed(bright, query), self._instance, query)
        else:
            page = _paged(self._operations(bright, query), self._operation, query)
        scopes: dict[str, _Json] = {}
        for item in page.pop("items", []):
            scope = f"zones/{item['zone'].rpartition('/')[2]}"
            scopes.setdefault(scope, {what: []})[what].append(item)
        return {**page, "items": scopes}

    def _listed(self, zones: Iterable[str], query: Mapping[str, str]) -> list[GceInstance]:
        shown = [one for zone in zones for one in self._world.shown(zone)]
        wanted = re.findall(r'labels\.([a-z0-9_-]+)\s*=\s*"?([^\s")]*)"?', query.get("filter", ""))
        return [one for one in shown if all(one.tags.get(key) == value for key, value in wanted)]

    def _operations(self, zones: Iterable[str], query: Mapping[str, str]) -> list[Operation]:
        kinds = re.findall(r'operationType\s*=\s*"?([^\s")]*)"?', query.get("filter", ""))
        within = set(zones)
        found = [one for one in self._world.operations.values() if one.zone in within]
        if kinds:
            found = [one for one in found if one.kind in kinds]
        if query.get("orderBy") == "creationTimestamp desc":
            found.sort(key=lambda one: -one.began_s)
        return found

    # What is looked at before a launch: zones, types, quotas, networks and images.

    def _zone(self, found: dict[str, str], query: Mapping[str, str], body: _Json) -> _Json:
        return {"name": found["zone"], "status": "UP"}

    def _machine_type(self, found: dict[str, str], query: Mapping[str, str], body: _Json) -> _Json:
        for pool in self._config.pools:
            if pool.zone == found["zone"] and pool.instance_type.partition("+")[0] == found["name"]:
                return {"name": found["name"], "guestCpus": pool.vcpus}
        raise not_found(self._place(found, "machineTypes"))

    def _accelerator_type(self, found: dict[str, str], query: Mapping[str, str], body: _Json) -> _Json:
        for pool in self._config.pools:
            attached = pool.instance_type.partition("+")[2].partition("x")[2]
            if pool.zone == found["zone"] and attached == found["name"]:
                return {"name": found["name"]}
        raise not_found(self._place(found, "acceleratorTypes"))

    def _place(self, found: dict[str, str], kind: str) -> str:
        return f"projects/{self._config.project}/zones/{found['zone']}/{kind}/{found['name']}"

    def _region(self, found: dict[str, str], query: Mapping[str, str], body: _Json) -> _Json:
        config, region = self._config, found["region"]
        if region not in config.regions:
            raise not_found(f"projects/{config.project}/regions/{region}")
        quotas = [
            {
                "metric": metric,
                "limit": config.quota_vcpus,
                "usage": self._world.used_vcpus(region, spot=spot),
            }
            for metric, spot in (("CPUS", False), ("PREEMPTIBLE_CPUS", True))
        ]
        quotas += [{"metric": metric, "limit": limit, "usage": 0} for metric, limit in config.quotas.items()]
        return {"name": region, "quotas": quotas}

    def _subnetwork(self, found: dict[str, str], query: Mapping[str, str], body: _Json) -> _Json:
        if found["name"] not in self._config.subnetworks:
            raise not_found(f"regions/{found['region']}/subnetworks/{found['name']}")
        return {"name": found["name"]}

    def _image(self, found: dict[str, str], query: Mapping[str, str], body: _Json) -> _Json:
        name = f"projects/{found['project']}/global/images/{found['name']}"
        if name not in self._config.images:
            raise not_found(name)
        labels = {"spotweave": version("spotweave").replace(".", "-")}
        return {"name": found["name"], "status": "READY", "diskSizeGb": "10", "labels": labels}

    # Operations.

    def _wait(self, found: dict[str, str], query: Mapping[str, str], body: _Json) -> _Json:
        one = self._world.operations.get(found["name"])
        if one is None or one.zone != found["zone"]:
            raise not_found(self._link(found["zone"], "operations", found["name"]))
        return self._operation(one)

    def left_s(self, path: str) -> float:
        """Seconds left of the time that a request waits."""
        found = re.search(r"/operations/([^/]+)/wait$", path)
        one = self._world.operations.get(found[1]) if found else None
        if one is None or one.done_s is None:
            return 0.0
        return max(0.0, one.done_s - self._world.clock.now())

    def _operation(self, one: Operation) -> _Json:
        now_s = self._world.clock.now()
        done = one.done_s is not None and one.done_s <= now_s
        found: _Json = {
            "name": one.name,
            "zone": self._link(one.zone),
            "operationType": one.kind,
            "targetLink": self._link(one.zone, "instances", one.target),
            "status": "DONE" if done else "RUNNING",
            "insertTime": _time(one.began_s),
            "startTime": _time(one.began_s),
        }
        if done and one.done_s is not None:
            found["endTime"] = _time(one.done_s)
            if one.error is not None:
                found["error"] = {"errors": [{"code": one.error.code, "message": one.error.message}]}
        return found

    def _link(self, zone: str, kind: str = "", name: str = "") -> str:
        root = f"https://www.googleapis.com/compute/v1/projects/{self._config.project}/zones/{zone}"
        return f"{root}/{kind}/{name}" if kind else root

    def _instance(self, one: GceInstance) -> _Json:
        told_s = self._world.told_s(one)
        status = "STOPPING" if told_s is not None else _STATES[one.state]
        found: _Json = {
            **{
                key: one.body[key] for key in ("labels", "scheduling", "guestAccelerators") if key in one.body
            },
            "name": one.instance_id,
            "zone": self._link(one.pool.zone),
            "machineType": self._link(
                one.pool.zone, "machineTypes", one.pool.instance_type.partition("+")[0]
            ),
            "status": status,
            "creationTimestamp": _time(one.stretches[0].start_s),
            "lastStartTimestamp": _time(one.launched_s),
            "networkInterfaces": [
                {
                    "networkIP": one.address,
                    "accessConfigs": [{"natIP": one.address, "type": "ONE_TO_ONE_NAT"}],
                }
            ],
        }
        if status == "TERMINATED" and one.stretches[-1].end_s is not None:
            found["lastStopTimestamp"] = _time(one.stretches[-1].end_s)
        return found


def _paged(found: Sequence[_T], shown: Callable[[_T], _Json], query: Mapping[str, str]) -> _Json:
    size = min(int(query.get("maxResults", _PAGE)), _MOST)
    start = int(query.get("pageToken") or 0)
    page: _Json = {"items": [shown(one) for one in found[start : start + size]]}
    if start + size < len(found):
        page["nextPageToken"] = str(start + size)
    return page


def _time(epoch_s: float) -> str:
    return datetime.fromtimestamp(epoch_s, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f+00:00")


def body_of(content: bytes) -> _Json:
    """Parse the body of a request. Raises GcpError."""
    try:
        found = json.loads(content or b"{}")
    except ValueError as error:
        raise GcpError("parseError", "Parse Error", 400) from error
    if not isinstance(found, dict):
        raise GcpError("parseError", "Parse Error", 400)
    return found
