"""Who may do what: every role against every route."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.routing import APIRoute

from deploy.security.roles import Role
from deploy.security.tokens import AccessTokens
from deploy.server.app import create_app
from deploy.server.deciding import Deciders
from deploy.server.settings import ServerSettings
from deploy.store.store import Store
from tests.deploy.server.service import NOW, Api, Service, job_request, make_service, one_line_error

OPEN = {("GET", "/healthz"), ("GET", "/readyz")}
NEEDED = {
    ("GET", "/metrics"): Role.VIEWER,
    ("POST", "/v1/decisions"): Role.SUBMITTER,
    ("GET", "/v1/decisions"): Role.VIEWER,
    ("GET", "/v1/decisions/{decision_id}"): Role.VIEWER,
    ("GET", "/v1/jobs"): Role.VIEWER,
    ("POST", "/v1/jobs"): Role.SUBMITTER,
    ("GET", "/v1/jobs/{job_id}"): Role.VIEWER,
    ("DELETE", "/v1/jobs/{job_id}"): Role.SUBMITTER,
    ("GET", "/v1/jobs/{job_id}/explain"): Role.VIEWER,
    ("GET", "/v1/instances"): Role.VIEWER,
    ("GET", "/v1/offers"): Role.VIEWER,
    ("GET", "/v1/costs"): Role.VIEWER,
    ("GET", "/v1/events"): Role.VIEWER,
    # Without end: whoever may read it is told 422 for a number that is none, and never gets a stream here.
    ("GET", "/v1/events/stream"): Role.VIEWER,
}


def routes(service: Service) -> Iterator[tuple[str, str]]:
    def below(found: object) -> Iterator[APIRoute]:
        for route in getattr(found, "routes", []):
            if isinstance(route, APIRoute):
                yield route
            else:
                yield from below(getattr(route, "original_router", None))

    for route in below(service.app):
        for method in route.methods or ():
            yield method, route.path


def test_every_route_is_in_the_table(unchanged: Service) -> None:
    assert set(routes(unchanged)) == OPEN | set(NEEDED)


@pytest.mark.parametrize("role", [None, *Role])
@pytest.mark.parametrize(("method", "path"), sorted(NEEDED))
def test_every_role_on_every_route(unchanged: Service, method: str, path: str, role: Role | None) -> None:
    concrete = path.replace("{job_id}", "no-such-job").replace("{decision_id}", "7")
    if path.endswith("/stream"):
        concrete += "?after=none"
    response = unchanged.as_(role).request(method, concrete)
    if role is None:
        assert response.status_code == 401
        assert response.headers["WWW-Authenticate"] == "Bearer"
        one_line_error(response)
    elif not role.allows(NEEDED[method, path]):
        assert response.status_code == 403
        assert "this needs a" in one_line_error(response)
    else:
        assert response.status_code in (200, 404, 415, 422)


@pytest.mark.parametrize(("method", "path"), sorted(OPEN))
def test_probes_need_no_token(unchanged: Service, method: str, path: str) -> None:
    assert unchanged.as_(None).request(method, path).status_code == 200


UNKNOWN = "Bearer spw_000000000000_" + "A" * 43


@pytest.mark.parametrize(
    "header", ["", "Bearer", "Bearer ", "Basic YTpi", UNKNOWN, "bearer \N{SNOWMAN}", "Bearer x y"]
)
def test_what_is_not_a_token_gives_no_access(unchanged: Service, header: str) -> None:
    response = unchanged.as_(None).get("/v1/jobs", headers={"Authorization": header.encode()})
    assert response.status_code == 401
    one_line_error(response)


def test_revoked_and_expired_tokens_give_no_access(service: Service) -> None:
    access = AccessTokens(service.store)
    short = access.create("short", Role.VIEWER, NOW, valid_s=60.0)
    gone = access.create("gone", Role.VIEWER, NOW)
    for text in (short.text, gone.text):
        assert Api(service.app, text).get("/v1/jobs").status_code == 200
    access.revoke(gone.record.token_id, NOW)
    service.clock.sleep(61.0)
    for text, why in ((short.text, "has expired"), (gone.text, "was revoked")):
        response = Api(service.app, text).get("/v1/jobs")
        assert response.status_code == 401
        error = one_line_error(response)
        assert why in error
        assert text not in error


def test_submitters_cancel_their_own_jobs_and_admins_all(service: Service) -> None:
    other = Api(service.app, AccessTokens(service.store).create("other", Role.SUBMITTER, NOW).text)
    ids = [service.submitter.post("/v1/jobs", json=job_request()).json()["job_id"] for _ in range(2)]
    refused = other.delete(f"/v1/jobs/{ids[0]}")
    assert refused.status_code == 403
    assert "only they or an admin" in one_line_error(refused)
    assert service.store.jobs.get(ids[0]).state.live
    assert service.submitter.delete(f"/v1/jobs/{ids[0]}").status_code == 200
    assert service.as_(Role.ADMIN).delete(f"/v1/jobs/{ids[1]}").status_code == 200


@pytest.fixture
def without_tokens(tmp_path: Path, store: Store, deciders: Deciders) -> Api:
    return Api(make_service(tmp_path, store, deciders, tokens=False).app)


def test_without_tokens_everyone_on_this_machine_may_do_everything(without_tokens: Api) -> None:
    made = without_tokens.post("/v1/jobs", json=job_request())
    assert made.status_code == 201
    assert without_tokens.delete(f"/v1/jobs/{made.json()['job_id']}").status_code == 200


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("Host", host) for host in ("evil.example", "127.0.0.1.evil.example", "", "[::1")),
        ("Origin", "https://evil.example"),
        ("Origin", "null"),
    ],
)
def test_without_tokens_pages_of_the_web_in_a_browser_here_may_not(
    without_tokens: Api, name: str, value: str
) -> None:
    """A name that resolves to 127.0.0.1, or a page's request across origins."""
    response = without_tokens.get("/v1/jobs", headers={name: value})
    assert response.status_code == 403
    one_line_error(response)


def test_a_form_cannot_submit(without_tokens: Api) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
        response = without_tokens.post("/v1/jobs", content=b"{}", headers={"Content-Type": kind})
        assert response.status_code == 415


def test_tokens_need_a_store_and_a_store_a_folder_for_jobs(deciders: Deciders, store: Store) -> None:
    with pytest.raises(ValueError, match="kept in the store"):
        create_app(ServerSettings(), deciders)
    with pytest.raises(ValueError, match="folder for their files"):
        create_app(ServerSettings(), deciders, store)


@pytest.mark.parametrize("path", ["/healthz", "/v1/jobs", "/nowhere", "/openapi.json"])
def test_every_answer_tells_browsers_to_do_nothing_with_it(unchanged: Service, path: str) -> None:
    headers = unchanged.as_(Role.VIEWER).get(path).headers
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Content-Security-Policy"] == "default-src 'none'; frame-ancestors 'none'"
    assert headers["Referrer-Policy"] == "no-referrer"
    assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert headers["Cache-Control"] == "no-store"
    assert "Strict-Transport-Security" not in headers, "of plain HTTP it would be ignored"
