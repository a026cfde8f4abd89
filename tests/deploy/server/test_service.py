"""Health, metrics, limits, logs, and what happens when something fails."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, Gauge
from structlog.testing import capture_logs

from deploy.security.roles import Role
from deploy.server.app import create_app
from deploy.server.deciding import Deciders
from deploy.server.schemas import DECISION_EXAMPLE, DecisionRequest
from deploy.server.settings import ServerSettings
from deploy.store.errors import StoreUnavailableError
from deploy.store.jobs import Jobs
from deploy.store.store import Store
from tests.deploy.server.service import NOW, Api, Service, job_request, make_service, one_line_error

JSON = {"Content-Type": "application/json"}


def test_it_is_ready_while_the_scheduler_makes_its_passes(service: Service) -> None:
    probe = service.as_(None)
    assert probe.get("/readyz").json() == {
        "policy": "outcomes",
        "federated_policy": "round_cost",
        "store": True,
        "scheduler": True,
        "last_pass_s": NOW,
    }
    service.clock.sleep(61.0)
    late = probe.get("/readyz")
    assert "the scheduler's latest pass ended 61 s ago" in one_line_error(late, 503)
    service.scheduler.passed_s = None
    assert "has not ended yet" in one_line_error(probe.get("/readyz"))
    assert probe.get("/healthz").json() == {"status": "ok"}


@pytest.mark.parametrize("path", ["/readyz", "/v1/jobs"])
def test_a_store_that_cannot_be_used_now_is_503_and_one_line(
    service: Service, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise StoreUnavailableError("the database postgresql://host/db is locked: try again")

    monkeypatch.setattr(Store, "check", broken)
    monkeypatch.setattr(Jobs, "latest", broken)
    response = service.viewer.get(path)
    error = one_line_error(response, 503)
    if path == "/readyz":
        assert "host" not in error, "this is told to everyone"
    else:
        assert response.headers["Retry-After"]
        assert error == "the database postgresql://host/db is locked: try again"


def test_metrics_count_what_was_answered_and_decided(service: Service) -> None:
    service.submitter.post("/v1/decisions", json=DECISION_EXAMPLE)
    service.submitter.post("/v1/decisions", json={})
    for path in ("/v1/jobs/some-job", "/v1/jobs/other-job", "/nowhere/1"):
        service.submitter.get(path)
    lines = service.viewer.get("/metrics").text.splitlines()
    total = "spotweave_http_requests_total"
    for line in (
        f'{total}{{method="POST",route="/v1/decisions",status="200"}} 1.0',
        f'{total}{{method="POST",route="/v1/decisions",status="422"}} 1.0',
        f'{total}{{method="GET",route="/v1/jobs/{{job_id}}",status="404"}} 2.0',
        f'{total}{{method="GET",route="unmatched",status="404"}} 1.0',
        'spotweave_decisions_total{choice="offer",kind="market"} 1.0',
        "spotweave_decision_seconds_count 1.0",
        'spotweave_http_request_seconds_count{route="/v1/decisions"} 2.0',
    ):
        assert line in lines


def test_others_may_add_metrics(deciders: Deciders) -> None:
    registry = CollectorRegistry()
    Gauge("spotweave_passes", "Of the scheduler.", registry=registry).set(7)
    api = Api(create_app(ServerSettings(tokens=False), deciders, registry=registry))
    assert "spotweave_passes 7.0" in api.get("/metrics").text


def test_every_request_is_logged_with_its_id_and_without_secrets(service: Service) -> None:
    token = service.tokens[Role.SUBMITTER]
    with capture_logs() as logs:
        response = service.submitter.post(
            "/v1/jobs?hint=hush", json=job_request(), headers={"X-Request-ID": "abc.1"}
        )
        other = service.submitter.get("/v1/jobs", headers={"X-Request-ID": "no\x0bid"})
        service.as_(None).get("/v1/jobs", headers={"Authorization": "Bearer secret"})
    assert response.headers["X-Request-ID"] == "abc.1"
    assert other.headers["X-Request-ID"] != "no\x0bid"
    first, second, third = logs
    assert (first["request_id"], first["status"], first["method"]) == ("abc.1", 201, "POST")
    assert first["path"] == "/v1/jobs"
    assert first["token_id"] == token.split("_")[1]
    assert second["request_id"] == other.headers["X-Request-ID"]
    assert third["token_id"] is None
    for secret in (token, token.split("_", 2)[2], "hush", "Bearer", "print"):
        assert secret not in str(logs)


def test_what_nobody_expected_is_500_in_one_line_and_a_traceback_in_the_log(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("the inner secret")

    monkeypatch.setattr(Jobs, "latest", broken)
    with capture_logs() as logs:
        response = service.viewer.get("/v1/jobs", headers={"X-Request-ID": "this-one"})
    assert one_line_error(response, 500) == "the service failed on this request (this-one): see its log"
    assert [entry["event"] for entry in logs] == ["request failed", "request"]
    assert logs[0]["exc_info"]


@pytest.fixture
def small(tmp_path: Path, store: Store, deciders: Deciders) -> Service:
    return make_service(
        tmp_path, store, deciders, decision_bytes=1000, job_bytes=2000, body_within_s=0.2, job_files=3
    )


@pytest.mark.parametrize(("path", "limit"), [("/v1/decisions", 1000), ("/v1/jobs", 2000)])
def test_bodies_are_bounded_before_they_are_parsed(
    small: Service, path: str, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        while True:
            sent += 100
            yield b" " * 100

    whole = small.submitter.post(path, content=b" " * limit, headers=JSON)
    assert whole.status_code == 422, "exactly the limit is read and parsed"
    monkeypatch.setattr("deploy.server.bodies.parse", None)
    for content in (b" " * (limit + 1), endless()):
        response = small.submitter.post(path, content=content, headers=JSON)
        assert f"larger than {limit} bytes" in one_line_error(response, 413)
    assert sent <= limit + 200


def test_a_length_that_is_not_true_is_not_believed(small: Service) -> None:
    for content, length in ((b"{}", "9" * 400), (b" " * 1001, "2")):
        headers = {**JSON, "Content-Length": length}
        one_line_error(small.submitter.post("/v1/decisions", content=content, headers=headers), 413)


def test_a_body_that_does_not_come_is_not_waited_for(small: Service) -> None:
    async def slow() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.sleep(60)

    response = small.submitter.post("/v1/decisions", content=slow(), headers=JSON)
    one_line_error(response, 408)


def test_nothing_is_read_from_who_may_not(small: Service) -> None:
    read = 0

    async def unread() -> AsyncIterator[bytes]:
        nonlocal read
        read += 1
        yield b"{}"

    for role in (None, Role.VIEWER):
        response = small.as_(role).post("/v1/jobs", content=unread(), headers=JSON)
        assert response.status_code in (401, 403)
    assert read == 0


def test_only_so_many_files(small: Service) -> None:
    response = small.submit(files={f"f{k}": "" for k in range(4)})
    assert "4 files came with the job: expected at most 3" in one_line_error(response, 422)


def test_the_examples_of_the_documentation_are_valid_requests(service: Service) -> None:
    described = service.as_(None).get("/openapi.json").json()
    tried = 0
    for path, operations in described["paths"].items():
        for method, operation in operations.items():
            assert operation["summary"]
            content = operation.get("requestBody", {}).get("content", {})
            for example in content.get("application/json", {}).get("examples", {}).values():
                response = service.submitter.request(method.upper(), path, json=example["value"])
                assert response.status_code in (200, 201), response.text
                tried += 1
    assert tried >= 3
    for example in described["components"]["schemas"]["DecisionRequest"].get("examples", []):
        DecisionRequest.model_validate(example, strict=False)


def test_the_documentation_refers_only_to_what_it_holds(service: Service) -> None:
    described = service.as_(None).get("/openapi.json").json()

    def references(node: object) -> set[str]:
        parts = list(node.values()) if isinstance(node, dict) else node if isinstance(node, list) else []
        own = {node["$ref"]} if isinstance(node, dict) and isinstance(node.get("$ref"), str) else set()
        return own.union(*map(references, parts))

    names = {f"#/components/schemas/{name}" for name in described["components"]["schemas"]}
    assert references(described) <= names
