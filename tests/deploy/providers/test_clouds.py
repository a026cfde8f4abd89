"""The providers of the clouds keep what every provider keeps, in emulated clouds."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy.providers.base import Provider
from tests.deploy.emulator.aws.conftest import TYPE as AWS_TYPE
from tests.deploy.emulator.aws.conftest import Cloud
from tests.deploy.providers.contract import ProviderContract, World
from tests.deploy.providers.gcp.project import SPOT_USD, TYPE, ZONES, Project
from tests.deploy.sdk import read_models_once


class Emulated:
    """The closed offer's price is above the configured limit."""

    cloud: Cloud | Project
    open_offer: str
    closed_offer: str
    price_usd_hour: float

    def settle(self) -> None:
        self.cloud.emulator.advance(30.0)

    def interrupt(self, instance_id: str) -> None:
        world: Any = self.cloud.emulator.world
        with world.lock:
            world.interrupt(world.instances[instance_id], 0.0)


class AwsWorld(Emulated):
    open_offer, closed_offer = (f"aws/us-east-1{zone}/{AWS_TYPE}/spot" for zone in "ab")
    price_usd_hour = 0.2

    def __init__(self, folder: Path) -> None:
        self.cloud = self._account = Cloud(folder, shutdown_s=0)
        self._states = (folder / str(number) for number in itertools.count())

    def provider(self) -> Provider:
        # Its own memory: nothing but EC2 tells a new provider what there is.
        limited = {AWS_TYPE: {"quota": 2, "max_price_usd_hour": 0.25}}
        return self._account.provider(instance_types=limited, state=next(self._states))


class GcpWorld(Emulated):
    open_offer, closed_offer = (f"gcp/{zone}/{TYPE}/spot" for zone in ZONES)
    price_usd_hour = SPOT_USD

    def __init__(self, folder: Path) -> None:
        limited = {TYPE: {"quota": 2, "max_price_usd_hour": 0.08}}
        self.cloud = self._project = Project(
            folder, rented={"instance_types": limited, "when_preempted": "delete"}
        )

    def provider(self) -> Provider:
        return self._project.provider()


class TestClouds(ProviderContract):
    @pytest.fixture(params=[AwsWorld, GcpWorld])
    def world(
        self, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> Iterator[World]:
        read_models_once(monkeypatch)
        world = request.param(tmp_path)
        yield world
        world.cloud.emulator.close()
