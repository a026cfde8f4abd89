"""The Google Cloud provider keeps what every provider keeps."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy.providers.gcp.provider import GcpProvider
from tests.deploy.providers.contract import ProviderContract
from tests.deploy.providers.gcp.project import SPOT_USD, TYPE, ZONES, Project


class GcpWorld:
    """An emulated project; the closed offer's price is above the configured limit."""

    def __init__(self, folder: Path, when_preempted: str) -> None:
        self.open_offer = f"gcp/{ZONES[0]}/{TYPE}/spot"
        self.closed_offer = f"gcp/{ZONES[1]}/{TYPE}/spot"
        self.price_usd_hour = SPOT_USD
        limited = {TYPE: {"quota": 2, "max_price_usd_hour": 0.08}}
        rented = {"instance_types": limited, "when_preempted": when_preempted}
        self._project = Project(folder, rented=rented)

    def provider(self) -> GcpProvider:
        return self._project.provider()

    def settle(self) -> None:
        self._project.emulator.advance(30.0)

    def interrupt(self, instance_id: str) -> None:
        world = self._project.emulator.world
        with world.lock:
            world.interrupt(world.instances[instance_id], 0.0)


class TestGcpProvider(ProviderContract):
    @pytest.fixture
    def world(self, tmp_path: Path) -> GcpWorld:
        return GcpWorld(tmp_path, "delete")
