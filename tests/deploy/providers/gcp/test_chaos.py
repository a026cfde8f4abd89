"""Hours on a Google Cloud where everything goes wrong: nothing lost, nothing leaked, bills exact."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from deploy.emulator.gcp.config import GcpEmulatorConfig, region_of
from deploy.emulator.gcp.emulator import GcpEmulator
from deploy.model.clock import VirtualClock
from deploy.providers.gcp import listing, names
from deploy.providers.gcp.config import GcpConfig
from deploy.providers.gcp.provider import GcpProvider
from tests.deploy.emulator.chaos import FAULTS, HOUR_S, Account, CloudWorld, Tags, run, spells, troubles
from tests.deploy.emulator.gcp.transport import InProcess
from tests.deploy.emulator.traces import START_S
from tests.deploy.providers.gcp.project import IMAGE, PROJECT, TYPE, prices

TAGS = Tags(names.TOKEN, names.DEPLOYMENT, names.JOB)
ON_DEMAND_USD = 0.526


def account(
    folder: Path, clock: VirtualClock, emulated: dict[str, Any], zones: Sequence[str], hours: float
) -> Account:
    """An emulated Google Cloud, in all of whose zones one type is rented, and its prices for so long."""
    emulator = GcpEmulator(GcpEmulatorConfig.model_validate(emulated), clock)
    market = emulator.world.market
    # What Google publishes: every price, and since when.
    spot = {
        pool.zone: list(market.prices(pool, START_S, START_S + hours * HOUR_S))
        for pool in market.pools.values()
    }
    regions = {
        region: {"zones": [zone for zone in zones if region_of(zone) == region]}
        for region in map(region_of, zones)
    }
    rents = GcpConfig.model_validate(
        {
            "project": PROJECT,
            "regions": regions,
            "instance_types": {TYPE: {"quota": 20}},
            "image": IMAGE,
            "node": {"scheduler_url": "https://scheduler.example:8443"},
            "prices_file": str(prices(folder, spot, {TYPE: 4}, ON_DEMAND_USD)),
            "launch_s": 30.0,
        }
    )
    app = emulator.app()
    return Account(emulator, rents, lambda: GcpProvider(rents, InProcess(app), clock.now), TAGS)


class GcpWorld(CloudWorld):
    """What ended is told by its operations, of any age."""

    tags = TAGS
    zones = ("us-central1-a", "us-central1-b", "us-west1-a", "us-west1-b")
    regions = ("us-central1", "us-west1")
    on_demand_usd_hour = ON_DEMAND_USD
    troubles = (
        ("compute:instances.list", "empty", 0.7),
        ("compute:*", "backendError", 0.7),
        ("compute:*", "rateLimitExceeded", 0.2),
        ("compute:instances.create", "lost", 0.5),
        ("compute:instances.create", "ACodeThatIsNew", 1.5),
        ("compute:instances.create", "ZONE_RESOURCE_POOL_EXHAUSTED", 4.0),
        ("compute:instances.delete", "ACodeThatIsNew", 0.5),
        ("compute:*.list", "forbidden", 0.7),
        ("compute:instances.delete", "lost", 0.5),
    )

    def emulate(self, emulated: dict[str, Any]) -> Sequence[Account]:
        return [account(self.folder, self.clock, emulated, self.zones, 1200.0)]


@pytest.mark.parametrize(
    ("hours", "troubles_every_h", "interruptions", "failures", "stopped"),
    [
        pytest.param(1000.0, 24.0, 500, 200, 5, marks=pytest.mark.nightly),
        pytest.param(36.0, 3.0, 6, 6, 0, marks=pytest.mark.real),
    ],
)
def test_chaos(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    hours: float,
    troubles_every_h: float,
    interruptions: int,
    failures: int,
    stopped: int,
) -> None:
    # No operation is ever forgotten here: looks take several pages, and read no more than they need.
    monkeypatch.setattr(listing, "PAGE", 20)
    pool = {"instance_type": TYPE, "n_vcpus": 4, "on_demand_usd_hour": ON_DEMAND_USD}
    emulated = {
        "pools": spells(tmp_path, 1, hours + 100.0, GcpWorld.zones, pool, up_s=15_000),
        "launch_s": 25.0,
        "quota_vcpus": 400,
        # Compute Engine allows some tens of calls a second. Where a region is dark, each zone is a call.
        "faults": {
            **FAULTS,
            "calls_per_s": 0.4,
            "burst": 12,
            "spells": troubles(GcpWorld, hours, troubles_every_h),
        },
    }
    run(GcpWorld(tmp_path, emulated, monkeypatch), hours, interruptions, failures, stopped)
