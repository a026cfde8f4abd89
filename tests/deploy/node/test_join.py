"""A node that knows only its user data gets its token once; what it asks Compute Engine's metadata server."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from spotweave.deploy.emulator.machine import GceMetadataServer
from spotweave.deploy.node import server
from spotweave.deploy.node.client import NodeClient
from spotweave.deploy.node.config import AgentConfig, PrivateFile
from spotweave.deploy.node.join import JoinConfig, JoinError, join
from spotweave.deploy.node.metadata import ROOT, VARIABLES, GceMetadata, service, url_of
from spotweave.deploy.node.server import Listener, QuietHandler
from spotweave.deploy.providers.local.records import Fate, loopback_address
from spotweave.deploy.security.keys import node_certificate
from spotweave.deploy.security.tokens import join_token, may_join
from spotweave.deploy.yamlfile import ConfigError
from tests.deploy.node.agents import AgentProcess, serving, wait_until
from tests.deploy.runners.patience import dripping

NODE_TOKEN = "n" * 32


def listening(handler: type[QuietHandler]) -> AbstractContextManager[Listener]:
    return serving(Listener("127.0.0.1", 0, handler))


class MetadataAndScheduler(QuietHandler):
    """Answers joins with the server's `codes` first; its `asked` has their bodies."""

    server: Any

    def do_PUT(self) -> None:  # noqa: N802
        self.send(200, b"imds-token")

    def do_GET(self) -> None:  # noqa: N802
        found = {"instance-id": b"i-0123456789abcdef0", "local-ipv4": b"127.0.0.9"}
        self.send(200, found[self.path.rpartition("/")[2]])

    def do_POST(self) -> None:  # noqa: N802
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append(body)
        if self.server.codes:
            self.send(self.server.codes.pop(0), b"{}")
        elif body["join_token"] == join_token(NODE_TOKEN, body["client_token"]):
            self.send(200, json.dumps({"node_token": NODE_TOKEN}).encode())
        else:
            self.send(403, b'{"error": "no"}')


@contextmanager
def services(codes: list[int]) -> Iterator[Any]:
    """Both, with their address as `url`."""
    server: Any
    with listening(MetadataAndScheduler) as server:
        server.asked, server.codes, server.url = [], codes, f"http://127.0.0.1:{server.port}"
        yield server


Joining = tuple[Any, JoinConfig]


@pytest.fixture
def joining(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Joining]:
    """A scheduler that fails, refuses and then answers; and the configuration of a node that asks it."""
    with services([503, 403]) as server:
        monkeypatch.setenv(VARIABLES["ec2"], server.url)
        content = {"scheduler_url": server.url, "port": 7070, "workdir": str(tmp_path / "work")}
        content |= {"client_token": "launch-1", "join_token": join_token(NODE_TOKEN, "launch-1")}
        yield server, JoinConfig.model_validate(content)


def test_a_node_joins_once_for_all_restarts_and_shows_the_same_certificate_each_time(
    tmp_path: Path, joining: Joining
) -> None:
    server, config = joining
    folder = tmp_path / "work" / ".agent"
    # A failure is tried again, a refusal is not.
    with pytest.raises(JoinError, match="refused this node"):
        join(config, 30.0)
    assert len(server.asked) == 2
    assert not (folder / "config.json").exists()
    # The agent that ended so comes back: its scheduler keeps the first certificate that it was shown.
    made = join(config, 30.0)
    assert (made.instance_id, str(made.address), made.port) == ("i-0123456789abcdef0", "127.0.0.9", 7070)
    assert made.token == NODE_TOKEN
    assert [asked["certificate"] for asked in server.asked] == [made.certificate] * 3
    assert node_certificate(made.certificate) == made.certificate
    assert join(config, 30.0) == made
    assert len(server.asked) == 3
    for name in ("config.json", "pair.json"):
        assert (folder / name).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("changes", "metadata", "said"),
    [
        ({"scheduler_url": "http://127.0.0.1:1"}, None, "Connection refused"),
        ({}, "http://127.0.0.1:1", "http://127.0.0.1:1 does not answer"),
        ({"metadata": "gce"}, "127.0.0.1:1", "http://127.0.0.1:1 does not answer"),
    ],
)
def test_who_is_silent_is_given_up_in_the_end(
    joining: Joining,
    monkeypatch: pytest.MonkeyPatch,
    changes: dict[str, str],
    metadata: str | None,
    said: str,
) -> None:
    config = joining[1].model_copy(update=changes)
    if metadata is not None:
        monkeypatch.setenv(VARIABLES[config.metadata], metadata)
    with pytest.raises(JoinError, match=f"could not join within 0 s: .*{said}"):
        join(config, 0.5)


