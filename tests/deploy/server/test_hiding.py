"""What a job was given and says: for its submitter and admins only, wherever it is asked for."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
from pydantic import BaseModel

from deploy.model.jobs import Flower, FlowerClient, JobSpec, JobState, SparkBatch, SparkStreaming, TaskKey
from deploy.model.tasks import Phase, TaskReport
from deploy.security.tokens import AccessTokens, Role
from tests.deploy.server.service import NOW, SECRET, WORKS, Api, Make, Service, encoded, job_request, serving


def submit(service: Service, work: str) -> str:
    """A job that has secrets everywhere, and failed with them in its last words."""
    request = job_request(files={"hello.py": encoded(), "app/pyproject.toml": encoded()})
    request["spec"] |= {"work": WORKS[work], "env": {"PASSWORD": SECRET}}
    made = service.submit(**request)
    assert made.status_code == 201, made.text
    assert SECRET in made.text
    job_id: str = made.json()["job_id"]
    for task in ("server", made.json()["tasks"][0]["task"]):
        service.scheduler.printed[task, 1] = SECRET.encode()
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


def paths(service: Service, job_id: str) -> Sequence[str]:
    found = service.app.openapi()["paths"]
    return [
        path.replace("{job_id}", job_id)
        for path, about in found.items()
        if "get" in about and not path.endswith(("/stream", "{decision_id}", "{path}"))
    ]


@pytest.mark.real
@pytest.mark.parametrize("work", sorted(WORKS))
def test_others_see_that_there_is_something_and_not_what(make: Make, work: str) -> None:
    service = make(dashboard=True)
    job_id = submit(service, work)
    own_viewer = AccessTokens(service.store).create("the submitter", Role.VIEWER, NOW).text
    told = {
        "a viewer": service.viewer,
        "another submitter": service.another(),
        "its submitter": service.submitter,
        "its submitter's viewer": Api(service.app, own_viewer),
        "an admin": service.as_(Role.ADMIN),
    }
    holding: dict[str, set[str]] = {}
    for who, api in told.items():
        for path in paths(service, job_id):
            response = api.get(path)
            # What its programs print and leave may be anything: others get none of it.
            refused = path.endswith(("/logs", "/files")) and who in ("a viewer", "another submitter")
            assert response.status_code == (403 if refused else 200), (who, path, response.text)
            if SECRET in response.text:
                holding.setdefault(who, set()).add(path)
    of_job = f"/v1/jobs/{job_id}"
    everywhere = {"/v1/jobs", of_job, f"{of_job}/explain", f"{of_job}/logs", "/v1/events", "/v1/overview"}
    assert holding == dict.fromkeys(["its submitter", "its submitter's viewer", "an admin"], everywhere)
    for path in (f"{of_job}/explain", "/v1/events", "/v1/overview"):
        text = told["a viewer"].get(path).text
        assert "(hidden)" in text
        assert "its deadline" in text, "the scheduler's own words are for everyone"


def test_streams_hide_the_same_and_names_of_settings_are_shown(service: Service) -> None:
    job_id = submit(service, "spark-batch")
    with serving(service) as live:
        for role, sees in ((Role.VIEWER, False), (Role.SUBMITTER, True), (Role.ADMIN, True)):
            with live.client(role) as client, client.stream("GET", "/v1/events/stream?after=0") as response:
                found = itertools.takewhile(lambda line: line != "event: job.failed", response.iter_lines())
                assert any(SECRET in line for line in found) is sees
    # Which settings there are is for everyone.
    spec = service.viewer.get(f"/v1/jobs/{job_id}").json()["spec"]
    assert spec["env"] == {"PASSWORD": "(hidden)"}
    assert spec["work"]["args"] == ["(hidden)"]
    assert spec["work"]["conf"] == {"spark.hadoop.fs.s3a.secret.key": "(hidden)"}
    assert spec["work"]["script"] == "hello.py"


@pytest.mark.parametrize("reason", ["cancelled by an admin", ""])
def test_why_a_job_was_cancelled_is_for_everyone(service: Service, reason: str) -> None:
    job_id = service.submitted()
    with service.store.transaction():
        service.store.jobs.set_state(job_id, JobState.CANCELLED, NOW, reason)
    assert service.viewer.get(f"/v1/jobs/{job_id}").json()["reason"] == reason


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
    """A field that is new in a job fails here: decide, and hide it in `deploy.server.views` if need be."""
    assert set(model.model_fields) == {*hidden.split(), *shown.split()}
