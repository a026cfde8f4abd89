"""A service: the real application and store, tokens of every role, a scheduler that shows what it is told."""

from __future__ import annotations

import asyncio
import base64
import copy
import socket
import ssl
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import httpx
from fastapi import FastAPI

from spotweave.deploy.dashboard.routes import router
from spotweave.deploy.model.clock import VirtualClock
from spotweave.deploy.model.instances import Offer
from spotweave.deploy.model.jobs import JobSpec, JobState, TaskKey
from spotweave.deploy.model.tasks import Phase, TaskReport
from spotweave.deploy.runners.base import Printed
from spotweave.deploy.security.keys import TlsFiles
from spotweave.deploy.security.tokens import AccessTokens, Role
from spotweave.deploy.server.app import create_app
from spotweave.deploy.server.context import ServerSettings
from spotweave.deploy.server.deciding import Deciders
from spotweave.deploy.server.run import HttpListener
from spotweave.deploy.store.intents import CandidateRecord, DecisionRecord, Mode
from spotweave.deploy.store.jobs import Job
from spotweave.deploy.store.store import Store
from tests.deploy.scheduler.worlds import offer

NOW = 1_772_323_200.0
"""2026-03-01 00:00 UTC."""
PATIENCE_S = 30.0
SCRIPT = b"print('hello')\n"

SECRET = "open-sesame"
SCRIPTED: dict[str, Any] = {
    "script": "hello.py",
    "args": [f"--password={SECRET}"],
    "conf": {"spark.hadoop.fs.s3a.secret.key": SECRET},
}
STEP = {"name": "one", **SCRIPTED, "writes": [{"name": "out"}], "minutes": 1.0}
CLIENT = {"name": "one", "config": {"key": SECRET}, "region": "here", "budget_usd": 1.0}
BAGGED = {"name": "one", "command": ["run", f"--password={SECRET}"], "minutes": 1.0}
PERIOD = {"period_s": 10.0, "batch_deadline_s": 20.0}
CONFIGURED = {"run_config": {"key": SECRET}, "deadline_s": 900.0, "epoch_s": 1.0}
WORKS: dict[str, dict[str, Any]] = {
    "spark-batch": {"kind": "spark-batch", **SCRIPTED, "deadline_s": 900.0, "standard_s": 10.0},
    "spark-streaming": {"kind": "spark-streaming", **SCRIPTED, **PERIOD, "batches": 3, "standard_s": 1.0},
    "flower": {"kind": "flower", "app": "app", "rounds": 3, "clients": [CLIENT], **CONFIGURED},
    "bag": {"kind": "bag", "tasks": [BAGGED], "checkpoint": ["save", SECRET]},
    "workflow": {"kind": "workflow", "steps": [STEP]},
}
"""Of every kind, with secrets wherever a job may have some."""


@dataclass
class ToldScheduler:
    """What the service sees of a scheduler."""

    shown: list[Offer] = field(default_factory=lambda: [offer("spot"), offer("sure", "on_demand")])
    passed_s: float | None = NOW
    refusal: str = ""
    checked: list[tuple[JobSpec, str]] = field(default_factory=list)
    printed: dict[tuple[str, int], bytes] = field(default_factory=dict)
    """By task and attempt."""

    def offers(self) -> Sequence[Offer]:
        return self.shown

    def last_pass_s(self) -> float | None:
        return self.passed_s

    def log(self, job: Job, name: str, attempt: int, offset: int, most_bytes: int) -> Printed:
        if (name, attempt) not in self.printed:
            raise ValueError("its instance does not answer")
        whole = self.printed[name, attempt]
        begin = min(offset, len(whole)) if offset >= 0 else max(0, len(whole) + offset)
        return Printed(whole[begin : begin + most_bytes], min(begin + most_bytes, len(whole)))

    def check(self, spec: JobSpec, folder: str) -> None:
        self.checked.append((spec, folder))
        if self.refusal:
            raise ValueError(self.refusal.format(folder=folder))


class Api:
    """Requests to an application, one after the other or at once."""

    def __init__(self, app: FastAPI, token: str | None = None) -> None:
        self.app = app
        self.token = token

    def request(self, method: str, path: str, **arguments: Any) -> httpx.Response:
        return asyncio.run(self._one(method, path, arguments))

    def get(self, path: str, **arguments: Any) -> httpx.Response:
        return self.request("GET", path, **arguments)

    def post(self, path: str, **arguments: Any) -> httpx.Response:
        return self.request("POST", path, **arguments)

    def delete(self, path: str) -> httpx.Response:
        return self.request("DELETE", path)

    def at_once(self, path: str, bodies: Sequence[object]) -> list[httpx.Response]:
        async def all_of_them() -> list[httpx.Response]:
            async with self._client() as client:
                return list(await asyncio.gather(*(client.post(path, json=body) for body in bodies)))

        return asyncio.run(all_of_them())

    async def _one(self, method: str, path: str, arguments: dict[str, Any]) -> httpx.Response:
        async with self._client() as client:
            return await client.request(method, path, **arguments)

    def _client(self) -> httpx.AsyncClient:
        headers = {} if self.token is None else {"Authorization": f"Bearer {self.token}"}
        transport = httpx.ASGITransport(self.app)
        return httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", headers=headers)


