"""Attempts at small jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from deploy.model.jobs import JobSpec, SparkBatch, SparkStreaming, TaskKey
from deploy.model.tasks import Assignment, Node

JOB = "job-1"
SCRIPT = "app.py"


def batch(
    code: str, workdir: Path, nodes: Sequence[Node], attempt: int = 1, conf: Mapping[str, str] | None = None
) -> Assignment:
    """An attempt of a batch job with this script."""
    spec = JobSpec(name="a-job", work=SparkBatch(script=SCRIPT, conf=dict(conf or {})))
    return _assignment(spec, code, workdir, nodes, attempt)


def streaming(
    code: str,
    workdir: Path,
    nodes: Sequence[Node],
    attempt: int = 1,
    batches: int | None = None,
    deadline_s: float = 1.0,
    conf: Mapping[str, str] | None = None,
) -> Assignment:
    """An attempt of a streaming job with this script, a batch each second."""
    work = SparkStreaming(
        script=SCRIPT, period_s=1.0, batch_deadline_s=deadline_s, batches=batches, conf=dict(conf or {})
    )
    return _assignment(JobSpec(name="a-stream", work=work), code, workdir, nodes, attempt)


def _assignment(spec: JobSpec, code: str, workdir: Path, nodes: Sequence[Node], attempt: int) -> Assignment:
    workdir.mkdir(parents=True, exist_ok=True)
    (workdir / SCRIPT).write_text(code)
    return Assignment(TaskKey(workdir.name, "main"), attempt, spec, tuple(nodes), str(workdir))
