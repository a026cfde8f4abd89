"""The policy server: decisions over HTTP by a process that has one core, with the released policy."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import numpy as np
import psutil

from benchmarks.measurement import ROOT, Measurement, at_most, cpu_s

OFFERS = 20
TASKS = 50
DECISIONS = 1500
WARM_UP = 50
P99_MS = 10.0
PER_SECOND = 200.0


def measure(*, smallest: bool = False) -> Iterator[Measurement]:
    """One request after the other over a kept connection; the client has the other cores."""
    decisions = 3 if smallest else DECISIONS
    with _server() as (process, url), httpx.Client(base_url=url, timeout=60.0) as client:
        body = _request(client)
        headers = {"Content-Type": "application/json"}
        latency_s = []
        began_cpu_s = 0.0
        for number in range(WARM_UP + decisions):
            if number == WARM_UP:
                began_cpu_s = cpu_s(process)
            began_s = time.perf_counter()
            client.post("/v1/decisions", content=body, headers=headers).raise_for_status()
            latency_s.append(time.perf_counter() - began_s)
        spent_s = cpu_s(process) - began_cpu_s
    note = f"{OFFERS} offers, {TASKS} tasks, {decisions} requests"
    p50, p99 = (float(np.percentile(latency_s[WARM_UP:], q)) * 1e3 for q in (50, 99))
    yield at_most("POST /v1/decisions, p50", p50, "ms", note=note)
    yield at_most("POST /v1/decisions, p99", p99, "ms", P99_MS, note=note)
    yield Measurement(
        "POST /v1/decisions, one core",
        decisions / spent_s,
        "decisions/s",
        PER_SECOND,
        note=f"{note}, per CPU second of the server",
    )


def _request(client: httpx.Client) -> bytes:
    """20 offers of several markets and prices, 50 tasks, half with deadlines, as in the API's example."""
    described = client.get("/openapi.json").raise_for_status().json()
    example = described["components"]["schemas"]["DecisionRequest"]["examples"][0]
    offers = [
        {
            **example["offers"][0],
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
            **example["tasks"][0],
            "job_id": f"job-{k}",
            "kind": "deadline" if k % 2 else "general",
            "slack_s": 20_000.0 + 100 * k if k % 2 else None,
            "age_s": float(k),
        }
        for k in range(TASKS)
    ]
    return json.dumps({"offers": offers, "tasks": tasks}).encode()


@contextmanager
def _server() -> Iterator[tuple[psutil.Process, str]]:
    """A policy server on a free port and, where the system can, on one core."""
    process = subprocess.Popen(
        [sys.executable, "-m", "spotweave.deploy.server.run", "--policy", "multicloud", "--port", "0"],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line.startswith("listening on "):
            raise ValueError("the policy server did not start: see python -m spotweave.deploy.server.run")
        watched = psutil.Process(process.pid)
        if hasattr(os, "sched_setaffinity"):
            for thread in watched.threads():
                os.sched_setaffinity(thread.id, {max(os.sched_getaffinity(0))})
        yield watched, line.split()[-1]
    finally:
        process.terminate()
        process.communicate()
