"""An emulated Google Cloud project in virtual time, and providers that rent in it."""

from __future__ import annotations

import itertools
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from spotweave.deploy.emulator.gcp.emulator import GcpEmulator
from spotweave.deploy.emulator.gcp.world import GcpEmulatorConfig
from spotweave.deploy.model.clock import VirtualClock
from spotweave.deploy.providers.gcp.config import GcpConfig
from spotweave.deploy.providers.gcp.provider import GcpProvider
from tests.deploy.emulator.transport import InProcess

PROJECT = "spotweave-emulated"
IMAGE = f"projects/{PROJECT}/global/images/spotweave"
REGION, TYPE, GPU_TYPE = "us-central1", "n1-standard-4", "n1-standard-4+1xnvidia-tesla-t4"
ZONES = ("us-central1-a", "us-central1-b")
START_S = 1_750_000_000.0
SPOT_USD, ON_DEMAND_USD = 0.05, 0.19
Changes = list[tuple[float, float]]
"""(epoch seconds, USD per hour)."""


def prices(
    folder: Path,
    spot: dict[str, Changes],
    types: dict[str, int] | None = None,
    on_demand_usd: float = ON_DEMAND_USD,
) -> Path:
    """A list with spot prices by zone, as the provider reads it."""
    types = {TYPE: 4, "a2-highgpu-1g": 12, "g2-standard-4": 4} if types is None else types
    regions: dict[str, Any] = {}
    for zone, changes in spot.items():
        steps = [
            {"since": _utc(at_s), "spot_usd_hour": usd, "on_demand_usd_hour": on_demand_usd}
            for at_s, usd in changes
        ]
        regions[zone] = {"types": dict.fromkeys(types, steps)}
        gpu = [{"since": _utc(0), "spot_usd_hour": 0.11, "on_demand_usd_hour": 0.35}]
        about = {"disk_usd_gib_month": {"pd-balanced": 0.1}, "gpus": {"nvidia-tesla-t4": gpu}}
        regions[zone.rpartition("-")[0]] = about
    content = {
        "format": 1,
        "sources": {},
        "types": {name: {"vcpus": cores, "memory_gib": 15} for name, cores in types.items()},
        "egress": {"same_continent": 0.02, "us_europe": 0.05, "other": 0.08, "internet": 0.12},
        "regions": regions,
    }
    path = folder / "prices.json"
    path.write_text(json.dumps(content))
    return path


def _utc(epoch_s: float) -> str:
    return datetime.fromtimestamp(epoch_s, UTC).isoformat()


class Project:
    """One project; its providers know nothing from memory.

    Args:
        folder: for files.
        spot: prices by zone.
        rented: changes of the provider's configuration.
        changes: of the emulator's.
    """

    def __init__(
        self,
        folder: Path,
        spot: dict[str, Changes] | None = None,
        rented: dict[str, Any] | None = None,
        **changes: Any,
    ) -> None:
        spot = {ZONES[0]: [(0.0, SPOT_USD)], ZONES[1]: [(0.0, 0.09)]} if spot is None else spot
        pools = [
            {
                "zone": zone,
                "instance_type": kind,
                "n_vcpus": 4,
                "spot_usd_hour": series[0][1],
                "on_demand_usd_hour": ON_DEMAND_USD,
            }
            for zone, series in spot.items()
            for kind in (TYPE, GPU_TYPE, "a2-highgpu-1g")
        ]
        content = {"clock": "virtual", "start_s": START_S, "pools": pools, "launch_s": 20, "shutdown_s": 0}
        self.clock = VirtualClock(START_S)
        config = GcpEmulatorConfig.model_validate({**content, "folder": folder, **changes})
        self.emulator = GcpEmulator(config, self.clock if config.clock == "virtual" else None)
        regions: dict[str, Any] = {}
        for zone in spot:
            regions.setdefault(zone.rpartition("-")[0], {"zones": []})["zones"].append(zone)
        self.content = {
            "project": PROJECT,
            "regions": regions,
            "instance_types": {TYPE: {"quota": 2}},
            "image": IMAGE,
            "node": {"scheduler_url": "https://scheduler.example:8443"},
            "prices_file": str(prices(folder, spot)),
            **(rented or {}),
        }
        self._folder = folder
        self._numbers = itertools.count()

    def config(self, **changes: Any) -> GcpConfig:
        """Of a provider, with a state of its own."""
        state = self._folder / str(next(self._numbers))
        return GcpConfig.model_validate({**self.content, "state": state, **changes})

    def provider(self, **changes: Any) -> GcpProvider:
        """As after a restart."""
        return GcpProvider(self.config(**changes), InProcess(self.emulator), self.clock.now)

    def calls(self) -> int:
        return sum(self.emulator.calls.values())
