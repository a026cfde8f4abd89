"""The service as a process: ports, TLS, refusals."""

from __future__ import annotations

import ssl
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI

from deploy.security.keys import SecurityError
from deploy.security.listen import INSECURE_WORDS
from deploy.security.roles import Role
from deploy.security.tls import TlsFiles
from deploy.server.app import create_app
from deploy.server.connections import Connections
from deploy.server.deciding import Deciders
from deploy.server.run import HttpListener, ListenError, bind, main
from deploy.server.settings import ServerSettings
from deploy.store.store import Store
from tests.deploy.node.agents import wait_until
from tests.deploy.server.service import HandClock, make_service
from tests.deploy.tls import self_signed


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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--host", "0.0.0.0"], "refusing to listen on 0.0.0.0"),
        (["--host", ""], "refusing to listen on every address"),
        (["--host", "0.0.0.0", "--insecure", "yes"], "expected exactly"),
        (["--policy", "nope"], "no checkpoint at nope"),
        (["--tls-certificate", "x.pem"], "TLS needs both"),
        (["--tls-certificate", "/no/x.pem", "--tls-key", "/no/y.pem"], "cannot read the TLS certificate"),
        (["--database", "sqlite:///:memory:"], "would be lost with the process"),
        (["--host", "no such name"], "refusing to listen"),
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


def test_beyond_loopback_it_needs_tokens_and_tls_both_or_the_words_that_ask_for_neither(
    tmp_path: Path, store: Store, deciders: Deciders
) -> None:
    def refuse(app: FastAPI, tls: TlsFiles | None, why: str, words: str | None = None) -> None:
        with pytest.raises(SecurityError, match=why):
            HttpListener(app, "0.0.0.0", 0, tls, insecure_in_words=words)

    tls = self_signed(tmp_path, time.time())
    bare = create_app(ServerSettings(jobs=tmp_path / "jobs"), deciders, store, clock=HandClock())
    refuse(bare, tls, "without access tokens: set")
    refuse(make_service(tmp_path, store, deciders).app, None, "without a TLS certificate")
    not_asked = make_service(tmp_path, store, deciders, tokens=False).app
    refuse(not_asked, tls, "without access tokens")
    refuse(not_asked, tls, "asked for with 'please'", "please")
    HttpListener(not_asked, "127.0.0.1", 0, insecure_in_words=INSECURE_WORDS).stop()


def test_over_tls_it_answers_and_plain_http_gets_nothing(
    tmp_path: Path, store: Store, deciders: Deciders
) -> None:
    tls = self_signed(tmp_path, time.time())
    made = make_service(tmp_path, store, deciders)
    headers = {"Authorization": f"Bearer {made.tokens[Role.VIEWER]}"}
    with HttpListener(made.app, "127.0.0.1", 0, tls) as service:
        trusting = ssl.create_default_context(cafile=str(tls.certificate))
        answer = httpx.get(f"https://127.0.0.1:{service.port}/v1/jobs", headers=headers, verify=trusting)
        assert answer.status_code == 200
        assert "server" not in answer.headers
        assert answer.headers["Strict-Transport-Security"] == "max-age=31536000"
        with pytest.raises(httpx.TransportError):
            httpx.get(f"http://127.0.0.1:{service.port}/v1/jobs", headers=headers)
    with bind("127.0.0.1", service.port):
        pass  # it is free again


@pytest.mark.real
def test_as_a_process_it_answers_until_it_is_told_to_end() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "deploy.server.run", "--policy", "cheapest", "--port", "0"],
        cwd=Path(__file__).resolve().parents[3],
        stdout=subprocess.PIPE,
        text=True,
    )
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


def test_a_service_that_can_accept_nothing_ends(
    tmp_path: Path, store: Store, deciders: Deciders, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise ZeroDivisionError

    made = make_service(tmp_path, store, deciders)
    with HttpListener(made.app, "127.0.0.1", 0) as service:
        monkeypatch.setattr(Connections, "enter", fails)
        with pytest.raises(httpx.TransportError):
            httpx.get(f"http://127.0.0.1:{service.port}/healthz", trust_env=False, timeout=30.0)
        wait_until(lambda: not service.alive())
