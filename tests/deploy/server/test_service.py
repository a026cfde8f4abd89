"""Health, metrics, limits, logs, what happens when something fails; as a process: ports, TLS, refusals."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import ssl
import subprocess
import sys
import time
import warnings
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI
from prometheus_client import CollectorRegistry, Gauge
from structlog.testing import capture_logs

from spotweave.deploy.model.clock import VirtualClock
from spotweave.deploy.scheduler.metrics import SchedulerMetrics
from spotweave.deploy.security.keys import INSECURE_WORDS, SecurityError, TlsFiles
from spotweave.deploy.security.tokens import Role
from spotweave.deploy.server.app import create_app
from spotweave.deploy.server.connections import Connections
from spotweave.deploy.server.context import ServerSettings
from spotweave.deploy.server.deciding import Deciders
from spotweave.deploy.server.middleware import Metrics
from spotweave.deploy.server.run import HttpListener, ListenError, bind, main
from spotweave.deploy.server.schemas import DECISION_EXAMPLE
from spotweave.deploy.store.errors import StoreUnavailableError
from spotweave.deploy.store.jobs import Jobs
from spotweave.deploy.store.store import Store
from tests.deploy.node.agents import wait_until
from tests.deploy.server.service import (
    NOW,
    Api,
    Live,
    Make,
    Service,
    failing,
    job_request,
    one_line_error,
    serving,
)
from tests.deploy.tls import self_signed

JSON = {"Content-Type": "application/json"}
GRAFANA = Path(__file__).resolve().parents[3] / "examples" / "grafana.json"


def test_it_is_ready_while_the_scheduler_makes_its_passes(service: Service) -> None:
    probe = service.as_(None)
    service.clock.sleep(60.0)
    assert probe.get("/readyz").status_code == 200
    service.clock.sleep(1.0)
    late = probe.get("/readyz")
    assert "the scheduler's latest pass ended 61 s ago" in one_line_error(late, 503)
    service.scheduler.passed_s = None
    assert "has not ended yet" in one_line_error(probe.get("/readyz"), 503)


@pytest.mark.parametrize("path", ["/readyz", "/v1/jobs"])
def test_a_store_that_cannot_be_used_is_503(
    service: Service, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = failing(StoreUnavailableError("the database postgresql://host/db is locked: try again"))
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


def test_what_nobody_expected_is_500_and_in_the_log(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Jobs, "latest", failing(RuntimeError("the inner secret")))
    with capture_logs() as logs:
        response = service.viewer.get("/v1/jobs", headers={"X-Request-ID": "this-one"})
    assert one_line_error(response, 500) == "the service failed on this request (this-one): see its log"
    assert [entry["event"] for entry in logs] == ["request failed", "request"]
    assert logs[0]["exc_info"]


@pytest.fixture
def small(make: Make) -> Service:
    return make(decision_bytes=1000, job_bytes=2000, body_within_s=0.2, job_files=3)


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
    monkeypatch.setattr("spotweave.deploy.server.bodies.parse", None)
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


def test_examples_of_the_documentation_are_valid_and_its_references_lead_somewhere(service: Service) -> None:
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
    named = set(re.findall(r'"\$ref": *"#/components/schemas/([^"]+)"', json.dumps(described)))
    assert named <= set(described["components"]["schemas"])


def test_a_port_in_use_or_of_another_machine_is_told_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with bind("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ListenError, match=f"port {port} on 127.0.0.1 is in use"):
            bind("127.0.0.1", port)
        assert main(["--policy", "cheapest", "--port", str(port)]) == 2
    with pytest.raises(ListenError, match=r"cannot listen on 192\.0\.2\.1"):
        bind("192.0.2.1", 0)
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith(f"error: port {port} on 127.0.0.1 is in use: stop what uses it")
    assert told.err.count("\n") == 1


def test_connections_send_without_delay() -> None:
    """Otherwise each answer's body waits for the client to acknowledge its headers."""

    async def accepted() -> int:
        heard: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        def note(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            sock = writer.get_extra_info("socket")
            heard.set_result(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.close()

        listening = bind("127.0.0.1", 0)
        async with await asyncio.start_server(note, sock=listening):
            _, writer = await asyncio.open_connection(*listening.getsockname())
            writer.close()
            return await heard

    assert asyncio.run(accepted()) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--host", "0.0.0.0"], "refusing to listen on 0.0.0.0"),
        (["--host", "0.0.0.0", "--insecure", "yes"], "expected exactly"),
        (["--policy", "nope"], "no checkpoint at nope"),
        (["--tls-certificate", "x.pem"], "TLS needs both"),
        (["--tls-certificate", "/no/x.pem", "--tls-key", "/no/y.pem"], "cannot read the TLS certificate"),
        (["--database", "sqlite:///:memory:"], "would be lost with the process"),
    ],
)
def test_wrong_input_starts_nothing(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--policy", "cheapest", "--port", "0", *arguments]) == 2
    told = capsys.readouterr()
    assert message in told.err
    assert told.err.count("\n") == 1
    assert told.out == ""


def test_beyond_loopback_it_needs_tokens_and_tls(
    make: Make, tmp_path: Path, store: Store, deciders: Deciders
) -> None:
    """Both, or the words that ask for neither."""

    def refuse(app: FastAPI, tls: TlsFiles | None, why: str, words: str | None = None) -> None:
        with pytest.raises(SecurityError, match=why):
            HttpListener(app, "0.0.0.0", 0, tls, insecure_in_words=words)

    tls = self_signed(tmp_path, time.time())
    bare = create_app(ServerSettings(jobs=tmp_path / "jobs"), deciders, store, clock=VirtualClock(NOW))
    refuse(bare, tls, "without access tokens: set")
    refuse(make().app, None, "without a TLS certificate")
    not_asked = make(tokens=False).app
    refuse(not_asked, tls, "without access tokens")
    refuse(not_asked, tls, "asked for with 'please'", "please")
    HttpListener(not_asked, "127.0.0.1", 0, insecure_in_words=INSECURE_WORDS).stop()


def speaks(live: Live, version: ssl.TLSVersion) -> bool:
    """Whether it speaks with a client that knows this version only, and its ciphers."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_ciphers("ALL:@SECLEVEL=0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context.minimum_version = context.maximum_version = version
    try:
        with live.connect() as plain, context.wrap_socket(plain):
            return True
    except ssl.SSLError:
        return False


def test_over_tls_it_answers_who_trusts_it_and_no_plain_http(service: Service, tmp_path: Path) -> None:
    with serving(service, self_signed(tmp_path, time.time())) as live, live.client(Role.VIEWER) as client:
        answer = client.get("/v1/jobs")
        assert answer.status_code == 200
        assert "server" not in answer.headers
        assert answer.headers["Strict-Transport-Security"] == "max-age=31536000"
        with pytest.raises(httpx.TransportError):
            httpx.get(f"http://127.0.0.1:{live.port}/v1/jobs", headers=client.headers)
        with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
            httpx.get(f"https://127.0.0.1:{live.port}/v1/jobs", trust_env=False)
        assert speaks(live, ssl.TLSVersion.TLSv1_2)
        assert not speaks(live, ssl.TLSVersion.TLSv1_1)
    with bind("127.0.0.1", live.port):
        pass  # it is free again


@pytest.mark.real
def test_as_a_process_it_answers_until_it_is_told_to_end() -> None:
    command = [sys.executable, "-m", "spotweave.deploy.server.run", "--policy", "cheapest", "--port", "0"]
    root = Path(__file__).resolve().parents[3]
    process = subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("listening on http://127.0.0.1:")
        url = line.split()[-1]
        assert httpx.get(f"{url}/readyz", timeout=60.0).json()["policy"] == "cheapest"
        assert httpx.get(f"{url}/v1/jobs", timeout=60.0).status_code == 404
        process.terminate()
        process.communicate(timeout=60)
        assert process.returncode in (0, -15)
    finally:
        process.kill()
        process.wait()


def test_a_service_that_can_accept_nothing_ends(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    with HttpListener(service.app, "127.0.0.1", 0) as listening:
        monkeypatch.setattr(Connections, "enter", failing(ZeroDivisionError()))
        with pytest.raises(httpx.TransportError):
            httpx.get(f"http://127.0.0.1:{listening.port}/healthz", trust_env=False, timeout=30.0)
        wait_until(lambda: not listening.alive())


def test_every_metric_of_the_grafana_dashboard_is_one_that_is_exported() -> None:
    registry = CollectorRegistry()
    Metrics(registry)
    SchedulerMetrics(registry)
    kinds = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}
    exported = {one.name + end for one in registry.collect() for end in kinds[one.type]}
    page = json.loads(GRAFANA.read_text(encoding="utf-8"))
    asked = [target["expr"] for panel in page["panels"] for target in panel["targets"]]
    named = {name for expression in asked for name in re.findall(r"\bspotweave_\w+", expression)}
    assert len(named) > 20
    assert named - exported == set()