@dataclass
class Service:
    app: FastAPI
    store: Store
    jobs: Path
    clock: VirtualClock
    scheduler: ToldScheduler
    tokens: dict[Role, str]

    def as_(self, role: Role | None) -> Api:
        return Api(self.app, None if role is None else self.tokens[role])

    @property
    def submitter(self) -> Api:
        return self.as_(Role.SUBMITTER)

    @property
    def viewer(self) -> Api:
        return self.as_(Role.VIEWER)

    def another(self) -> Api:
        """A second submitter, of whom nothing was heard before."""
        return Api(self.app, AccessTokens(self.store).create("another", Role.SUBMITTER, NOW).text)

    def submit(self, **changes: Any) -> httpx.Response:
        return self.submitter.post("/v1/jobs", json=job_request(**changes))

    def submitted(self, **changes: Any) -> str:
        response = self.submit(**changes)
        assert response.status_code == 201, response.text
        return str(response.json()["job_id"])

    def begin(self, job_id: str, printed: bytes | None = b"", task: str = "main") -> int:
        """One more attempt at a task, which has printed this."""
        with self.store.transaction():
            attempt = self.store.tasks.begin(TaskKey(job_id, task), [], NOW)
        if printed is not None:
            self.scheduler.printed[task, attempt] = printed
        return attempt

    def lose(self, job_id: str, attempt: int) -> None:
        with self.store.transaction():
            self.store.tasks.report_all([TaskReport(TaskKey(job_id, "main"), attempt, Phase.LOST)], NOW)

    def end(
        self,
        job_id: str,
        state: JobState = JobState.FAILED,
        at_s: float = NOW,
        reason: str = "as the test says",
    ) -> None:
        with self.store.transaction():
            self.store.jobs.set_state(job_id, state, at_s, reason)

    def folders(self) -> list[str]:
        return sorted(path.name for path in self.jobs.iterdir()) if self.jobs.exists() else []


def make_service(
    folder: Path, store: Store, deciders: Deciders, dashboard: bool = False, **settings: Any
) -> Service:
    clock, scheduler, jobs = VirtualClock(NOW), ToldScheduler(), folder / "jobs"
    access = AccessTokens(store)
    tokens = {role: access.create(f"the {role}", role, NOW).text for role in Role}
    more = [partial(router, store=store, scheduler=scheduler)] if dashboard else []
    options = ServerSettings(jobs=jobs, **settings)
    app = create_app(options, deciders, store, scheduler, clock, more_routes=more)
    return Service(app, store, jobs, clock, scheduler, tokens)


Make = Callable[..., Service]


@dataclass
class Live:
    service: Service
    port: int
    tls: TlsFiles | None = None

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_S)

    def client(self, role: Role | None = None) -> httpx.Client:
        headers = {} if role is None else {"Authorization": f"Bearer {self.service.tokens[role]}"}
        trusting = False if self.tls is None else ssl.create_default_context(cafile=str(self.tls.certificate))
        scheme = "http" if self.tls is None else "https"
        base, patience = f"{scheme}://127.0.0.1:{self.port}", httpx.Timeout(PATIENCE_S)
        return httpx.Client(
            base_url=base, headers=headers, verify=trusting, timeout=patience, trust_env=False
        )

    def get(self, path: str, role: Role | None = None) -> int:
        with self.client(role) as client:
            return client.get(path).status_code

    def asking_for_events(self, role: Role, query: str = "") -> bytes:
        head = f"GET /v1/events/stream{query} HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        return f"{head}Authorization: Bearer {self.service.tokens[role]}\r\n\r\n".encode()

    def posting_a_job(self, length: int, more: str = "") -> bytes:
        return (
            "POST /v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            f"Authorization: Bearer {self.service.tokens[Role.SUBMITTER]}\r\n"
            f"Content-Length: {length}\r\n{more}\r\n"
        ).encode()

    def sample(self, name: str, labels: dict[str, str] | None = None) -> float:
        registry = self.service.app.state.context.metrics.registry
        return float(registry.get_sample_value(name, labels) or 0.0)

    def cut(self, why: str) -> float:
        return self.sample("spotweave_http_connections_cut_total", {"why": why})


@contextmanager
def serving(service: Service, tls: TlsFiles | None = None) -> Iterator[Live]:
    with HttpListener(service.app, port=0, tls=tls) as listening:
        yield Live(service, listening.port, tls)


def failing(error: Exception) -> Callable[..., Any]:

    def fails(*_: object) -> None:
        raise error

    return fails


def encoded(content: bytes = b"x") -> str:
    return base64.b64encode(content).decode()


def job_request(**changes: Any) -> dict[str, Any]:
    request: dict[str, Any] = {
        "spec": {"name": "hello", "work": {"kind": "spark-batch", "script": "hello.py"}},
        "files": {"hello.py": encoded(SCRIPT)},
    }
    return copy.deepcopy({**request, **changes})


def one_line_error(response: httpx.Response, *statuses: int) -> str:
    """The contract of all errors: one shape, one line; and one of these statuses, if some are given."""
    assert not statuses or response.status_code in statuses, response.text
    body = response.json()
    assert set(body) == {"error"}
    error = body["error"]
    assert isinstance(error, str)
    assert error
    assert "\n" not in error
    return error


def decide(
    store: Store, job_id: str, *candidates: CandidateRecord, mode: Mode = Mode.ACT, policy: str = "spotweave"
) -> None:
    """Record that the first candidate was chosen for a job's main task."""
    chosen, key = candidates[0].offer_id, TaskKey(job_id, "main")
    with store.transaction():
        store.decisions.add(DecisionRecord(NOW, policy, mode, key, candidates, chosen, latency_s=0.004))
