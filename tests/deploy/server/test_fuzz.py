"""Whatever is sent, the service does not fail: requests made from its own OpenAPI, valid and not."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.config import SchemathesisConfig
from schemathesis.core.result import Ok

from deploy.security.roles import Role
from deploy.server.deciding import Deciders
from deploy.store.store import Store
from tests.deploy.server.service import job_request, make_service

ENDLESS = "/v1/events/stream"
EXAMPLES = 40


@pytest.mark.slow
@pytest.mark.parametrize("mode", list(GenerationMode))
def test_nothing_that_is_sent_makes_it_fail(
    mode: GenerationMode, tmp_path: Path, store: Store, deciders: Deciders
) -> None:
    service = make_service(tmp_path, store, deciders)
    assert service.submitter.post("/v1/jobs", json=job_request()).status_code == 201
    schema = schemathesis.openapi.from_asgi("/openapi.json", service.app, config=SchemathesisConfig())
    headers = {"Authorization": f"Bearer {service.tokens[Role.ADMIN]}"}
    answered: Counter[int] = Counter()
    tried = set()
    for result in schema.get_all_operations():
        assert isinstance(result, Ok)
        operation = result.ok()
        if operation.path == ENDLESS:
            continue
        tried.add((operation.method, operation.path))

        @settings(
            max_examples=EXAMPLES,
            deadline=None,
            database=None,
            phases=[Phase.explicit, Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy(generation_mode=mode))
        def send(case: Any) -> None:
            response = case.call(headers=headers)
            answered[response.status_code] += 1
            assert response.status_code < 500, (case.as_curl_command(), response.text)
            if response.status_code >= 400:
                body = response.json()
                assert set(body) == {"error"}
                assert "\n" not in body["error"]

        # Of an operation without anything that could be wrong no invalid request can be made.
        with suppress(Unsatisfiable):
            send()
    assert len(tried) >= 14
    assert sum(answered.values()) > 5 * EXAMPLES
    assert any(status < 300 for status in answered) or mode is GenerationMode.NEGATIVE
    assert any(400 <= status < 500 for status in answered)
