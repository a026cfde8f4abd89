"""Who may do what: every role against every route, and nodes that ask for their token."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from fastapi import FastAPI
from fastapi.routing import APIRoute
from pydantic import BaseModel

from spotweave.deploy.dashboard.routes import HEADERS
from spotweave.deploy.model.clock import VirtualClock
from spotweave.deploy.model.jobs import (
    Flower,
    FlowerClient,
    JobSpec,
    JobState,
    SparkBatch,
    SparkStreaming,
    TaskKey,
)
from spotweave.deploy.model.tasks import Phase, TaskReport
from spotweave.deploy.security.keys import node_pair
from spotweave.deploy.security.tokens import VALID_S, AccessTokens, Role, join_token
from spotweave.deploy.server import errors
from spotweave.deploy.server.app import create_app
from spotweave.deploy.server.context import ServerSettings
from spotweave.deploy.server.deciding import Deciders
from spotweave.deploy.server.routes import join
from spotweave.deploy.store.store import Store
from tests.deploy.server.service import (
    NOW,
    SECRET,
    WORKS,
    Api,
    Make,
    Service,
    encoded,
    job_request,
    one_line_error,
    serving,
)
from tests.deploy.store.cases import add_job, report, request

NEEDED: dict[tuple[str, str], Role | None] = {
    ("GET", "/healthz"): None,
    ("GET", "/readyz"): None,
    ("GET", "/metrics"): Role.VIEWER,
    ("POST", "/v1/decisions"): Role.SUBMITTER,
    ("GET", "/v1/decisions"): Role.VIEWER,
    ("GET", "/v1/decisions/{decision_id}"): Role.VIEWER,
    ("GET", "/v1/jobs"): Role.VIEWER,
    ("POST", "/v1/jobs"): Role.SUBMITTER,
    ("GET", "/v1/jobs/{job_id}"): Role.VIEWER,
    ("DELETE", "/v1/jobs/{job_id}"): Role.SUBMITTER,
    ("GET", "/v1/jobs/{job_id}/explain"): Role.VIEWER,
    ("POST", "/v1/jobs/{job_id}/retry"): Role.SUBMITTER,
    ("GET", "/v1/jobs/{job_id}/logs"): Role.VIEWER,
    ("GET", "/v1/jobs/{job_id}/files"): Role.VIEWER,
    ("GET", "/v1/jobs/{job_id}/files/{path:path}"): Role.VIEWER,
    ("GET", "/v1/instances"): Role.VIEWER,
    ("GET", "/v1/offers"): Role.VIEWER,
    ("GET", "/v1/costs"): Role.VIEWER,
    ("GET", "/v1/events"): Role.VIEWER,
    # Without end: whoever may read it is told 422 for a number that is none, and never gets a stream here.
    ("GET", "/v1/events/stream"): Role.VIEWER,
    ("GET", "/v1/overview"): Role.VIEWER,
}


def routes(service: Service) -> Iterator[tuple[str, str]]:
    """All but the files of the dashboard's page, which everyone gets."""

    def below(found: object) -> Iterator[APIRoute]:
        for route in getattr(found, "routes", []):
            if isinstance(route, APIRoute):
                yield route
            else:
                yield from below(getattr(route, "original_router", None))

    for route in below(service.app):
        for method in route.methods or ():
            if route.path != "/" and not route.path.startswith("/dashboard/"):
                yield method, route.path


def test_every_route_is_in_the_table(unchanged: Service) -> None:
    assert set(routes(unchanged)) == set(NEEDED)


@pytest.mark.parametrize("role", [None, *Role])
@pytest.mark.parametrize(("method", "path"), sorted(NEEDED))
def test_every_role_on_every_route(unchanged: Service, method: str, path: str, role: Role | None) -> None:
    concrete = path.replace("{job_id}", "no-such-job").replace("{decision_id}", "7")
    if path.endswith("/stream"):
        concrete += "?after=none"
    response = unchanged.as_(role).request(method, concrete)
    needed = NEEDED[method, path]
    if needed is None:
        assert response.status_code == 200
    elif role is None:
        one_line_error(response, 401)
        assert response.headers["WWW-Authenticate"] == "Bearer"
    elif not role.allows(needed):
        assert "this needs a" in one_line_error(response, 403)
    else:
        assert response.status_code in (200, 404, 415, 422)


