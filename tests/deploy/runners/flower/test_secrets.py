"""Keys and doors."""

from __future__ import annotations

import socket
import ssl
import stat
import threading
from pathlib import Path
from typing import Any

import pytest

from deploy.runners.flower.guarded import TOKEN_HEADER, Guard
from deploy.runners.flower.identity import Identity


@pytest.fixture(scope="module")
def identity(tmp_path_factory: pytest.TempPathFactory) -> Identity:
    folder = tmp_path_factory.mktemp("identity")
    made = Identity(folder / "keys", folder / "superlink")
    make(made)
    return made


def make(identity: Identity) -> None:
    identity.make("127.0.0.1")
    identity.show()
    for name in ("a", "b"):
        identity.client_key(name)


def contents(identity: Identity) -> dict[Path, bytes]:
    return {file: file.read_bytes() for file in identity.authority.parent.parent.rglob("*.*")}


def test_only_the_owner_reads_them(identity: Identity) -> None:
    files = list(contents(identity))
    assert len(files) == 6 + 4
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    assert {stat.S_IMODE(file.parent.stat().st_mode) for file in files} == {0o700}


def test_a_superlink_is_shown_its_own_secrets_and_no_clients(identity: Identity) -> None:
    shown = {file.name for file in identity.shown_key.parent.iterdir()}
    assert shown == {"authority.pem", "superlink.pem", "superlink.key", "control.token"}


def test_what_a_superlink_does_to_its_copies_is_not_believed(tmp_path: Path) -> None:
    identity = Identity(tmp_path / "keys", tmp_path / "superlink")
    make(identity)
    before = contents(identity)
    (tmp_path / "store.key").write_text("the scheduler's")
    for name in ("authority.pem", "superlink.pem", "superlink.key", "control.token"):
        (tmp_path / "superlink" / name).unlink()
        (tmp_path / "superlink" / name).symlink_to(tmp_path / "store.key")
    assert identity.token() == before[tmp_path / "keys/control.token"].decode()
    identity.show()
    assert (tmp_path / "store.key").read_text() == "the scheduler's"
    (tmp_path / "store.key").unlink()
    assert contents(identity) == before


def test_a_second_time_changes_nothing(identity: Identity) -> None:
    before = contents(identity)
    make(identity)
    assert contents(identity) == before
    assert identity.public_key("a") != identity.public_key("b")
    assert b"PRIVATE" not in identity.public_key("a")


@pytest.mark.parametrize(("host", "trusted"), [("127.0.0.1", True), ("127.0.0.2", False)])
def test_nodes_trust_it_at_its_address_only(identity: Identity, host: str, trusted: bool) -> None:
    server_side = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_side.load_cert_chain(identity.shown_certificate, identity.shown_key)
    client_side = ssl.create_default_context(cafile=str(identity.authority))
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                try:
                    server_side.wrap_socket(connection, server_side=True).close()
                except (ssl.SSLError, OSError):
                    return

        thread = threading.Thread(target=answer)
        thread.start()
        try:
            with socket.create_connection(listener.getsockname()) as plain:
                if trusted:
                    client_side.wrap_socket(plain, server_hostname=host).close()
                else:
                    with pytest.raises(ssl.SSLCertVerificationError):
                        client_side.wrap_socket(plain, server_hostname=host)
        finally:
            thread.join()


def scope(path: str, client: str, token: str) -> dict[str, Any]:
    headers = [(TOKEN_HEADER.encode(), token.encode())] if token else []
    ends = {"client": (client, 40000), "server": ("10.0.0.1", 20000)}
    return {"type": "http", "path": path, "headers": headers, **ends}


async def nothing(*_: object) -> None:
    raise AssertionError("not called")


OUTSIDE, HERE, LOOPBACK = "10.0.0.9", "10.0.0.1", "127.0.0.1"


@pytest.mark.parametrize(
    ("path", "client", "token", "allowed"),
    [
        ("/v1/fleet/pull-messages", OUTSIDE, "", True),
        ("/v1/control/start-run", OUTSIDE, "", False),
        ("/v1/control/start-run", OUTSIDE, "secret", False),
        ("/v1/control/start-run", HERE, "", False),
        ("/v1/control/start-run", HERE, "wrong", False),
        ("/v1/control/start-run", HERE, "secret", True),
        ("/v1/control/start-run", LOOPBACK, "secret", True),
        ("/v1/runtime/pull-messages", OUTSIDE, "", False),
        ("/v1/runtime/pull-messages", HERE, "", True),
        ("/v1/runtime/acquire-task", OUTSIDE, "", False),
        ("/v1/runtime/acquire-task", OUTSIDE, "secret", False),
        ("/v1/runtime/acquire-task", HERE, "", False),
        ("/v1/runtime/acquire-task", HERE, "wrong", False),
        ("/v1/runtime/acquire-task/", HERE, "", False),
        ("/v1/runtime/acquire-task", HERE, "secret", True),
        ("/health", OUTSIDE, "", False),
        ("/docs", HERE, "secret", False),
    ],
)
def test_only_nodes_reach_it_from_outside(path: str, client: str, token: str, allowed: bool) -> None:
    assert Guard(nothing, token="secret").allows(scope(path, client, token)) is allowed
    assert not Guard(nothing, token="secret").allows({"type": "websocket", "path": path})
