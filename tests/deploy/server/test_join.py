"""`POST /v1/join`: the node's token for its join token, until the node has answered."""

from __future__ import annotations

import pytest
from fastapi import FastAPI

from deploy.model.instances import InstanceReport, InstanceState
from deploy.model.jobs import TaskKey
from deploy.security.joining import VALID_S, join_token
from deploy.server import errors
from deploy.server.routes import join
from deploy.store.store import Store
from tests.deploy.scheduler.cases import offer
from tests.deploy.server.service import NOW, Api, HandClock, one_line_error
from tests.deploy.store.cases import a_job

NODE_TOKEN = "n" * 43


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def api(store: Store, clock: HandClock) -> Api:
    with store.transaction():
        store.jobs.add(a_job("job"))
        store.instances.request(
            "i-1",
            offer("spot"),
            TaskKey("job", "main"),
            client_token="launch-1",
            node_token=NODE_TOKEN,
            now_s=NOW,
        )
    app = FastAPI()
    app.include_router(join.router(store, clock))
    errors.install(app)
    return Api(app)


def body(token: str | None = None, client_token: str = "launch-1") -> dict[str, str]:
    return {"client_token": client_token, "join_token": token or join_token(NODE_TOKEN, "launch-1")}


def test_a_node_gets_its_token_until_it_has_answered(api: Api, store: Store) -> None:
    for _ in range(2):
        answer = api.post("/v1/join", json=body())
        assert (answer.status_code, answer.json()) == (200, {"node_token": NODE_TOKEN})
    report = InstanceReport("i-aws", "launch-1", "spot", "10.0.0.1", 7070, InstanceState.RUNNING, NOW)
    with store.transaction():
        store.instances.report("i-1", report, NOW)
        store.instances.ready("i-1", NOW)
    refused = api.post("/v1/join", json=body())
    assert refused.status_code == 403
    assert "not valid" in one_line_error(refused)


def test_a_wrong_token_an_unknown_launch_and_an_ended_one_are_refused_alike(api: Api, store: Store) -> None:
    said = {
        api.post("/v1/join", json=body("x" * 43)).text,
        api.post("/v1/join", json=body(client_token="launch-2")).text,
    }
    with store.transaction():
        store.instances.ended("i-1", NOW + 1)
    ended = api.post("/v1/join", json=body())
    assert ended.status_code == 403
    assert said == {ended.text}


def test_a_node_that_comes_too_late_is_refused(api: Api, clock: HandClock) -> None:
    clock.time_s = NOW + VALID_S
    assert api.post("/v1/join", json=body()).status_code == 200
    clock.time_s += 1
    assert api.post("/v1/join", json=body()).status_code == 403


def test_a_malformed_or_huge_body_is_refused(api: Api) -> None:
    assert api.post("/v1/join", json={"client_token": "launch-1"}).status_code == 422
    assert api.post("/v1/join", json=body("x" * 5000)).status_code == 413
