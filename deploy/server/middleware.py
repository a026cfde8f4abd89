"""Around every request: its id, the access log, metrics, and an answer whatever happens."""

from __future__ import annotations

import re
import secrets
import time
from http import HTTPStatus

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from spotweave.deploy.server.errors import error_response

_HTTP_BUCKETS = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0)
_DECISION_BUCKETS = (0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.02, 0.05, 0.1, 0.5)


class Metrics:
    """What Prometheus is told of one service, in a registry to which others may add theirs.

    Times are in seconds. `choice` is offer or none; `why` is head or stalled (too slow), evicted or refused
    (too many).
    """

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry if registry is not None else CollectorRegistry()
        self.requests = Counter(
            "spotweave_http_requests_total",
            "Answers to HTTP requests.",
            ("method", "route", "status"),
            registry=self.registry,
        )
        self.request_s = Histogram(
            "spotweave_http_request_seconds",
            "From an HTTP request to the last byte of its answer.",
            ("route",),
            buckets=_HTTP_BUCKETS,
            registry=self.registry,
        )
        self.decisions = Counter(
            "spotweave_decisions_total", "Decisions on request.", ("kind", "choice"), registry=self.registry
        )
        self.decision_s = Histogram(
            "spotweave_decision_seconds",
            "Deciding one request, without HTTP.",
            buckets=_DECISION_BUCKETS,
            registry=self.registry,
        )
        self.net = Counter(
            "spotweave_decision_net_total",
            "Decisions on request that the safety net overruled.",
            registry=self.registry,
        )
        self.followers = Gauge("spotweave_event_followers", "Open streams of events.", registry=self.registry)
        self.connections = Gauge("spotweave_http_connections", "Open connections.", registry=self.registry)
        self.cut = Counter(
            "spotweave_http_connections_cut_total",
            "Connections that were ended because their clients were too slow or too many.",
            ("why",),
            registry=self.registry,
        )


log = structlog.get_logger("server")

_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_METHODS = frozenset({"GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS"})
UNMATCHED = "unmatched"
_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    # Of answers for programs; the page brings its own.
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
)
_OVER_TLS = ((b"strict-transport-security", b"max-age=31536000"),)
"""Without subdomains: the name's other services are not ours to decide about."""


class Observed:
    """Wraps the application. Headers, queries and bodies are never logged: they may hold secrets."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = _request_id(scope)
        state = scope.setdefault("state", {})
        state["request_id"] = request_id
        status = 0
        began = time.perf_counter()

        async def send_on(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = int(message["status"])
                given = list(message.get("headers", []))
                names = {name.lower() for name, _ in given}
                message["headers"] = [
                    *given,
                    (b"x-request-id", request_id.encode()),
                    *((name, value) for name, value in _HEADERS if name not in names),
                    *(_OVER_TLS if scope["scheme"] == "https" else ()),
                ]
            await send(message)

        try:
            await self._app(scope, receive, send_on)
        except Exception:
            log.exception("request failed", request_id=request_id, method=scope["method"], path=scope["path"])
            if not status:
                answer = error_response(
                    HTTPStatus.INTERNAL_SERVER_ERROR,
                    f"the service failed on this request ({request_id}): see its log",
                )
                await answer(scope, receive, send_on)
        finally:
            self._note(scope, status, time.perf_counter() - began)

    def _note(self, scope: Scope, status: int, took_s: float) -> None:
        method = scope["method"] if scope["method"] in _METHODS else "OTHER"
        route = getattr(scope.get("route"), "path", UNMATCHED)
        self._metrics.requests.labels(method, route, str(status)).inc()
        self._metrics.request_s.labels(route).observe(took_s)
        caller = scope["state"].get("caller")
        client = scope.get("client")
        log.info(
            "request",
            request_id=scope["state"]["request_id"],
            method=method,
            path=scope["path"][:200],
            status=status,
            took_ms=round(took_s * 1e3, 2),
            client=None if client is None else client[0],
            token_id=None if caller is None else caller.token_id,
        )


def _request_id(scope: Scope) -> str:
    for name, value in scope["headers"]:
        if name == b"x-request-id" and _REQUEST_ID.fullmatch(value):
            given: str = value.decode()
            return given
    return secrets.token_hex(8)