@pytest.mark.parametrize(
    ("kind", "change", "mode", "says"),
    [
        (AgentConfig, {}, 0o644, "chmod 600"),
        (AgentConfig, {"token": "short"}, 0o600, "token"),
        (AgentConfig, {"adress": "127.0.0.1"}, 0o600, "adress"),
        (AgentConfig, {"address": "localhost"}, 0o600, "address"),
        (AgentConfig, {"instance_id": "a/b"}, 0o600, "instance_id"),
        (AgentConfig, {"workdir": "relative"}, 0o600, "workdir"),
        (JoinConfig, {}, 0o644, "chmod 600"),
        (JoinConfig, {}, 0o600, "scheduler_url"),
    ],
)
def test_a_bad_configuration_is_named_without_its_secrets(
    tmp_path: Path, kind: type[PrivateFile], change: dict[str, str], mode: int, says: str
) -> None:
    content = {"instance_id": "i", "address": "127.0.0.1", "workdir": "/tmp/w", "token": "secret-" * 5}
    content |= {"certificate": "c", "key": "k"} | change
    path = tmp_path / "config.json"
    path.write_text(json.dumps(content))
    path.chmod(mode)
    with pytest.raises(ConfigError) as caught:
        kind.load(path)
    assert says in str(caught.value)
    assert content["token"] not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_join_token_is_of_one_launch_and_one_node() -> None:
    right = join_token(NODE_TOKEN, "launch-1")
    assert len(right) == 43
    assert NODE_TOKEN not in right
    for token in (right, join_token(NODE_TOKEN, "launch-2"), join_token("m" * 32, "launch-1"), "é"):
        may = may_join(NODE_TOKEN, "launch-1", token, age_s=60.0, live=True, answered=False)
        assert may == (token == right)


@pytest.fixture
def fates() -> list[Fate]:
    return [Fate()]


