"""A SuperLink's log, which its ServerApp may fill, and servers whose answers do not end."""

from __future__ import annotations

import os
import socket
import ssl
import stat
import subprocess
import sys
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from spotweave.deploy.runners.flower import superexec
from spotweave.deploy.runners.flower import superlink as superlink_module
from spotweave.deploy.runners.flower.guarded import RUNTIME_TOKEN_FILE_VARIABLE, TOKEN_HEADER, Guard
from spotweave.deploy.runners.flower.settings import JobFiles
from spotweave.deploy.runners.flower.superlink import CERTIFICATE, KEY, Identity, SuperLink, SuperLinkDown
from tests.deploy.hostile import memory
from tests.deploy.runners.patience import Act, drip, peer


@pytest.fixture
def superlink(tmp_path: Path, identity: Identity) -> SuperLink:
    return SuperLink(JobFiles(tmp_path), "127.0.0.1", 1, identity)


def test_the_last_line_of_a_log_of_any_length(superlink: SuperLink) -> None:
    assert superlink.last_line() == ""
    superlink.log.touch()
    os.truncate(superlink.log, 1 << 40)
    with superlink.log.open("a") as file:
        file.write("\nfirst\nno such option\n")
    with memory() as peak:
        assert superlink.last_line() == "no such option"
    assert peak[0] < 16 << 20


