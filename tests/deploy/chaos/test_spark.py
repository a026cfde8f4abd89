"""Real Spark jobs to their end, through faults of everything that they run on."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.chaos.checks import check_over
from tests.deploy.chaos.deployment import QUICK, Deployment
from tests.deploy.chaos.faults import plan, strike_all

pytestmark = [pytest.mark.real, pytest.mark.nightly]

JOBS = Path(__file__).parent / "jobs"
COUNTS = {"scheduler": 3, "writer": 3, "instance": 2, "notice": 3, "agent": 1, "worker": 2, "master": 1}
CONF = {**QUICK, "spark.sql.shuffle.partitions": "1"}
TASKS = 24
BATCHES = 30
END_S = 600.0


def batch_spec(name: str, ledger: Path, *args: str, instances: int = 1) -> dict[str, Any]:
    work = {"kind": "spark-batch", "script": "batch.py", "args": [str(TASKS), "0.4", *args], "conf": CONF}
    return {"name": name, "work": work, "resources": {"instances": instances}, "env": {"LEDGER": str(ledger)}}


def stream_spec(ledger: Path) -> dict[str, Any]:
    work = {"kind": "spark-streaming", "script": "stream.py", "conf": CONF, "batches": BATCHES}
    work |= {"period_s": 1.0, "batch_deadline_s": 1.0}
    return {"name": "stream", "work": work, "env": {"LEDGER": str(ledger)}}


def test_spark(deployment: Deployment, seed: int, times: int, tmp_path: Path) -> None:
    faults = plan(seed, {kind: times * count for kind, count in COUNTS.items()})
    ledger, rows, gate = tmp_path / "batches.txt", tmp_path / "rows.jsonl", tmp_path / "gate"
    later = {
        0: batch_spec("first", ledger),
        1: batch_spec("wide", ledger, instances=2),
        # One lasts until all faults are over, so that there is always something to hit.
        4: batch_spec("last", ledger, str(gate)),
        8: batch_spec("second", ledger),
    }
    submitted = [deployment.submit(stream_spec(rows), JOBS, ["stream.py"])]
    for number in strike_all(deployment, faults):
        if number in later:
            submitted.append(deployment.submit(later[number], JOBS, ["batch.py"]))
    gate.touch()
    check_over(deployment, submitted, END_S)
    check_batches(deployment, ledger)
    check_stream(rows)


def check_batches(deployment: Deployment, ledger: Path) -> None:
    """Every batch job is done, with the right result, and begun again only where an attempt was taken off.

    An attempt may be taken off after it said "done": it is not over before its process is.
    """
    jobs = {job_id: job for job_id, job in deployment.jobs().items() if job.spec.name != "stream"}
    taken_off = {
        (event.job_id, event.data["attempt"])
        for event in deployment.store.events.after(0, 1_000_000)
        if event.kind == "task.requeued"
    }
    begun, done = defaultdict[str, list[int]](list), defaultdict[str, list[int]](list)
    for job_id, attempt, what in map(str.split, ledger.read_text().splitlines()):
        {"begun": begun, "done": done}[what][job_id].append(int(attempt))
    sums = [(k, sum(range(k, TASKS, 3))) for k in range(3)]
    for job_id, job in jobs.items():
        *earlier, last = begun[job_id]
        assert [*earlier, last] == sorted({*earlier, last})
        assert {(job_id, attempt) for attempt in earlier} <= taken_off
        assert done[job_id] == sorted({*done[job_id]})
        assert last == done[job_id][-1]
        assert (Path(job.workdir) / "sums").read_text() == repr(sums)


def check_stream(rows: Path) -> None:
    """Every row came; a batch that was repeated was the same batch."""
    kept: dict[int, list[int]] = {}
    for line in rows.read_text().splitlines():
        entry = json.loads(line)
        assert kept.setdefault(entry["batch"], entry["values"]) == entry["values"]
    assert sorted(kept) == list(range(len(kept)))
    assert len(kept) >= BATCHES
    values = [value for batch in sorted(kept) for value in kept[batch]]
    assert values == list(range(len(values)))
