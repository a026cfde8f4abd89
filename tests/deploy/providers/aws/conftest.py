"""An account for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.deploy.providers.aws.fake import FakeAws, fake_aws


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeAws]:
    with fake_aws(monkeypatch) as fake:
        yield fake
