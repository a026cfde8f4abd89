"""What Prometheus is told. Times are in seconds.

| name | labels | what |
|---|---|---|
| spotweave_http_requests_total | method, route, status | answers |
| spotweave_http_request_seconds | route | from the request to the last byte of its answer |
| spotweave_decisions_total | kind, choice | decisions on request; choice: offer, none |
| spotweave_decision_seconds | | of one request for decisions, without HTTP |
| spotweave_decision_net_total | | decisions that the safety net overruled |
| spotweave_event_followers | | open streams of events |
| spotweave_http_connections | | open connections |
| spotweave_http_connections_cut_total | why | why: head, stalled (too slow), evicted, refused (too many) |
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_HTTP_BUCKETS = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0)
_DECISION_BUCKETS = (0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.02, 0.05, 0.1, 0.5)


class Metrics:
    """The metrics of one service, in a registry to which others may add theirs."""

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
            "spotweave_decisions_total",
            "Decisions on request.",
            ("kind", "choice"),
            registry=self.registry,
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
