"""`POST /v1/join`: the node's token for its join token, until the node has answered."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from fastapi import FastAPI

from deploy.security.tls import node_pair
from deploy.security.tokens import VALID_S, join_token
from deploy.server import errors
from deploy.server.routes import join
from deploy.store.store import Store
from tests.deploy.server.service import NOW, Api, HandClock, one_line_error
from tests.deploy.store.cases import add_job, report, request

NODE_TOKEN, LAUNCH = "secret of i1", "token-i1"


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def api(store: Store, clock: HandClock) -> Api:
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


def test_a_node_gets_its_token_until_it_has_answered(api: Api, store: Store) -> None:
    for _ in range(2):
        answer = api.post("/v1/join", json=body())
        assert (answer.status_code, answer.json()) == (200, {"node_token": NODE_TOKEN})
    report(store)
    with store.transaction():
        store.instances.ready("i1", NOW)
    assert "not valid" in one_line_error(api.post("/v1/join", json=body()), 403)


def test_wrong_tokens_unknown_and_ended_launches_and_late_nodes_are_refused_alike(
    api: Api, store: Store, clock: HandClock
) -> None:
    refused = [
        api.post("/v1/join", json=body("x" * 43)),
        api.post("/v1/join", json=body(client_token="launch-2")),
    ]
    clock.time_s = NOW + VALID_S
    assert api.post("/v1/join", json=body()).status_code == 200
    clock.time_s += 1
    refused.append(api.post("/v1/join", json=body()))
    clock.time_s = NOW
    with store.transaction():
        store.instances.ended("i1", NOW + 1)
    refused.append(api.post("/v1/join", json=body()))
    assert len({one_line_error(one, 403) for one in refused}) == 1


def test_a_malformed_or_huge_body_is_refused(api: Api) -> None:
    one_line_error(api.post("/v1/join", json={"client_token": LAUNCH}), 422)
    one_line_error(api.post("/v1/join", json=body("x" * 5000)), 413)


def test_the_first_certificate_stays_and_another_is_refused(api: Api, store: Store) -> None:
    assert api.post("/v1/join", json=body("x" * 43)).status_code == 403
    assert store.instances.get("i1").certificate == ""
    assert api.post("/v1/join", json=body()).status_code == 200
    assert store.instances.get("i1").certificate == CERTIFICATE
    other = api.post("/v1/join", json=body(certificate=node_pair().certificate))
    assert other.status_code == 403
    assert NODE_TOKEN not in other.text
    assert api.post("/v1/join", json=body()).status_code == 200
    assert store.instances.get("i1").certificate == CERTIFICATE


def test_what_is_no_certificate_of_a_node_is_refused(api: Api, store: Store, tmp_path: Path) -> None:
    rsa = tmp_path / "rsa.pem"
    key = generate_private_key(65537, 2048)
    name = x509.Name([])
    made = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    made = made.serial_number(1).not_valid_before(datetime(2020, 1, 1)).not_valid_after(datetime(2100, 1, 1))
    rsa.write_bytes(made.sign(key, SHA256()).public_bytes(Encoding.PEM))
    for wrong in ("x", "é", CERTIFICATE[:-40], CERTIFICATE * 2, rsa.read_text()):
        refused = api.post("/v1/join", json=body(certificate=wrong))
        assert refused.status_code == 422
        assert NODE_TOKEN not in refused.text
    assert store.instances.get("i1").certificate == ""
