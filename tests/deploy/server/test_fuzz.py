"""Whatever is sent, the service does not fail: requests made from its own OpenAPI, valid and not."""

from __future__ import annotations

import copy
import json
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.config import SchemathesisConfig
from schemathesis.core.result import Ok

from spotweave.deploy.security.tokens import Role
from spotweave.deploy.server.admission import Quotas
from spotweave.deploy.server.schemas import DECISION_EXAMPLE, MAX_OFFERS, MAX_TASKS
from tests.deploy.server.service import SCRIPT, WORKS, Make, Service, encoded, job_request, one_line_error
from tests.deploy.server.test_decisions import OFFERS, offer, task

JSON = {"Content-Type": "application/json"}
ENDLESS = "/v1/events/stream"
PLENTY = Quotas(jobs_a_minute=10**6, free_disk_mib=0)
NIGHTLY = pytest.mark.nightly


@pytest.mark.real
@pytest.mark.parametrize("examples", [4, pytest.param(60, marks=NIGHTLY)])
@pytest.mark.parametrize("mode", list(GenerationMode))
def test_nothing_that_is_sent_makes_it_fail(mode: GenerationMode, examples: int, make: Make) -> None:
    service = make(quotas=PLENTY)
    service.submitted()
    schema = schemathesis.openapi.from_asgi("/openapi.json", service.app, config=SchemathesisConfig())
    headers = {"Authorization": f"Bearer {service.tokens[Role.ADMIN]}"}
    answered: Counter[int] = Counter()
    tried = set()
    for result in schema.get_all_operations():
        assert isinstance(result, Ok)
        operation = result.ok()
        if operation.path == ENDLESS:
            continue
        tried.add((operation.method, operation.path))

        @settings(
            max_examples=examples,
            database=None,
            phases=[Phase.explicit, Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy(generation_mode=mode))
        def send(case: Any) -> None:
            response = case.call(headers=headers)
            answered[response.status_code] += 1
            assert response.status_code < 500, (case.as_curl_command(), response.text)
            if response.status_code >= 400:
                one_line_error(response)

        # Of an operation without anything that could be wrong no invalid request can be made.
        with suppress(Unsatisfiable):
            send()
    assert len(tried) >= 14
    assert sum(answered.values()) > 5 * examples
    assert any(status < 300 for status in answered) or mode is GenerationMode.NEGATIVE
    assert any(400 <= status < 500 for status in answered)


ABOUT_IT: dict[str, Any] = {
    "name": "hello",
    "resources": {"instances": 1, "vcpus": 1, "memory_gib": 1.0},
    "places": {"markets": ["spot"], "regions": ["here"]},
    "profile": {"reference_speed": 1.0, "sensitivity": 1.0, "data_gb": 1.0, "checkpoint_interval_s": 1.0},
    "budget_usd": 1.0,
    "env": {"A": "b"},
    "max_user_failures": 2,
}
EXTREMES = {
    "a number of 401 digits": "1" + "0" * 400,
    "a number of 300 digits": "1" + "0" * 299,
    "a number of 5000 digits": "9" * 5000,
    "a fraction of 5000 digits": "0." + "1" * 5000,
    "more than 64 bits": str(2**63),
    "beyond floats": "1e400",
    "nearly beyond floats": "-1e308",
    "nearly nothing": "5e-324",
    "an exponent of 400 digits": "1e" + "9" * 400,
    "not a number": "NaN",
    "infinity": "-Infinity",
    "half a character": '"\\ud800"',
    "a zero character": '"\\u0000"',
    "a long text": '"' + "a" * 100_000 + '"',
    "10000 lists": "[" * 10_000 + "]" * 10_000,
    "10000 objects": '{"a":' * 10_000 + "1" + "}" * 10_000,
    "an open text": '"\\',
    "null": "null",
}


def places(value: object, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Where something else can be put: the whole, and each of its parts."""
    yield path
    parts = value.items() if isinstance(value, dict) else enumerate(value if isinstance(value, list) else ())
    for name, part in parts:
        yield from places(part, (*path, name))


def with_it(value: object, path: tuple[str | int, ...], text: str) -> bytes:
    """As JSON, with a text of JSON in one place."""
    mark = "-- here --"
    changed: Any = copy.deepcopy({"whole": value})
    at = changed
    for name in ("whole", *path)[:-1]:
        at = at[name]
    at[("whole", *path)[-1]] = mark
    return json.dumps(changed["whole"]).replace(json.dumps(mark), text).encode()


@pytest.mark.real
@pytest.mark.parametrize("every", [6, pytest.param(1, marks=NIGHTLY)])
@pytest.mark.parametrize("kind", [*WORKS, "decisions"])
def test_extremes_in_every_place_are_answered_and_what_is_kept_can_be_shown(
    kind: str, every: int, make: Make
) -> None:
    service = make(quotas=PLENTY)
    path, body = "/v1/decisions", {**DECISION_EXAMPLE, "weights": {"money": 1.0}}
    if kind in WORKS:
        content = {"hello.py": "aGk=", "app/pyproject.toml": "aGk="}
        path, body = "/v1/jobs", {"spec": {**ABOUT_IT, "work": WORKS[kind]}, "files": content}
    assert service.submitter.post(path, json=body).status_code < 300
    for number, place in enumerate(places(body)):
        for name, text in list(EXTREMES.items())[number % every :: every]:
            sent = with_it(body, place, text)
            response = service.submitter.post(path, content=sent, headers=JSON)
            assert response.status_code < 500, (place, name, response.text)
            if response.status_code >= 400:
                one_line_error(response)
            elif path == "/v1/jobs":
                shown = service.viewer.get(f"/v1/jobs/{response.json()['job_id']}/explain")
                assert shown.status_code == 200, (place, name, shown.text)
    for listing in ("/v1/jobs", "/v1/events", "/v1/costs", "/v1/decisions"):
        assert service.viewer.get(listing).status_code == 200


WHOLE = json.dumps({"offers": [offer("cheap", price_usd_hour=123.0)], "tasks": []})
HELLO = encoded(SCRIPT)
DIGITS = b"1" * 401
NO_PROJECT = {"spec": {"name": "digits", "work": WORKS["flower"]}, "files": {"app/model.py": HELLO}}


def asked(*tasks: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"offers": OFFERS, "tasks": tasks, **more}


# Route, body, and what the one line holds. Mistakes in what is said:
BAD_BODIES: list[tuple[str, Any, str]] = [
    ("decisions", {"tasks": []}, "offers: Field required"),
    ("decisions", {"offers": OFFERS * 2, "tasks": []}, "two offers are called 'cheap'"),
    ("decisions", asked(task("job"), task("job")), "two tasks are 'job/main'"),
    ("decisions", asked(task("j", here="gone")), "'gone', which is not among the offers"),
    ("decisions", asked(task("j", colour="red")), "tasks.0.colour: Extra inputs"),
    ("decisions", asked(task("j", standard_s="6")), "tasks.0.standard_s: Input should be"),
    ("decisions", asked(task("j", standard_s=-1)), "tasks.0.standard_s"),
    ("decisions", asked(task("j", standard_s=1e300)), "tasks.0.standard_s"),
    ("decisions", asked(task("j", resources={"instances": 10**30})), "instances"),
    ("decisions", asked(task("j"), weights={"luck": 1.0}), "no value component 'luck'"),
    ("decisions", asked(weights={"money": 1e99}), "weights.money"),
    ("decisions", {"offers": [offer(f"o{k}") for k in range(MAX_OFFERS + 1)], "tasks": []}, "offers: Tuple"),
    ("decisions", asked(*(task(f"j{k}") for k in range(MAX_TASKS + 1))), "tasks: Tuple"),
    *(
        ("decisions", WHOLE.replace("123.0", number).encode(), "price_usd_hour")
        for number in ("NaN", "Infinity", "-Infinity", "1e999")
    ),
    ("jobs", job_request(files={"other.py": encoded()}), "came with other.py"),
    ("jobs", NO_PROJECT, "needs 'app/pyproject.toml'"),
    ("jobs", job_request(files={"hello.py": "?"}), "the content of 'hello.py' is not base64"),
    ("jobs", job_request(files={"hello.py": HELLO, "../x": encoded()}), "a file is called '../x'"),
    ("jobs", job_request(files={"hello.py": HELLO, "logs/x": encoded()}), "logs is a name that the service"),
    ("jobs", job_request(request_id="a b"), "request_id"),
    ("jobs", {"spec": {"name": "x"}}, "spec.work: Field required"),
    # What no model needs:
    ("jobs", b'{"spec": ' + DIGITS + b"}", "a number of more than 300 digits"),
    ("jobs", b'{"spec": -0.' + DIGITS + b"e5}", "a number of more than 300 digits"),
    ("jobs", b'{"spec": "\\u0000"}', "a zero character"),
    ("jobs", b'{"\\\\\\u0000": 1}', "a zero character"),
    ("jobs", b'{"spec": "' + DIGITS + b'"}', "spec"),
    ("jobs", b'{"spec": "\\\\u0000 and ' + DIGITS + b'"}', "spec"),
    ("jobs", b'{"spec": "' + b'\\"' * 200_000 + DIGITS, "JSON"),
    ("jobs", b'"' + DIGITS + b"\\", "JSON"),
    *(
        (route, body, "")
        for route in ("decisions", "jobs")
        for body in (b"", b"{", b"[]", b"\xff\xfe", b'{"a": "\\ud800"}', b"[" * 100_000)
    ),
]


@pytest.mark.parametrize(("route", "body", "message"), BAD_BODIES)
def test_a_bad_body_leaves_nothing(unchanged: Service, route: str, body: Any, message: str) -> None:
    began = time.monotonic()
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    response = unchanged.submitter.post(f"/v1/{route}", content=content, headers=JSON)
    assert message in one_line_error(response, 422)
    assert time.monotonic() - began < 10.0, "no text makes it look at everything again and again"
    assert unchanged.folders() == []
    assert unchanged.store.jobs.latest(10) == []
    assert unchanged.store.events.latest(10) == []


@pytest.mark.parametrize("value", ["9" * 5000, "1.5e400", "%00", "%ED%A0%80", "\N{SNOWMAN}", "-1", "[" * 500])
@pytest.mark.parametrize(
    "path",
    [
        "/v1/jobs?limit={}",
        "/v1/jobs?state={}",
        "/v1/costs?by={}",
        "/v1/costs?limit={}",
        "/v1/events?after={}",
        "/v1/events?limit={}",
        "/v1/instances?job_id={}",
        "/v1/instances?ended={}",
        "/v1/overview?limit={}",
        "/v1/decisions/{}",
        "/v1/jobs/{}",
        "/{}",
    ],
)
def test_queries_and_paths_that_make_no_sense_are_refused(unchanged: Service, path: str, value: str) -> None:
    one_line_error(unchanged.viewer.get(path.format(value)), 404, 422)


@pytest.mark.parametrize(
    ("method", "path", "status", "message"),
    [
        ("GET", "/docs", 404, "there is no /docs"),
        ("GET", f"/v1/events?after={2**63}", 422, "query.after"),
        ("GET", "/v1/events?limit=1001", 422, "query.limit"),
        ("GET", "/v1/events?job_id=A", 422, "query.job_id"),
        ("GET", "/v1/overview?limit=0", 422, "query.limit"),
        ("GET", "/v1/overview?limit=101", 422, "query.limit"),
        *(
            (method, f"/v1/jobs/{job_id}{more}", 404, "there is no job")
            for job_id in ("nope", "no-such-job-0123456789")
            for method, more in (("GET", ""), ("GET", "/explain"), ("DELETE", ""))
        ),
        *(
            ("GET", f"/v1/jobs/{job_id}", 422, "path.job_id")
            for job_id in ("A", "a%00b", "%ff", "a" * 81, "'; drop table jobs")
        ),
        ("GET", "/v1/jobs/a%2Fb", 404, ""),
        ("GET", "/v1/jobs/..", 404, ""),
    ],
)
def test_what_is_not_there_or_beyond_bounds_is_refused(
    unchanged: Service, method: str, path: str, status: int, message: str
) -> None:
    assert message in one_line_error(unchanged.submitter.request(method, path), status)


def test_a_description_of_a_job_has_a_size(service: Service) -> None:
    request = job_request()
    request["spec"]["work"] = WORKS["flower"] | {
        "clients": [{"name": f"c{k}", "config": {"a": "b" * 1000}} for k in range(1000)]
    }
    request["files"] = {"app/pyproject.toml": "aGk="}
    assert service.submitter.post("/v1/jobs", json=request).status_code == 201
    request["spec"]["work"]["run_config"] = {"a": "b" * 2**20}
    refused = service.submitter.post("/v1/jobs", json=request)
    assert "expected at most 65536 together" in one_line_error(refused, 422)


def test_a_text_that_only_speaks_of_a_zero_character_is_taken(service: Service) -> None:
    request = job_request()
    request["spec"]["work"]["args"] = ["\\u0000", "1" * 400]
    assert service.submitter.post("/v1/jobs", json=request).status_code == 201
