"""The scheduler's side: one certificate, and nodes that are hostile, slow or not nodes at all."""

from __future__ import annotations

import datetime as dt
import gc
import json
import socket
import ssl
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from spotweave.deploy.node.client import NodeClient, NodeRefused, NodeUnreachable
from spotweave.deploy.security.keys import Pair, node_pair
from tests.deploy.runners.patience import Act, drip, peer

TOKEN = "t" * 32


@dataclass
class Hostile:
    """Something that listens where a node should, with a certificate, and does as it likes."""

    pair: Pair
    port: int = 0
    heard: bytes = b""

    def client(self, certificate: str | None = None, within_s: float = 1.0) -> NodeClient:
        shown = self.pair.certificate if certificate is None else certificate
        return NodeClient("127.0.0.1", self.port, TOKEN, shown, within_s=within_s)


@contextmanager
def hostile(folder: Path, play: Act, pair: Pair | None = None) -> Iterator[Hostile]:
    node, path = Hostile(pair or node_pair()), folder / "pair.pem"
    path.write_text(node.pair.key + node.pair.certificate)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)

    def act(connection: socket.socket) -> None:
        node.heard += connection.recv(65536)
        play(connection)

    with peer(act, context) as node.port:
        yield node


def answer(body: bytes, code: int = 200) -> Act:
    head = f"HTTP/1.1 {code} x\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    return lambda connection: connection.sendall(head + body)


def a_status(**changes: object) -> bytes:
    now_s = time.time()
    content = {"instance_id": "i-1", "address": "127.0.0.1", "workdir": "/w", "now_s": now_s, **changes}
    return json.dumps(content).encode()


def test_only_the_pinned_certificate_hears_the_token(tmp_path: Path) -> None:
    with hostile(tmp_path, answer(a_status())) as node:
        for shown in (node_pair().certificate, "", "no certificate"):
            with pytest.raises(NodeUnreachable):
                node.client(shown).status()
        assert node.heard == b""
        assert node.client().status().instance_id == "i-1"
        assert f"Authorization: Bearer {TOKEN}".encode() in node.heard


