"""What is right and what is missing before a launch: credentials, rights, prices, quotas, image and so on.

Nothing here changes anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from spotweave.deploy.providers.base import ProviderError, RefusedError
from spotweave.deploy.providers.config import Finding, image_finding
from spotweave.deploy.providers.gcp.clients import REMEDY, RETRY, TIMEOUT_S, Clients, gcp_errors
from spotweave.deploy.providers.gcp.config import GcpConfig
from spotweave.deploy.providers.gcp.prices import PriceList, parts

# Whether the caller has what the scheduler's role grants, asked of the Resource Manager.
#
# Asking needs no permission itself, but the API must be enabled: https://cloud.google.com/resource-
# manager/reference/rest/v1/projects/testIamPermissions

HOST = "cloudresourcemanager.googleapis.com"
ROLE = Path(__file__).with_name("role.yaml")


def needed(config: GcpConfig) -> list[str]:
    """Permissions of the role that this configuration makes use of."""
    granted: list[str] = yaml.safe_load(ROLE.read_text(encoding="utf-8"))["includedPermissions"]
    unused = {
        "compute.subnetworks.useExternalIp": config.node.address != "public",
        "compute.instances.setServiceAccount": config.service_account is None,
        "compute.acceleratorTypes.get": not any(parts(kind)[1] for kind in config.instance_types),
    }
    return [one for one in granted if not unused.get(one, False)]


_REFRESH = "python -m spotweave.deploy.providers.gcp.catalogue --out prices.json"
_PREFIXES = {"spot": "PREEMPTIBLE_", "on_demand": ""}
"""Prefixes of quotas. A project without quotas for spot uses those on demand."""


def check(config: GcpConfig, clients: Clients | None = None) -> Iterator[Finding]:
    """Every finding; nothing more where who we are is not accepted. Raises ConfigError."""
    prices = config.prices()
    config.node.ca_pem(config.folder)
    dated = prices.sources.get("types", "a list of your own")
    yield Finding("prices", "right", f"a dated list ({dated}); today's: {_REFRESH}")
    checker = _Checker(config, clients or Clients(config.endpoint_url))
    for number, (name, part) in enumerate(config.regions.items()):
        region = yield from checker.look(f"{name} project", "Regions", region=name)
        if region is None:
            return
        yield Finding(f"{name} project", "right", config.project)
        if number == 0:
            yield from checker.permissions()
        yield from checker.quotas(name, region, prices)
        if (
            yield from checker.look(
                f"{name} subnetwork", "Subnetworks", region=name, subnetwork=part.subnetwork
            )
        ):
            yield Finding(f"{name} subnetwork", "right", part.subnetwork)
        for zone in part.zones:
            if (yield from checker.look(zone, "Zones", zone=zone)):
                yield from checker.types(zone)
    _, project, _, _, image = config.image.split("/")
    found = yield from checker.look("image", "Images", project=project, image=image)
    if found is not None:
        yield image_finding("image", config.image, found.labels.get("spotweave"))


class _Checker:
    def __init__(self, config: GcpConfig, clients: Clients) -> None:
        self._config, self._clients = config, clients

    def look(self, what: str, service: str, **names: str) -> Any:
        """A resource; a finding and None where it cannot be had."""
        asked = {"project": self._config.project, **names}
        try:
            with gcp_errors(f"gcp: {what}"):
                return self._clients.get(service).get(**asked, retry=RETRY, timeout=TIMEOUT_S)
        except RefusedError as error:
            yield Finding(what, "missing", str(error))
        except ProviderError as error:
            yield Finding(what, "unknown", str(error))
        return None

    def permissions(self) -> Iterator[Finding]:
        asked, path = needed(self._config), f"/v1/projects/{self._config.project}:testIamPermissions"
        try:
            with gcp_errors("gcp: permissions"):
                answer = self._clients.ask("POST", HOST, path, json={"permissions": asked})
        except ProviderError as error:
            text = f"{error}; without it a missing permission shows in the call that needs it"
            yield Finding("permissions", "unknown", text)
            return
        denied = [one for one in asked if one not in answer.get("permissions", ())]
        for permission in denied:
            yield Finding("permissions", "missing", f"this identity may not {permission}: {REMEDY}")
        if not denied:
            yield Finding("permissions", "right", f"all {len(asked)} of the role")

    def types(self, zone: str) -> Iterator[Finding]:
        for kind in self._config.instance_types:
            machine, gpu, _ = parts(kind)
            found = yield from self.look(f"{zone} {machine}", "MachineTypes", zone=zone, machine_type=machine)
            if found is not None and gpu is not None:
                found = yield from self.look(
                    f"{zone} {gpu}", "AcceleratorTypes", zone=zone, accelerator_type=gpu
                )
            if found is not None:
                yield Finding(f"{zone} {kind}", "right", "the zone has it; capacity shows in a launch only")

    def quotas(self, name: str, region: Any, prices: PriceList) -> Iterator[Finding]:
        limits = {one.metric: one.limit for one in region.quotas}
        for market, prefix in _PREFIXES.items():
            wanted: dict[str, dict[str, int]] = {}
            for kind, about in self._config.instance_types.items():
                if market in about.markets:
                    hardware = prices.hardware(kind)
                    wanted.setdefault("CPUS", {})[kind] = hardware.vcpus
                    if hardware.gpu is not None:
                        metric = f"NVIDIA_{hardware.gpu.replace('-', '_')}_GPUS"
                        wanted.setdefault(metric, {})[kind] = hardware.gpus
            for metric, needs in wanted.items():
                counted = f"{prefix}{metric}" if limits.get(f"{prefix}{metric}") else metric
                limit = limits.get(counted)
                if limit is None:
                    continue
                what = f"{name} {market} quota"
                large = [kind for kind, count in needs.items() if count > limit]
                if large:
                    text = f"{limit:.0f} ({counted}): too few for {large[0]}: ask for more"
                    yield Finding(what, "missing", text)
                else:
                    yield Finding(what, "right", f"{limit:.0f} ({counted})")
