"""Emulated clouds for each test."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tests.deploy.objects.buckets import S3, Gcs


@pytest.fixture
def no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    # The SDKs wait between two tries.
    monkeypatch.setattr("botocore.endpoint.time", SimpleNamespace(sleep=lambda seconds: None))
    monkeypatch.setattr("google.api_core.retry.retry_unary.time.sleep", lambda seconds: None)
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)


@pytest.fixture
def account(no_waits: None) -> S3:
    return S3()


@pytest.fixture
def project(no_waits: None) -> Gcs:
    return Gcs()


@pytest.fixture(params=[S3, Gcs], ids=["s3", "gs"])
def cloud(request: pytest.FixtureRequest, no_waits: None) -> S3:
    made: S3 = request.param()
    return made