@pytest.mark.real
@pytest.mark.parametrize("heard_bytes", [0, 1])
def test_a_node_that_ends_in_the_handshake_is_unreachable_and_leaves_no_socket(
    heard_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrap = ssl.SSLContext.wrap_socket

    def wrap_late(context: ssl.SSLContext, plain: socket.socket, **options: Any) -> ssl.SSLSocket:
        time.sleep(0.1)  # a peer that hears nothing is gone by then
        return wrap(context, plain, **options)

    monkeypatch.setattr(ssl.SSLContext, "wrap_socket", wrap_late)
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def reset() -> None:
            plain, _ = listener.accept()
            plain.recv(heard_bytes)
            # With no time to linger, closing is a reset.
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            plain.close()

        thread = threading.Thread(target=reset)
        thread.start()
        client = NodeClient("127.0.0.1", listener.getsockname()[1], TOKEN, node_pair().certificate)
        with pytest.raises(NodeUnreachable):
            client.status()
        thread.join()
    gc.collect()  # pytest makes an error of an unclosed socket


def test_a_certificate_that_the_pinned_one_signed_is_another_one(tmp_path: Path) -> None:
    pinned = node_pair()
    issuer = x509.load_pem_x509_certificate(pinned.certificate.encode())
    signer = serialization.load_pem_private_key(pinned.key.encode(), password=None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    private = ec.generate_private_key(ec.SECP256R1())
    child = (
        x509.CertificateBuilder(issuer.subject, x509.Name([]), private.public_key(), 1)
        .not_valid_before(dt.datetime(2020, 1, 1, tzinfo=dt.UTC))
        .not_valid_after(dt.datetime(2100, 1, 1, tzinfo=dt.UTC))
        .sign(signer, hashes.SHA256())
    )
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    key = private.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain).decode()
    shown = Pair(child.public_bytes(pem).decode(), key)
    with hostile(tmp_path, answer(a_status()), shown) as node:
        with pytest.raises(NodeUnreachable):
            node.client(pinned.certificate).status()
        assert node.heard == b""


@pytest.mark.parametrize(
    "play",
    [
        drip(b"", b"H"),
        drip(b"HTTP/1.1 200 x\r\n", b"X-A: b\r\n"),
        drip(b"HTTP/1.1 200 x\r\nX-A: ", b"b"),
        drip(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        drip(b"HTTP/1.1 200 x\r\nContent-Length: 1000000\r\n\r\n", b" "),
        lambda secure: time.sleep(5),
    ],
)
def test_a_byte_now_and_then_gives_no_more_time(tmp_path: Path, play: Act) -> None:
    with hostile(tmp_path, play) as node:
        began_s = time.monotonic()
        with pytest.raises(NodeUnreachable):
            node.client(within_s=0.3).status()
        assert time.monotonic() - began_s < 4.0


def test_who_never_ends_the_handshake_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        client = NodeClient("127.0.0.1", port, TOKEN, node_pair().certificate, within_s=0.3)
        with pytest.raises(NodeUnreachable):
            client.status()


def test_a_node_that_does_not_read_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spotweave.deploy.node.client._FILE_WITHIN_S", 0.2)
    monkeypatch.setattr("spotweave.deploy.node.client._FILE_BYTES_S", 1e12)
    with hostile(tmp_path, lambda secure: time.sleep(30)) as node:
        client = node.client()
        began_s = time.monotonic()
        with pytest.raises(NodeUnreachable):
            client.put_file("f", b"x" * 50_000_000)
        assert time.monotonic() - began_s < 20.0


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 200 x\r\nContent-Length: 1048577\r\n\r\n",
        b"HTTP/1.1 200 x\r\nContent-Length: 99999999999999999999\r\n\r\n",
        b"HTTP/1.1 200 x\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 x\r\nContent-Length: x\r\n\r\n",
        b"HTTP/1.1 200 x\r\n\r\n",
        b"HTTP/1.1 200 x\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 x\r\n" + b"X: y\r\n" * 200 + b"\r\n",
        b"HTTP/1.1 200 x\r\nX: " + b"y" * 100_000 + b"\r\n\r\n",
        b"no HTTP at all\r\n\r\n",
        b"HTTP/1.1 200 x\r\nContent-Length: 10\r\n\r\n{}",
        b"HTTP/1.1 200 x\r\nContent-Length: 2\r\n\r\n[]",
        b"",
    ],
)
def test_answers_are_bounded_and_whole(tmp_path: Path, head: bytes) -> None:
    with hostile(tmp_path, lambda secure: secure.sendall(head)) as node:
        for ask in (node.client().status, lambda: node.client().process("p")):
            with pytest.raises(NodeUnreachable) as caught:
                ask()
            assert "\n" not in str(caught.value)


RUNS = {"process_id": "a", "pid": 1, "state": "running", "started_s": 0.0}


@pytest.mark.parametrize(
    "changes",
    [
        {"now_s": float("nan")},
        {"now_s": 1e300},
        {"now_s": -1.0},
        {"notice_s": float("inf")},
        {"notice_s": 1.0},
        {"notice_s": time.time() + 30 * 86_400.0},
        {"workdir": "/w\nx"},
        {"workdir": "/" + "w" * 5000},
        {"instance_id": "i/../1"},
        {"processes": [{**RUNS, "process_id": "a b"}]},
        {"processes": [{**RUNS, "pid": 10**30}]},
        {"processes": [{**RUNS, "state": "exited", "exit_code": 10**30}]},
        {"processes": [{**RUNS, "process_id": f"p{n}"} for n in range(1001)]},
    ],
)
def test_a_heartbeat_that_cannot_be_is_none(tmp_path: Path, changes: dict[str, object]) -> None:
    with hostile(tmp_path, answer(a_status(**changes))) as node, pytest.raises(NodeUnreachable) as caught:
        node.client().status()
    assert "\n" not in str(caught.value)


def test_a_refusal_is_one_short_line(tmp_path: Path) -> None:
    said = json.dumps({"error": "no\nno\x1b[31m" + "x" * 10_000}).encode()
    with hostile(tmp_path, answer(said, 409)) as node, pytest.raises(NodeRefused) as caught:
        node.client().process("p")
    assert caught.value.code == 409
    assert str(caught.value).startswith("no no [31mx")
    assert len(str(caught.value)) == 300
    with hostile(tmp_path, answer(b"\xff" * 10, 500)) as node, pytest.raises(NodeRefused, match="HTTP 500"):
        node.client().process("p")
