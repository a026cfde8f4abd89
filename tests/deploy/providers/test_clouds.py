"""The providers of the clouds keep what every provider keeps."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.providers.aws.config import AwsConfig
from deploy.providers.aws.provider import AwsProvider
from deploy.providers.gcp.provider import GcpProvider
from tests.deploy.providers.aws.fake import REGION, FakeAws, fake_aws, make_config
from tests.deploy.providers.aws.fake import TYPE as AWS_TYPE
from tests.deploy.providers.contract import ProviderContract, World
from tests.deploy.providers.gcp.project import SPOT_USD, TYPE, ZONES, Project


class AwsWorld:
    """moto with capacity and prices."""

    def __init__(self, aws: FakeAws, config: AwsConfig, folder: Path) -> None:
        self.open_offer = f"aws/{REGION}a/{AWS_TYPE}/spot"
        self.closed_offer = f"aws/{REGION}b/{AWS_TYPE}/spot"
        self.price_usd_hour = 0.05
        self._aws = aws
        self._config = config
        self._folder = folder
        self._numbers = itertools.count()
        aws.closed.add((f"{REGION}b", AWS_TYPE, "spot"))
        # A closed offer is one that was refused: EC2 does not tell before.
        aws.prices.pop((f"{REGION}b", AWS_TYPE))

    def provider(self) -> AwsProvider:
        # Its own memory: nothing but EC2 tells a new provider what there is.
        state = self._folder / str(next(self._numbers))
        return AwsProvider(self._config.model_copy(update={"state": state}), self._aws.session())

    def settle(self) -> None:
        pass

    def interrupt(self, instance_id: str) -> None:
        self._aws.interrupt(instance_id, time.time())


class GcpWorld:
    """An emulated project; the closed offer's price is above the configured limit."""

    def __init__(self, folder: Path) -> None:
        self.open_offer = f"gcp/{ZONES[0]}/{TYPE}/spot"
        self.closed_offer = f"gcp/{ZONES[1]}/{TYPE}/spot"
        self.price_usd_hour = SPOT_USD
        limited = {TYPE: {"quota": 2, "max_price_usd_hour": 0.08}}
        self._project = Project(folder, rented={"instance_types": limited, "when_preempted": "delete"})

    def provider(self) -> GcpProvider:
        return self._project.provider()

    def settle(self) -> None:
        self._project.emulator.advance(30.0)

    def interrupt(self, instance_id: str) -> None:
        world = self._project.emulator.world
        with world.lock:
            world.interrupt(world.instances[instance_id], 0.0)


class TestClouds(ProviderContract):
    @pytest.fixture(params=["aws", "gcp"])
    def world(
        self, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> Iterator[World]:
        if request.param == "gcp":
            yield GcpWorld(tmp_path)
            return
        with fake_aws(monkeypatch) as aws:
            aws.prices.clear()
            aws.set_price(0.05, time.time() - 3600)
            yield AwsWorld(aws, make_config(tmp_path), tmp_path)
