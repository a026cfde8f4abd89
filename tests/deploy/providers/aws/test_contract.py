"""The AWS provider keeps what every provider keeps."""

from __future__ import annotations

import itertools
import time
from pathlib import Path

import pytest

from deploy.providers.aws.config import AwsConfig
from deploy.providers.aws.provider import AwsProvider
from tests.deploy.providers.aws.fake import REGION, TYPE, FakeAws, make_config
from tests.deploy.providers.contract import ProviderContract


class AwsWorld:
    """moto with capacity and prices."""

    def __init__(self, aws: FakeAws, config: AwsConfig, folder: Path) -> None:
        self.open_offer = f"aws/{REGION}a/{TYPE}/spot"
        self.closed_offer = f"aws/{REGION}b/{TYPE}/spot"
        self.price_usd_hour = 0.05
        self._aws = aws
        self._config = config
        self._folder = folder
        self._numbers = itertools.count()
        aws.closed.add((f"{REGION}b", TYPE, "spot"))
        # A closed offer is one that was refused: EC2 does not tell before.
        aws.prices.pop((f"{REGION}b", TYPE))

    def provider(self) -> AwsProvider:
        # Its own memory: nothing but EC2 tells a new provider what there is.
        state = self._folder / str(next(self._numbers))
        return AwsProvider(self._config.model_copy(update={"state": state}), self._aws.session())

    def settle(self) -> None:
        pass

    def interrupt(self, instance_id: str) -> None:
        self._aws.interrupt(instance_id, time.time())


class TestAwsProvider(ProviderContract):
    @pytest.fixture
    def world(self, aws: FakeAws, tmp_path: Path) -> AwsWorld:
        aws.prices.clear()
        aws.set_price(0.05, time.time() - 3600)
        return AwsWorld(aws, make_config(tmp_path), tmp_path)