PAGE_POLICY = HEADERS["Content-Security-Policy"]
UNKNOWN = "Bearer spw_000000000000_" + "A" * 43


@pytest.mark.parametrize(
    "header", ["", "Bearer", "Bearer ", "Basic YTpi", UNKNOWN, "bearer \N{SNOWMAN}", "Bearer x y"]
)
def test_what_is_not_a_token_gives_no_access(unchanged: Service, header: str) -> None:
    one_line_error(unchanged.as_(None).get("/v1/jobs", headers={"Authorization": header.encode()}), 401)


def test_revoked_and_expired_tokens_give_no_access(service: Service) -> None:
    access = AccessTokens(service.store)
    short = access.create("short", Role.VIEWER, NOW, valid_s=60.0)
    gone = access.create("gone", Role.VIEWER, NOW)
    for text in (short.text, gone.text):
        assert Api(service.app, text).get("/v1/jobs").status_code == 200
    access.revoke(gone.record.token_id, NOW)
    service.clock.sleep(61.0)
    for text, why in ((short.text, "has expired"), (gone.text, "was revoked")):
        error = one_line_error(Api(service.app, text).get("/v1/jobs"), 401)
        assert why in error
        assert text not in error


def test_without_tokens_this_machine_may_do_everything_and_pages_of_the_web_nothing(make: Make) -> None:
    without_tokens = Api(make(tokens=False).app)
    made = without_tokens.post("/v1/jobs", json=job_request())
    assert made.status_code == 201
    assert without_tokens.delete(f"/v1/jobs/{made.json()['job_id']}").status_code == 200
    # A name that resolves to 127.0.0.1, or a page's request across origins.
    for name, values in (
        ("Host", ("evil.example", "127.0.0.1.evil.example", "", "[::1")),
        ("Origin", ("https://evil.example", "null")),
    ):
        for value in values:
            one_line_error(without_tokens.get("/v1/jobs", headers={name: value}), 403)
    # A form of a page.
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
        one_line_error(without_tokens.post("/v1/jobs", content=b"{}", headers={"Content-Type": kind}), 415)


def test_tokens_need_a_store_and_a_store_a_folder_for_jobs(deciders: Deciders, store: Store) -> None:
    with pytest.raises(ValueError, match="kept in the store"):
        create_app(ServerSettings(), deciders)
    with pytest.raises(ValueError, match="folder for their files"):
        create_app(ServerSettings(), deciders, store)


@pytest.mark.parametrize("path", ["/healthz", "/v1/jobs", "/nowhere", "/openapi.json", "/"])
def test_every_answer_tells_browsers_what_not_to_do_with_it(unchanged: Service, path: str) -> None:
    headers = unchanged.viewer.get(path).headers
    policy = PAGE_POLICY if path == "/" else "default-src 'none'; frame-ancestors 'none'"
    expected = {
        "X-Content-Type-Options": "nosniff",
        "Content-Security-Policy": policy,
        "Referrer-Policy": "no-referrer",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Cache-Control": "no-store",
        # Of plain HTTP it would be ignored.
        "Strict-Transport-Security": None,
    }
    assert {name: headers.get(name) for name in expected} == expected


NODE_TOKEN, LAUNCH = "secret of i1", "token-i1"


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(NOW)


@pytest.fixture
def nodes(store: Store, clock: VirtualClock) -> Api:
    add_job(store)
    request(store)
    app = FastAPI()
    app.include_router(join.router(store, clock))
    errors.install(app)
    return Api(app)


CERTIFICATE = node_pair().certificate


def body(
    token: str | None = None, client_token: str = LAUNCH, certificate: str = CERTIFICATE
) -> dict[str, str]:
    token = token or join_token(NODE_TOKEN, LAUNCH)
    return {"client_token": client_token, "join_token": token, "certificate": certificate}