def test_a_log_that_grows_without_end_is_cut(superlink: SuperLink, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(superlink_module, "_LOG_MOST_BYTES", 1 << 20)
    superlink.trim_log()
    # As whoever writes to it does.
    with superlink.log.open("ab", buffering=0) as writer:
        writer.write(b"a line\n")
        superlink.trim_log()
        assert superlink.log.read_bytes() == b"a line\n"
        writer.write(b"x" * (2 << 20) + b"\nnewest\n")
        superlink.trim_log()
        writer.write(b"after\n")
    assert superlink.log.stat().st_size < 1 << 20
    assert superlink.log.read_text().endswith("x\nnewest\nafter\n")
    assert "[what came before was more than 1048576 bytes]" in superlink.log.read_text()


def say(connection: socket.socket) -> None:
    connection.recv(65536)
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")


def make(identity: Identity) -> None:
    identity.make("127.0.0.1")
    identity.show()
    for name in ("a", "b"):
        identity.client_key(name)


@pytest.fixture(scope="module")
def identity(tmp_path_factory: pytest.TempPathFactory) -> Identity:
    folder: Path = tmp_path_factory.mktemp("identity")
    made = Identity(folder / "keys", folder / "superlink")
    make(made)
    return made


def superlink_of(identity: Identity, act: Act) -> AbstractContextManager[int]:
    """One that does this to every connection."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(identity.shown / CERTIFICATE, identity.shown / KEY)
    return peer(act, context)


def test_only_the_jobs_own_superlink_is_believed(
    superlink: SuperLink, identity: Identity, tmp_path: Path
) -> None:
    stranger = Identity(tmp_path / "other keys", tmp_path / "shown")
    make(stranger)
    with superlink_of(identity, say) as superlink._port:
        assert superlink.runs() == []
    with superlink_of(stranger, say) as superlink._port, pytest.raises(SuperLinkDown, match="CERTIFICATE"):
        superlink.runs()


@pytest.mark.parametrize(
    ("head", "reason"),
    [
        (b"", "timed out|in time"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1000001\r\n\r\n", "at most 1000000 bytes"),
    ],
)
def test_an_answer_without_end_is_none(
    superlink: SuperLink, identity: Identity, monkeypatch: pytest.MonkeyPatch, head: bytes, reason: str
) -> None:
    monkeypatch.setattr(superlink_module, "_ANSWER_S", 0.5)
    monkeypatch.setattr(superlink_module, "_ANSWER_MOST_BYTES", 1_000_000)
    with superlink_of(identity, drip(head)) as superlink._port, pytest.raises(SuperLinkDown, match=reason):
        superlink.runs()


# Tokens of runs are nobody's to read.


SHOW = """
import pathlib, sys
given = pathlib.Path(sys.argv[sys.argv.index("--token-file") + 1])
found = given.is_file(), given.read_text(), pathlib.Path("/proc/self/cmdline").read_text()
pathlib.Path(sys.argv[1]).write_text(repr(found))
"""


def test_an_app_reads_its_token_and_its_command_line_does_not_say_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[subprocess.Popen[bytes]] = []
    start: Any = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", lambda *args, **options: started.append(start(*args, **options)))
    superexec.launch([sys.executable, "-c", SHOW, str(tmp_path / "found")], "secret")
    assert started[0].wait(60) == 0
    is_file, token, line = eval((tmp_path / "found").read_text())
    assert (is_file, token) == (True, "secret")
    assert "--token-file" in line
    assert "\0secret" not in line


@pytest.mark.real
def test_what_is_started_finds_ours_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    superexec.put_first(tmp_path / "bin")
    done = subprocess.run(["flower-superexec", "--help"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0
    assert "--runtime-api-address" in done.stdout
    which = subprocess.run(["sh", "-c", "command -v flower-superexec"], capture_output=True, text=True)
    assert which.stdout.strip() == str(tmp_path / "bin/flower-superexec")


# Keys and doors.


def contents(identity: Identity) -> dict[Path, bytes]:
    return {file: file.read_bytes() for file in identity.authority.parent.parent.rglob("*.*")}


def test_only_the_owner_reads_them(identity: Identity) -> None:
    files = list(contents(identity))
    assert len(files) == 7 + 5
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    assert {stat.S_IMODE(file.parent.stat().st_mode) for file in files} == {0o700}


def test_a_superlink_is_shown_its_own_secrets_and_no_clients(identity: Identity) -> None:
    shown = {file.name for file in identity.shown.iterdir()}
    assert shown == {"authority.pem", "superlink.pem", "superlink.key", "control.token", "runtime.token"}


def test_what_a_superlink_does_to_its_copies_is_not_believed(tmp_path: Path) -> None:
    identity = Identity(tmp_path / "keys", tmp_path / "superlink")
    make(identity)
    before = contents(identity)
    (tmp_path / "store.key").write_text("the scheduler's")
    for name in ("authority.pem", "superlink.pem", "superlink.key", "control.token", "runtime.token"):
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
    context = ssl.create_default_context(cafile=str(identity.authority))
    with superlink_of(identity, say) as port, socket.create_connection(("127.0.0.1", port)) as plain:
        if trusted:
            context.wrap_socket(plain, server_hostname=host).close()
        else:
            with pytest.raises(ssl.SSLCertVerificationError):
                context.wrap_socket(plain, server_hostname=host)


async def nothing(*_: object) -> None:
    raise AssertionError("not called")


OUTSIDE, HERE, LOOPBACK = "10.0.0.9", "10.0.0.1", "127.0.0.1"
ACQUIRE = "/v1/runtime/acquire-task"
ALONE = [
    ("/v1/fleet/pull-messages", OUTSIDE, "", True),
    ("/v1/control/start-run", OUTSIDE, "", False),
    ("/v1/control/start-run", OUTSIDE, "secret", False),
    ("/v1/control/start-run", HERE, "", False),
    ("/v1/control/start-run", HERE, "wrong", False),
    ("/v1/control/start-run", HERE, "secret", True),
    ("/v1/control/start-run", LOOPBACK, "secret", True),
    ("/v1/runtime/pull-messages", OUTSIDE, "", False),
    ("/v1/runtime/pull-messages", HERE, "", True),
    (ACQUIRE, OUTSIDE, "", False),
    (ACQUIRE, OUTSIDE, "secret", False),
    (ACQUIRE, HERE, "", False),
    (ACQUIRE, HERE, "wrong", False),
    (f"{ACQUIRE}/", HERE, "", False),
    (ACQUIRE, HERE, "secret", True),
    ("/health", OUTSIDE, "", False),
    ("/docs", HERE, "secret", False),
]
WITH_A_PLACED_SERVER = [
    (ACQUIRE, OUTSIDE, "runtime", True),
    (ACQUIRE, OUTSIDE, "secret", False),
    (ACQUIRE, LOOPBACK, "", False),
    ("/v1/runtime/pull-messages", OUTSIDE, "", True),
    ("/v1/control/start-run", LOOPBACK, "runtime", False),
    ("/v1/control/start-run", OUTSIDE, "secret", False),
    ("/v1/control/start-run", LOOPBACK, "secret", True),
]


@pytest.mark.parametrize(
    ("runtime", "path", "client", "token", "allowed"),
    [*(("", *row) for row in ALONE), *(("runtime", *row) for row in WITH_A_PLACED_SERVER)],
)
def test_only_nodes_reach_it_from_outside_and_a_server_elsewhere_fetches_its_run(
    runtime: str, path: str, client: str, token: str, allowed: bool
) -> None:
    guard = Guard(nothing, "secret", runtime)
    headers = [(TOKEN_HEADER.encode(), token.encode())] if token else []
    ends = {"client": (client, 40000), "server": (HERE, 20000)}
    assert guard.allows({"type": "http", "path": path, "headers": headers, **ends}) is allowed
    assert not guard.allows({"type": "websocket", "path": path})


def test_no_job_may_set_where_the_token_is() -> None:
    assert RUNTIME_TOKEN_FILE_VARIABLE.startswith("SPOTWEAVE_")
