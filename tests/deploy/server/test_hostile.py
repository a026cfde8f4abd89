"""Clients that mean harm, over real sockets: on 127.0.0.1 only, and bounded."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import resource
import selectors
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from spotweave.deploy.security.tokens import Role
from spotweave.deploy.server.connections import ConnectionLimits
from spotweave.deploy.store.store import Store
from tests.deploy.node.agents import wait_until
from tests.deploy.runners.patience import dripping
from tests.deploy.server.service import PATIENCE_S, Live, Make, job_request, serving
from tests.deploy.tls import self_signed

pytestmark = pytest.mark.real

HOSTILE = 1000
PROMPT_S = 1.0
HEAD = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n"


Serve = Callable[..., contextlib.AbstractContextManager[Live]]


@pytest.fixture
def serve(make: Make, tmp_path: Path) -> Serve:
    def with_limits(tls: bool = False, more: dict[str, Any] | None = None, **limits: Any) -> Any:
        made = make(connections=ConnectionLimits(**limits), poll_s=0.02, **(more or {}))
        return serving(made, self_signed(tmp_path, time.time()) if tls else None)

    return with_limits


def prompt(live: Live, job_ids: list[str]) -> None:
    """Probes and an admin's cancels, each on a connection of its own, are answered in time."""
    took_s = []
    for job_id in job_ids:
        for role, method, path in ((None, "GET", "/healthz"), (Role.ADMIN, "DELETE", f"/v1/jobs/{job_id}")):
            began = time.monotonic()
            with live.client(role) as client:
                assert client.request(method, path).status_code == 200
            took_s.append(time.monotonic() - began)
    # The machine of the test may be busy for a moment.
    assert sorted(took_s)[len(took_s) // 2] < PROMPT_S, took_s
    assert max(took_s) < PATIENCE_S / 3, took_s


def closed(connections: list[socket.socket], count: int, within_s: float) -> int:
    """How many of them the service has ended, once that many are or the time is over."""
    with selectors.DefaultSelector() as selector:
        for one in connections:
            selector.register(one, selectors.EVENT_READ)
        found = 0
        end = time.monotonic() + within_s
        while found < count and time.monotonic() < end:
            for key, _ in selector.select(timeout=0.2):
                ready = key.fileobj
                assert isinstance(ready, socket.socket)
                try:
                    gone = ready.recv(4096) == b""
                except BlockingIOError:
                    continue
                except OSError:
                    gone = True
                if gone:
                    found += 1
                    selector.unregister(ready)
        return found


@pytest.mark.parametrize(
    ("tls", "text"),
    [(False, HEAD + b"X: y" * 100), (True, b""), pytest.param(False, b"", marks=pytest.mark.nightly)],
)
def test_a_thousand_connections_that_say_little_keep_nobody_waiting(
    serve: Serve, tls: bool, text: bytes
) -> None:
    """Silent ones; some that send a byte now and then; silent ones where a handshake is awaited."""
    with serve(tls, head_within_s=6.0) as live, contextlib.ExitStack() as opened:
        job_ids = [live.service.submitted() for _ in range(4)]
        hostile = [opened.enter_context(live.connect()) for _ in range(HOSTILE)]
        for one in hostile:
            one.setblocking(False)
        with dripping(hostile, text):
            prompt(live, job_ids)
            assert live.cut("evicted") >= HOSTILE - ConnectionLimits().most_each
            assert closed(hostile, HOSTILE, PATIENCE_S) == HOSTILE, "a byte now and then wins no time"
        assert live.cut("refused") == 0


@pytest.mark.parametrize(
    ("first", "then"),
    [
        # A whole request first: the limit holds for the next one too.
        (HEAD + b"\r\n", HEAD + b"X: y" * 100),
        # A body that is not wanted.
        (HEAD + b"Content-Length: 100000\r\n\r\n", b"x" * 1000),
    ],
    ids=["a head", "a body"],
)
def test_what_a_client_drips_wins_it_no_time(serve: Serve, first: bytes, then: bytes) -> None:
    with serve(head_within_s=0.5) as live, live.connect() as one:
        one.sendall(first)
        assert b"200 OK" in one.recv(4096)
        with dripping([one], then):
            assert closed([one], 1, PATIENCE_S) == 1
        assert live.cut("head") == 1


def test_who_does_not_begin_to_speak_tls_is_cut_off(serve: Serve) -> None:
    with serve(tls=True, head_within_s=0.5) as live, live.connect() as silent, live.connect() as half:
        half.sendall(b"\x16\x03\x01")
        assert closed([silent, half], 2, PATIENCE_S) == 2
        # A handshake's socket is closed first and counted then.
        wait_until(lambda: live.cut("head") == 2)
        assert live.get("/healthz") == 200


def test_a_head_without_end_is_refused(serve: Serve) -> None:
    with serve() as live, live.connect() as one:
        one.sendall(HEAD)
        sent = 0
        with contextlib.suppress(OSError):
            while sent < 8 << 20:
                sent += one.send(b"X: " + b"y" * 1000 + b"\r\n")
        assert sent < 8 << 20


def test_who_takes_nothing_of_what_it_asked_for_is_cut_off(serve: Serve, store: Store) -> None:
    with serve(stalled_s=0.5) as live:
        with store.transaction():
            for _ in range(3000):
                store.events.add("thing.happened", 0.0, {"text": "x" * 2000})
        with socket.socket() as one:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            one.settimeout(PATIENCE_S)
            one.connect(("127.0.0.1", live.port))
            one.sendall(live.asking_for_events(Role.VIEWER, "?after=0"))
            wait_until(lambda: live.cut("stalled") > 0)
        wait_until(lambda: not live.sample("spotweave_event_followers"))


def test_more_files_may_be_open_than_the_soft_limit_said(serve: Serve) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(256, hard), hard))
    try:
        with serve():
            assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == min(hard, 65_536)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_out_of_files_an_idle_connection_goes(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.SelectorEventLoop
    accept, left = loop.sock_accept, [0]

    async def exhausted(self: asyncio.SelectorEventLoop, listening: socket.socket) -> Any:
        found = await accept(self, listening)
        if left[0]:
            left[0] -= 1
            found[0].close()
            raise OSError(errno.EMFILE, "Too many open files")
        return found

    monkeypatch.setattr(loop, "sock_accept", exhausted)
    with serve() as live, live.connect() as idle:
        wait_until(lambda: live.sample("spotweave_http_connections") > 0)
        left[0] = 1
        with live.connect():
            assert closed([idle], 1, PATIENCE_S) == 1
        assert live.get("/healthz") == 200
        assert live.cut("evicted") == 1


def test_an_answer_in_parts_to_a_request_in_parts_is_whole(serve: Serve) -> None:
    """The limits are for those who are too slow; this one only dawdles."""
    body = json.dumps(job_request()).encode()
    with serve(head_within_s=3.0) as live:
        head = live.posting_a_job(len(body), "Connection: close\r\n")
        with live.connect() as one:
            for part in (head[:20], head[20:], body[:50], body[50:]):
                one.sendall(part)
                time.sleep(0.1)
            answer = b""
            while part := one.recv(65_536):
                answer += part
        assert b"201 Created" in answer


def test_streams_that_are_asked_for_all_at_once_share_the_places(serve: Serve) -> None:
    with serve(more={"streams": 5, "streams_each": 3}) as live, contextlib.ExitStack() as opened:
        for role, places in ((Role.VIEWER, 3), (Role.ADMIN, 2), (Role.SUBMITTER, 0)):
            asking = [opened.enter_context(live.connect()) for _ in range(12)]
            for one in asking:
                one.sendall(live.asking_for_events(role))
            answers = sorted(one.recv(4096).lower() for one in asking)
            assert all(answer.startswith(b"http/1.1 200") for answer in answers[:places])
            refused = [
                one for one in answers if one.startswith(b"http/1.1 429") and b"retry-after: 30" in one
            ]
            assert len(refused) == 12 - places
        assert live.sample("spotweave_event_followers") == 5
        opened.close()
        wait_until(lambda: not live.sample("spotweave_event_followers"))


def test_an_admins_cancel_does_not_queue_behind_the_requests_of_others(
    serve: Serve, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = threading.Event()
    with serve() as live:
        job_id = live.service.submitted()
        latest = store.jobs.latest

        def slow(*asked: Any) -> Any:
            assert go_on.wait(PATIENCE_S)
            return latest(*asked)

        monkeypatch.setattr(store.jobs, "latest", slow)
        with ThreadPoolExecutor(60) as others:
            asked = [others.submit(live.get, "/v1/jobs", Role.VIEWER) for _ in range(60)]
            try:
                while not any(one.running() for one in asked):
                    time.sleep(0.01)
                time.sleep(0.5)
                with live.client(Role.ADMIN) as admin:
                    assert admin.delete(f"/v1/jobs/{job_id}").json()["state"] == "cancelled"
                assert not any(one.done() for one in asked)
            finally:
                go_on.set()
            assert {one.result() for one in asked} == {200}