def test_a_node_gets_its_token_until_it_has_answered(nodes: Api, store: Store) -> None:
    for _ in range(2):
        answer = nodes.post("/v1/join", json=body())
        assert (answer.status_code, answer.json()) == (200, {"node_token": NODE_TOKEN})
    report(store)
    with store.transaction():
        store.instances.ready("i1", NOW)
    assert "not valid" in one_line_error(nodes.post("/v1/join", json=body()), 403)


def test_wrong_tokens_other_launches_and_late_nodes_are_refused_alike(
    nodes: Api, store: Store, clock: VirtualClock
) -> None:
    request(store, "i2")
    of_another = body(join_token("secret of i2", "token-i2"), "token-i2")
    assert nodes.post("/v1/join", json=of_another).status_code == 200
    with store.transaction():
        store.instances.ended("i2", NOW + 1)
    refused = [
        nodes.post("/v1/join", json=body("x" * 43)),
        nodes.post("/v1/join", json=body(client_token="launch-2")),
        nodes.post("/v1/join", json=of_another),
    ]
    clock.sleep(VALID_S)
    assert nodes.post("/v1/join", json=body()).status_code == 200
    clock.sleep(1)
    refused.append(nodes.post("/v1/join", json=body()))
    assert len({one_line_error(one, 403) for one in refused}) == 1


def test_a_malformed_or_huge_body_is_refused(nodes: Api) -> None:
    one_line_error(nodes.post("/v1/join", json={"client_token": LAUNCH}), 422)
    one_line_error(nodes.post("/v1/join", json=body("x" * 5000)), 413)


def test_the_first_certificate_stays_and_another_is_refused(nodes: Api, store: Store) -> None:
    assert nodes.post("/v1/join", json=body("x" * 43)).status_code == 403
    assert store.instances.get("i1").certificate == ""
    assert nodes.post("/v1/join", json=body()).status_code == 200
    assert store.instances.get("i1").certificate == CERTIFICATE
    other = nodes.post("/v1/join", json=body(certificate=node_pair().certificate))
    assert other.status_code == 403
    assert NODE_TOKEN not in other.text
    assert nodes.post("/v1/join", json=body()).status_code == 200
    assert store.instances.get("i1").certificate == CERTIFICATE


def test_what_is_no_certificate_of_a_node_is_refused(nodes: Api, store: Store, tmp_path: Path) -> None:
    rsa = tmp_path / "rsa.pem"
    key = generate_private_key(65537, 2048)
    name = x509.Name([])
    made = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    made = made.serial_number(1).not_valid_before(datetime(2020, 1, 1)).not_valid_after(datetime(2100, 1, 1))
    rsa.write_bytes(made.sign(key, SHA256()).public_bytes(Encoding.PEM))
    for wrong in ("x", "é", CERTIFICATE[:-40], CERTIFICATE * 2, rsa.read_text()):
        refused = nodes.post("/v1/join", json=body(certificate=wrong))
        assert refused.status_code == 422
        assert NODE_TOKEN not in refused.text
    assert store.instances.get("i1").certificate == ""


# What a job was given and says: for its submitter and admins only, wherever it is asked for.


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
        store.tasks.report_all(
            [TaskReport(key, attempt, Phase.FAILED, message=words, details={"log": f"/logs/{SECRET}"})], NOW
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
    service.end(job_id, JobState.CANCELLED, reason=reason)
    assert service.viewer.get(f"/v1/jobs/{job_id}").json()["reason"] == reason


@pytest.mark.parametrize(
    ("model", "hidden", "shown"),
    [
        (JobSpec, "env", "name work resources places profile budget_usd max_user_failures"),
        (SparkBatch, "args conf", "kind script py_files deadline_s standard_s"),
        (SparkStreaming, "args conf", "kind script py_files period_s batch_deadline_s batches standard_s"),
        (Flower, "run_config", "kind app rounds clients deadline_s epoch_s aggregation_s strategy server"),
        (FlowerClient, "config", "name region budget_usd epoch_s cold_s samples"),
    ],
)
def test_of_every_field_it_was_decided_who_sees_it(model: type[BaseModel], hidden: str, shown: str) -> None:
    """A field that is new in a job fails here: decide, and hide it in `deploy.server.views` if need be."""
    assert set(model.model_fields) == {*hidden.split(), *shown.split()}
