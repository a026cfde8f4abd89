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
    assert late.status_code == 503
    assert "the scheduler's latest pass ended 61 s ago" in one_line_error(late)
    service.scheduler.passed_s = None
    assert "has not ended yet" in one_line_error(probe.get("/readyz"))
    assert probe.get("/healthz").json() == {"status": "ok"}


def test_it_is_not_ready_without_its_store(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: object) -> None:
        raise StoreUnavailableError("the database postgresql://secret-host/db cannot be used now")

    monkeypatch.setattr(Store, "check", broken)
    response = service.as_(None).get("/readyz")
    assert response.status_code == 503
    assert "secret-host" not in one_line_error(response)


def test_a_store_that_cannot_be_used_now_is_503_and_one_line(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise StoreUnavailableError("the database is locked: try again")

    monkeypatch.setattr(Jobs, "latest", broken)
    response = service.as_(Role.VIEWER).get("/v1/jobs")
    assert response.status_code == 503
    assert response.headers["Retry-After"]
    assert one_line_error(response) == "the database is locked: try again"


def test_metrics_count_what_was_answered_and_decided(service: Service) -> None:
    service.submitter.post("/v1/decisions", json=DECISION_EXAMPLE)
    service.submitter.post("/v1/decisions", json={})
    service.submitter.get("/v1/jobs/some-job")
    service.submitter.get("/v1/jobs/other-job")
    service.submitter.get("/nowhere/1")
    lines = service.as_(Role.VIEWER).get("/metrics").text.splitlines()
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
        response = service.as_(Role.VIEWER).get("/v1/jobs", headers={"X-Request-ID": "this-one"})
    assert response.status_code == 500
    assert one_line_error(response) == "the service failed on this request (this-one): see its log"
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
        assert response.status_code == 413
        assert f"larger than {limit} bytes" in one_line_error(response)
    assert sent <= limit + 200


def test_a_length_that_is_not_true_is_not_believed(small: Service) -> None:
    too_long = {**JSON, "Content-Length": "9" * 400}
    assert small.submitter.post("/v1/decisions", content=b"{}", headers=too_long).status_code == 413
    too_short = {**JSON, "Content-Length": "2"}
    response = small.submitter.post("/v1/decisions", content=b" " * 1001, headers=too_short)
    assert response.status_code == 413


def test_a_body_that_does_not_come_is_not_waited_for(small: Service) -> None:
    async def slow() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.sleep(60)

    response = small.submitter.post("/v1/decisions", content=slow(), headers=JSON)
    assert response.status_code == 408
    one_line_error(response)


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
    files = {f"f{k}": "" for k in range(4)}
    response = small.submitter.post("/v1/jobs", json=job_request(files=files))
    assert response.status_code == 422
    assert "4 files came with the job: expected at most 3" in one_line_error(response)


@pytest.mark.parametrize(("method", "path"), [("GET", "/nope"), ("PUT", "/v1/jobs"), ("GET", "/docs")])
def test_what_is_not_there_is_json_too(unchanged: Service, method: str, path: str) -> None:
    response = unchanged.submitter.request(method, path)
    assert response.status_code in (404, 405)
    one_line_error(response)


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
    for name, schema in described["components"]["schemas"].items():
        for example in schema.get("examples", []):
            if name == "DecisionRequest":
                DecisionRequest.model_validate(example, strict=False)


def test_the_documentation_refers_only_to_what_it_holds(service: Service) -> None:
    described = service.as_(None).get("/openapi.json").json()

    def references(node: object) -> set[str]:
        if isinstance(node, dict):
            own = {node["$ref"]} if isinstance(node.get("$ref"), str) else set()
            return own.union(*(references(value) for value in node.values()))
        if isinstance(node, list):
            return set().union(*(references(value) for value in node))
        return set()

    names = {f"#/components/schemas/{name}" for name in described["components"]["schemas"]}
    assert references(described) <= names
