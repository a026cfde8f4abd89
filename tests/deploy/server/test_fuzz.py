"""Whatever is sent, the service does not fail: requests made from its own OpenAPI, valid and not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from hypothesis import Phase as HypothesisPhase
from schemathesis.config import SchemathesisConfig

from deploy.security.roles import Role
from deploy.server.deciding import Deciders
from deploy.store.store import Store
from tests.deploy.server.service import NOW, Service, job_request, make_service

ENDLESS = "/v1/events/stream"


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory: pytest.TempPathFactory, deciders: Deciders) -> Any:
    folder: Path = tmp_path_factory.mktemp("fuzzed")
    with Store.open(f"sqlite:///{folder}/store.db", NOW, durable=False) as store:
        service: Service = make_service(folder, store, deciders)
        for _ in range(2):
            assert service.submitter.post("/v1/jobs", json=job_request()).status_code == 201
        loaded = schemathesis.openapi.from_asgi("/openapi.json", service.app, config=SchemathesisConfig())
        loaded.config.headers = {"Authorization": f"Bearer {service.tokens[Role.ADMIN]}"}
        yield loaded


schema = schemathesis.pytest.from_fixture("fuzzed").exclude(path=ENDLESS)


@pytest.mark.slow
@schema.parametrize()
@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[HypothesisPhase.explicit, HypothesisPhase.generate],
)
def test_nothing_that_is_sent_makes_it_fail(case: Any) -> None:
    response = case.call()
    assert response.status_code < 500, response.text
    if response.status_code >= 400:
        body = response.json()
        assert set(body) == {"error"}
        assert "\n" not in body["error"]
