"""An account for each test."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tests.deploy.objects.account import Account


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> Account:
    # The SDK waits between two tries.
    monkeypatch.setattr("botocore.endpoint.time", SimpleNamespace(sleep=lambda seconds: None))
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    return Account()
