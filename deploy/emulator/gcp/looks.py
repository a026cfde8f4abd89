"""What is looked at before a launch: zones, types, quotas, networks and images."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from deploy.emulator.gcp.config import GcpEmulatorConfig
from deploy.emulator.gcp.errors import not_found
from deploy.emulator.gcp.world import GceWorld

_Json = dict[str, Any]
Handler = Callable[[dict[str, str], Mapping[str, str], _Json], _Json]
"""From the parts of a path, the query and the body to the answer; raises GcpError."""


def table(config: GcpEmulatorConfig, world: GceWorld) -> dict[str, Handler]:
    """By the name of what is looked at."""

    def region(found: dict[str, str], *_: object) -> _Json:
        if found["region"] not in config.regions:
            raise not_found(f"projects/{config.project}/regions/{found['region']}")
        quotas = [
            {
                "metric": metric,
                "limit": config.quota_vcpus,
                "usage": world.used_vcpus(found["region"], spot=spot),
            }
            for metric, spot in (("CPUS", False), ("PREEMPTIBLE_CPUS", True))
        ]
        quotas += [{"metric": metric, "limit": limit, "usage": 0} for metric, limit in config.quotas.items()]
        return {"name": found["region"], "quotas": quotas}

    def subnetwork(found: dict[str, str], *_: object) -> _Json:
        if found["name"] not in config.subnetworks:
            raise not_found(f"regions/{found['region']}/subnetworks/{found['name']}")
        return {"name": found["name"]}

    return {
        "zone": lambda found, *_: {"name": found["zone"], "status": "UP"},
        "machine_type": lambda found, *_: _machine_type(config, found),
        "accelerator_type": lambda found, *_: _accelerator_type(config, found),
        "region": region,
        "subnetwork": subnetwork,
        "image": lambda found, *_: image(config, found),
    }


def image(config: GcpEmulatorConfig, found: dict[str, str]) -> _Json:
    """An image of any project. Raises GcpError."""
    name = f"projects/{found['project']}/global/images/{found['name']}"
    if name not in config.images:
        raise not_found(name)
    return {"name": found["name"], "status": "READY", "diskSizeGb": "10"}


def _machine_type(config: GcpEmulatorConfig, found: dict[str, str]) -> _Json:
    for pool in config.pools:
        if pool.zone == found["zone"] and pool.instance_type.partition("+")[0] == found["name"]:
            return {"name": found["name"], "guestCpus": pool.vcpus}
    raise not_found(f"projects/{config.project}/zones/{found['zone']}/machineTypes/{found['name']}")


def _accelerator_type(config: GcpEmulatorConfig, found: dict[str, str]) -> _Json:
    for pool in config.pools:
        attached = pool.instance_type.partition("+")[2].partition("x")[2]
        if pool.zone == found["zone"] and attached == found["name"]:
            return {"name": found["name"]}
    raise not_found(f"projects/{config.project}/zones/{found['zone']}/acceleratorTypes/{found['name']}")
