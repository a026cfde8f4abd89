"""An account for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from moto import mock_aws

from tests.deploy.emulated import read_models_once
from tests.deploy.providers.aws.fake import FakeAws


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeAws]:
    """With prices, and everything can be had."""
    read_models_once(monkeypatch)
    for name in ("AWS_PROFILE", "AWS_ENDPOINT_URL", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with mock_aws():
        fake = FakeAws()
        fake.set_price(0.05)
        yield fake