@pytest.fixture
def url(fates: list[Fate], monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    address = loopback_address()
    metadata = {"name": "sw-1", "network-interfaces/0/ip": address}
    with serving(GceMetadataServer({"address": address, "metadata": metadata}, lambda: fates[-1])) as server:
        for name, value in server.environment().items():
            monkeypatch.setenv(name, value)
        yield url_of("gce")


def test_maintenance_is_advice_to_leave_and_a_preemption_thirty_seconds_from_when_it_is_first_seen(
    url: str, fates: list[Fate]
) -> None:
    metadata = service("gce", url)
    assert isinstance(metadata, GceMetadata)
    assert metadata.instance_id() == "sw-1"
    assert metadata.address() == url.removeprefix("http://").partition(":")[0]
    assert metadata.interruption_s() is None
    assert not metadata.rebalance()
    now_s = time.time()
    fates.append(Fate(rebalance_s=now_s))
    assert metadata.rebalance()
    assert metadata.interruption_s() is None
    fates.append(Fate(notice_s=now_s, kill_s=now_s + 30))
    ends_s = metadata.interruption_s()
    assert ends_s is not None
    assert now_s + 30 <= ends_s <= time.time() + 30
    # The watcher tells of a notice once: it must stay the same.
    assert metadata.interruption_s() == ends_s


def test_whoever_does_not_say_what_he_asks_gets_nothing(url: str) -> None:
    assert httpx.get(f"{url}{ROOT}name").status_code == 403


# Who holds connections to an agent, or sends a byte now and then, keeps nobody else from it.


class Trusting(QuietHandler):
    """Trusts whoever says so, and then reads on."""

    server: Listener

    def do_GET(self) -> None:  # noqa: N802
        if self.path == "/trusted":
            self.server.trust(self.connection, 60.0)
            self.rfile.read(1)
        self.send(200, b"here")


def connect(made: Listener, said: bytes = b"", host: str = "127.0.0.1") -> socket.socket:
    opened = socket.create_connection(("127.0.0.1", made.port), timeout=30, source_address=(host, 0))
    opened.sendall(said)
    return opened


def closed(opened: socket.socket) -> bool:
    """Whether the other side has given it up; waits for that."""
    with suppress(ConnectionError):
        return opened.recv(1) == b""
    return True


GET = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"


@pytest.mark.real
def test_a_thousand_silent_connections_do_not_keep_the_scheduler_from_an_agent(agent: AgentProcess) -> None:
    with ExitStack() as held:
        for number in range(1000):
            silent = held.enter_context(socket.create_connection((agent.address, agent.port), timeout=30))
            if number % 2:
                # Half of them begin a handshake, which nothing ends.
                silent.sendall(b"\x16\x03\x01\x02\x00")
        shown = agent.pair.certificate
        client = NodeClient(agent.address, agent.port, agent.token, shown, within_s=5.0)
        for _ in range(5):
            assert client.status().instance_id == agent.instance_id


@pytest.mark.real
def test_plain_http_is_not_spoken(agent: AgentProcess) -> None:
    with socket.create_connection((agent.address, agent.port), timeout=30) as plain:
        plain.sendall(b"GET /v1/node HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer x\r\n\r\n")
        assert b"HTTP" not in plain.recv(1000)


@pytest.mark.parametrize("said", [b"", b"GET / HT", b"GET / HTTP/1.1\r\nX: y"])
def test_a_request_not_whole_in_time_is_given_up(monkeypatch: pytest.MonkeyPatch, said: bytes) -> None:
    monkeypatch.setattr(server, "STRANGER_S", 0.3)
    with listening(Trusting) as made, connect(made, said) as slow:
        began_s = time.monotonic()
        with dripping([slow], b"x" * 1000, every_s=0.05):
            assert closed(slow)
        assert time.monotonic() - began_s < 20.0


def test_the_oldest_stranger_makes_room_and_who_is_trusted_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_MOST_OF_ADDRESS", 3)
    with listening(Trusting) as made, ExitStack() as held:
        trusted = held.enter_context(connect(made, b"GET /trusted HTTP/1.1\r\nHost: h\r\n\r\n"))
        wait_until(lambda: not all(about.stranger for about in made._open.values()))
        old, young = (held.enter_context(connect(made)) for _ in range(2))
        wait_until(lambda: len(made._open) == 3)
        served = held.enter_context(connect(made, GET))
        assert closed(old)
        assert served.recv(12) == b"HTTP/1.1 200"
        # What is trusted, and what is younger, goes on.
        trusted.sendall(b"x")
        young.sendall(GET)
        assert trusted.recv(12) == young.recv(12) == b"HTTP/1.1 200"


def test_one_address_takes_no_room_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_MOST_OF_ADDRESS", 2)
    with listening(Trusting) as made, ExitStack() as held:
        other = held.enter_context(connect(made, host="127.0.0.2"))
        wait_until(lambda: len(made._open) == 1)
        crowd = [held.enter_context(connect(made)) for _ in range(5)]
        assert all(closed(one) for one in crowd[:3])
        other.sendall(GET)
        assert other.recv(12) == b"HTTP/1.1 200"


def test_where_all_are_trusted_a_new_one_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_MOST", 1)
    with listening(Trusting) as made, connect(made, b"GET /trusted HTTP/1.1\r\nHost: h\r\n\r\n") as trusted:
        wait_until(lambda: [about.stranger for about in made._open.values()] == [False])
        with connect(made, GET) as refused:
            assert closed(refused)
        trusted.sendall(b"x")
        assert trusted.recv(12) == b"HTTP/1.1 200"
        wait_until(lambda: not made._open)
        with connect(made, GET) as served:
            assert served.recv(12) == b"HTTP/1.1 200"
