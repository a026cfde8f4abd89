"""The policy server: decisions over HTTP on one core, with the released policy."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Iterator

import httpx
import numpy as np
import structlog

from benchmarks.machine import one_core
from benchmarks.measurement import Measurement
from deploy.server.app import create_app
from deploy.server.deciding import Deciders
from deploy.server.schemas import OFFER_EXAMPLE, TASK_EXAMPLE
from deploy.server.settings import ServerSettings

OFFERS = 20
TASKS = 50
DECISIONS = 1500
WARM_UP = 50
P99_MS = 10.0
PER_SECOND = 200.0


def request_body() -> bytes:
    """20 offers of several markets and prices, 50 tasks with and without deadlines."""
    offers = [
        {
            **OFFER_EXAMPLE,
            "offer_id": f"offer-{k}",
            "market": "on_demand" if k % 4 == 0 else "spot",
            "price_usd_hour": 1.0 if k % 4 == 0 else 0.3 + 0.02 * k,
            "quota": 10,
            "used": k % 5,
            "used_history": [k % 5] * 100,
        }
        for k in range(OFFERS)
    ]
    tasks = [
        {
            **TASK_EXAMPLE,
            "job_id": f"job-{k}",
            "kind": "deadline" if k % 2 else "general",
            "slack_s": 20_000.0 + 100 * k if k % 2 else None,
            "age_s": float(k),
        }
        for k in range(TASKS)
    ]
    return json.dumps({"offers": offers, "tasks": tasks}).encode()


def measure() -> Iterator[Measurement]:
    """One request after the other through the whole application; the socket and the client are not ours."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    try:
        with one_core():
            app = create_app(ServerSettings(tokens=False), Deciders.load("multicloud", "round_cost"))
            latency_s, cpu_s = asyncio.run(_ask(app))
    finally:
        structlog.reset_defaults()
    note = f"{OFFERS} offers, {TASKS} tasks, {DECISIONS} requests"
    p50, p99 = (float(np.percentile(latency_s, q)) * 1e3 for q in (50, 99))
    yield Measurement("POST /v1/decisions, p50", p50, "ms", higher_is_better=False, note=note)
    yield Measurement("POST /v1/decisions, p99", p99, "ms", P99_MS, higher_is_better=False, note=note)
    yield Measurement(
        "POST /v1/decisions, one core", DECISIONS / cpu_s, "decisions/s", PER_SECOND, note=f"{note}, CPU time"
    )


async def _ask(app: object) -> tuple[list[float], float]:
    """Seconds of each request, and CPU seconds of all."""
    transport = httpx.ASGITransport(app)  # type: ignore[arg-type]
    body, headers = request_body(), {"Content-Type": "application/json"}
    latency_s = []
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        for number in range(WARM_UP + DECISIONS):
            if number == WARM_UP:
                began_cpu_s = time.process_time()
            began_s = time.perf_counter()
            response = await client.post("/v1/decisions", content=body, headers=headers)
            latency_s.append(time.perf_counter() - began_s)
            response.raise_for_status()
    return latency_s[WARM_UP:], time.process_time() - began_cpu_s
