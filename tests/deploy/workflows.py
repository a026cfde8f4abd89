"""Workflows as job files hold them."""

from __future__ import annotations

import json
from typing import Any

from spotweave.deploy.model.jobs import JobSpec


def step(
    name: str, reads: str = "", writes: str = "", minutes: float = 1.0, **changes: Any
) -> dict[str, Any]:
    """A step; files as words, with "!" behind those that stay. It writes NAME-out if nothing is said."""
    outputs = [{"name": one.rstrip("!"), "stays": one.endswith("!")} for one in writes.split()]
    files = {"reads": reads.split(), "writes": outputs or [{"name": f"{name}-out"}]}
    return {"name": name, "script": f"{name}.py", **files, "minutes": minutes, **changes}


def file(name: str, region: str | None = None, *, stays: bool = False, gb: float = 0.0) -> dict[str, Any]:
    return {"name": name, "path": f"data/{name}", "region": region, "stays": stays, "gb": gb}


def workflow(
    *steps: dict[str, Any],
    files: tuple[dict[str, Any], ...] = (),
    deadline_s: float | None = None,
    **job: Any,
) -> JobSpec:
    """A job. Raises ValidationError."""
    work = {"kind": "workflow", "files": files, "steps": steps, "deadline_s": deadline_s}
    return JobSpec.model_validate_json(json.dumps({"name": "flow", "work": work, **job}))
