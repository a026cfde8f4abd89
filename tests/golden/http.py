"""Section `http`: the OpenAPI document, and answers of the service over the database of one story."""

from __future__ import annotations

import base64
import json
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from structlog.testing import capture_logs

from spotweave.deploy.security.tokens import Role
from spotweave.deploy.server.deciding import Deciders
from tests.deploy.scheduler.worlds import World, batch, cheap_and_sure
from tests.deploy.server.service import Service, job_request, make_service
from tests.golden.stories import PASSES
from tests.golden.worlds import digest

VIEWER, SUBMITTER, ADMIN = Role.VIEWER, Role.SUBMITTER, Role.ADMIN
JSON = {"Content-Type": "application/json"}


def http() -> list[str]:
    """Paths with their methods, schemas, and what about fifty requests are answered."""
    with tempfile.TemporaryDirectory() as name, capture_logs():
        folder = Path(name)
        world = World(folder, cheap_and_sure(available=lambda now_s: now_s < 1_000_200), settings=PASSES)
        world.submit(batch(work_s=300.0))
        world.until_all_end()
        deciders = Deciders.load("expected_cost", "round_cost")
        service = make_service(folder, world.store, deciders, job_bytes=4000)
        try:
            return [*_described(service.app.openapi()), *_answered(service)]
        finally:
            world.store.close()


def _described(document: dict[str, Any]) -> Iterator[str]:
    document["info"].pop("version")
    yield f"openapi {_digest(document)}"
    for path, methods in sorted(document["paths"].items()):
        for method, about in sorted(methods.items()):
            asked = [
                f"{one['name']}{'' if one.get('required') else '?'}" for one in about.get("parameters", ())
            ]
            fine = [code for code in sorted(about["responses"]) if code < "300"]
            yield " ".join(["openapi", method.upper(), path, *asked, "->", *fine])
    for name, schema in sorted(document["components"]["schemas"].items()):
        required = schema.get("required", ())
        parts = [f"{part}{'' if part in required else '?'}" for part in schema.get("properties", ())]
        yield f"openapi schema {name} {_digest(schema)} {' '.join(parts)}"


def _digest(value: object) -> str:
    return digest(json.dumps(value, sort_keys=True))


def _decision(**changes: Any) -> dict[str, Any]:
    offer: dict[str, Any] = {"provider": "aws", "instance_type": "t", "vcpus": 4, "memory_gib": 16.0}
    offer |= {"region": "r", "zone": "r-a", "quota": 4, "on_demand_usd_hour": 1.0}
    spot = {**offer, "offer_id": "spot", "market": "spot", "price_usd_hour": 0.3, "mean_up_s": 7200.0}
    sure = {**offer, "offer_id": "sure", "market": "on_demand", "price_usd_hour": 1.0}
    task = {"job_id": "j", "kind": "deadline", "standard_s": 600.0, "age_s": 5.0, "slack_s": 900.0}
    return {"offers": [spot, sure], "tasks": [task], **changes}


def _requests() -> Iterator[tuple[Role | None, str, str, dict[str, Any]]]:
    """Who asks for what; "{new}" is the job that was submitted."""
    for path in ("/healthz", "/readyz", "/nowhere", "/v1/jobs", "/metrics"):
        yield None, "GET", path, {}
    for path in (
        "/v1/jobs", "/v1/jobs?limit=0", "/v1/jobs?state=failed", "/v1/jobs?state=lost", "/v1/jobs/job-1",
        "/v1/jobs/none", "/v1/jobs/job-1/explain", "/v1/instances", "/v1/costs", "/v1/costs?by=market",
        "/v1/costs?by=day", "/v1/costs?by=colour", "/v1/events?limit=3", "/v1/events?after=3&limit=2",
        "/v1/events?after=-1", "/v1/offers", "/v1/decisions?limit=1", "/v1/decisions/1", "/v1/decisions/999",
        "/v1/decisions/x",
    ):  # fmt: skip
        yield VIEWER, "GET", path, {}
    yield VIEWER, "PUT", "/v1/jobs", {}
    yield VIEWER, "POST", "/v1/jobs", {"json": job_request()}
    yield VIEWER, "DELETE", "/v1/jobs/job-1", {}
    post = SUBMITTER, "POST", "/v1/jobs"
    yield *post, {"json": job_request(request_id="once")}
    yield *post, {"json": job_request(request_id="once")}
    yield *post, {"json": job_request(request_id="once", spec={**job_request()["spec"], "name": "other"})}
    yield *post, {"json": job_request(files={})}
    yield *post, {"json": job_request(files={"../x.py": ""})}
    yield *post, {"json": job_request(files={"hello.py": "no base64"})}
    yield *post, {"json": job_request(files={"hello.py": base64.b64encode(bytes(4000)).decode()})}
    yield *post, {"json": job_request(spec={"name": "x", "work": {"kind": "dance"}})}
    yield *post, {"json": job_request(spec={"name": "x", "work": {"kind": "spark-batch"}})}
    yield *post, {"json": job_request(colour="red")}
    yield *post, {"content": b"{", "headers": JSON}
    yield *post, {"content": b"name=x"}
    yield SUBMITTER, "GET", "/v1/jobs/{new}", {}
    yield SUBMITTER, "DELETE", "/v1/jobs/job-1", {}
    yield SUBMITTER, "DELETE", "/v1/jobs/{new}", {}
    yield ADMIN, "DELETE", "/v1/jobs/{new}", {}
    yield ADMIN, "DELETE", "/v1/jobs/job-1", {}
    decide = SUBMITTER, "POST", "/v1/decisions"
    yield *decide, {"json": _decision()}
    yield *decide, {"json": _decision(weights={"own_misses": 1.0})}
    yield *decide, {"json": _decision(weights={"luck": 1.0})}
    yield *decide, {"json": _decision(offers=[])}
    yield *decide, {"json": _decision(tasks=[{"job_id": "j"}])}
    yield *decide, {"content": b" " * 3_000_000, "headers": JSON}
    yield VIEWER, "POST", "/v1/decisions", {"json": _decision()}
    yield None, "GET", "/v1/jobs", {"headers": {"Authorization": "Bearer made-up"}}
    yield None, "GET", "/v1/jobs", {"headers": {"Authorization": "Basic eDp5"}}


def _answered(service: Service) -> Iterator[str]:
    names: dict[str, str] = {}
    for instance in service.store.instances.of_job("job-1"):
        names[instance.instance_id] = f"i{len(names) + 1}"
    for role, method, path, arguments in _requests():
        new = next((own for own, name in names.items() if name == "NEW"), "NEW")
        response = service.as_(role).request(method, path.format(new=new), **arguments)
        if response.status_code == 201:
            names[response.json()["job_id"]] = "NEW"
        yield f"{role or 'nobody'} {method} {path} -> {response.status_code} {_body(response.text, names)}"


def _body(text: str, names: dict[str, str]) -> str:
    for own, name in names.items():
        text = text.replace(own, name)
    text = re.sub(r"access token [0-9a-f]{12}", "access token ID", text)
    try:
        body = json.loads(text, parse_float=_rounded)
    except ValueError:
        return re.sub(r"\s+", " ", text)[:80]
    return json.dumps(_steady(body), ensure_ascii=False, separators=(",", ":"))


def _rounded(number: str) -> float:
    return float(number) if float(number) > 1e6 else float(f"{float(number):.6g}")


def _steady(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _steady(one) for key, one in value.items() if key != "latency_s"}
    return [_steady(one) for one in value] if isinstance(value, list) else value
