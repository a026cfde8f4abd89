"""What a job was given and says: for its submitter and admins only, wherever it is asked for."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import httpx
import pytest
from pydantic import BaseModel

from deploy.dashboard import routes as dashboard
from deploy.model.jobs import Flower, FlowerClient, JobSpec, JobState, SparkBatch, SparkStreaming, TaskKey
from deploy.model.tasks import Phase, TaskReport
from deploy.security.roles import Role
from deploy.security.tokens import AccessTokens
from deploy.server.app import create_app
from deploy.server.deciding import Deciders
from deploy.server.run import HttpListener as Listening
from deploy.server.settings import ServerSettings
from tests.deploy.server.service import NOW, Api, Service, job_request

SECRET = "open-sesame"

WORKS: dict[str, dict[str, Any]] = {
    "spark": {
        "kind": "spark-batch",
        "script": "hello.py",
        "args": [f"--password={SECRET}"],
        "conf": {"spark.hadoop.fs.s3a.secret.key": SECRET},
    },
    "flower": {
        "kind": "flower",
        "app": "app",
        "rounds": 3,
        "run_config": {"key": SECRET},
        "clients": [{"name": "one", "config": {"key": SECRET}}],
    },
    "bag": {
        "kind": "bag",
        "tasks": [{"name": "one", "command": ["run", f"--password={SECRET}"], "minutes": 1.0}],
        "checkpoint": ["save", SECRET],
    },
    "workflow": {
        "kind": "workflow",
        "steps": [
            {
                "name": "one",
                "script": "hello.py",
                "args": [f"--password={SECRET}"],
                "conf": {"spark.hadoop.fs.s3a.secret.key": SECRET},
                "writes": [{"name": "out"}],
                "minutes": 1.0,
            }
        ],
    },
}


def submit(service: Service, work: str) -> str:
    """A job that has secrets everywhere, and failed with them in its last words."""
    content = base64.b64encode(b"x").decode()
    request = job_request(files={"hello.py": content, "app/pyproject.toml": content})
    request["spec"] |= {"work": WORKS[work], "env": {"PASSWORD": SECRET}}
    made = service.submitter.post("/v1/jobs", json=request)
    assert made.status_code == 201, made.text
    assert SECRET in made.text
    job_id: str = made.json()["job_id"]
    key = TaskKey(job_id, made.json()["tasks"][0]["task"])
    words = f"no such user: {SECRET}"
    with service.store.transaction():
        store = service.store
        attempt = store.tasks.begin(key, [], NOW)
        store.tasks.report(
            TaskReport(key, attempt, Phase.FAILED, message=words, details={"log": f"/logs/{SECRET}"}), NOW
        )
        store.events.add("task.failed", NOW, {"attempt": 1, "message": words}, key=key)
        store.events.add("task.requeued", NOW, {"attempt": 1, "reason": words}, key=key)
        store.events.add("job.of-a-later-version", NOW, {"error": words}, job_id=job_id)
        store.events.add("task.caught", NOW, {"reason": "its deadline"}, key=key)
        store.jobs.set_state(job_id, JobState.FAILED, NOW, words)
        store.events.add("job.failed", NOW, {"reason": words}, job_id=job_id)
    return job_id


def with_dashboard(service: Service, deciders: Deciders) -> Service:
    service.app = create_app(
        ServerSettings(jobs=service.jobs, poll_s=0.02),
        deciders,
        service.store,
        service.scheduler,
        service.clock,
        more_routes=[lambda context: dashboard.router(context, service.store, service.scheduler)],
    )
    return service


def paths(service: Service, job_id: str) -> Sequence[str]:
    found = service.app.openapi()["paths"]
    return [
        path.replace("{job_id}", job_id)
        for path, about in found.items()
        if "get" in about and not path.endswith(("/stream", "{decision_id}"))
    ]


@pytest.mark.real
@pytest.mark.parametrize("work", sorted(WORKS))
def test_others_see_that_there_is_something_and_not_what(
    service: Service, deciders: Deciders, work: str
) -> None:
    service = with_dashboard(service, deciders)
    job_id = submit(service, work)
    access = AccessTokens(service.store)
    told = {
        "a viewer": Api(service.app, service.tokens[Role.VIEWER]),
        "another submitter": Api(service.app, access.create("other", Role.SUBMITTER, NOW).text),
        "its submitter": service.submitter,
        "its submitter's viewer": Api(service.app, access.create("the submitter", Role.VIEWER, NOW).text),
        "an admin": service.as_(Role.ADMIN),
    }
    holding: dict[str, set[str]] = {}
    for who, api in told.items():
        for path in paths(service, job_id):
            response = api.get(path)
            assert response.status_code == 200, (who, path, response.text)
            if SECRET in response.text:
                holding.setdefault(who, set()).add(path)
    everywhere = {
        "/v1/jobs",
        f"/v1/jobs/{job_id}",
        f"/v1/jobs/{job_id}/explain",
        "/v1/events",
        "/v1/overview",
    }
    assert holding == dict.fromkeys(["its submitter", "its submitter's viewer", "an admin"], everywhere)
    for path in (f"/v1/jobs/{job_id}/explain", "/v1/events", "/v1/overview"):
        text = told["a viewer"].get(path).text
        assert "(hidden)" in text
        assert "its deadline" in text, "the scheduler's own words are for everyone"


def test_a_viewer_still_sees_which_settings_there_are(service: Service) -> None:
    job_id = submit(service, "spark")
    spec = service.as_(Role.VIEWER).get(f"/v1/jobs/{job_id}").json()["spec"]
    assert spec["env"] == {"PASSWORD": "(hidden)"}
    assert spec["work"]["args"] == ["(hidden)"]
    assert spec["work"]["conf"] == {"spark.hadoop.fs.s3a.secret.key": "(hidden)"}
    assert spec["work"]["script"] == "hello.py"


def test_streams_hide_the_same(service: Service) -> None:
    submit(service, "spark")
    with Listening(service.app, port=0) as listening:
        for role, sees in ((Role.VIEWER, False), (Role.SUBMITTER, True), (Role.ADMIN, True)):
            headers = {"Authorization": f"Bearer {service.tokens[role]}"}
            url = f"http://127.0.0.1:{listening.port}/v1/events/stream?after=0"
            found = ""
            with httpx.stream("GET", url, headers=headers, timeout=30.0) as response:
                for line in response.iter_lines():
                    found += line
                    if line == "event: job.failed":
                        break
            assert (SECRET in found) is sees


@pytest.mark.parametrize("reason", ["cancelled by an admin", ""])
def test_why_a_job_was_cancelled_is_for_everyone(service: Service, reason: str) -> None:
    job_id = service.submitter.post("/v1/jobs", json=job_request()).json()["job_id"]
    with service.store.transaction():
        service.store.jobs.set_state(job_id, JobState.CANCELLED, NOW, reason)
    assert service.as_(Role.VIEWER).get(f"/v1/jobs/{job_id}").json()["reason"] == reason


@pytest.mark.parametrize(
    ("model", "hidden", "shown"),
    [
        (JobSpec, "env", "name work resources places profile budget_usd max_user_failures"),
        (SparkBatch, "args conf", "kind script py_files deadline_s standard_s"),
        (SparkStreaming, "args conf", "kind script py_files period_s batch_deadline_s batches standard_s"),
        (Flower, "run_config", "kind app rounds clients deadline_s epoch_s aggregation_s strategy"),
        (FlowerClient, "config", "name region budget_usd epoch_s cold_s samples"),
    ],
)
def test_of_every_field_it_was_decided_who_sees_it(model: type[BaseModel], hidden: str, shown: str) -> None:
    """A field that is new in a job fails here: decide, and hide it in `deploy.server.hiding` if need be."""
    assert set(model.model_fields) == {*hidden.split(), *shown.split()}
