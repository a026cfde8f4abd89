"""The node agent: real agents on loopback addresses, real processes."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import httpx
import pytest

from spotweave.deploy.node import procfs
from spotweave.deploy.node.agent import Agent
from spotweave.deploy.node.api import NodeStatus, ProcessSpec
from spotweave.deploy.node.client import NodeRefused, NodeUnreachable
from spotweave.deploy.node.config import AgentConfig
from spotweave.deploy.providers.local.records import Fate
from tests.deploy.node.agents import ROOT, AgentProcess, metadata_service, shell, tagged, wait_until

pytestmark = pytest.mark.real


def test_a_process_runs_once_in_the_working_folder_and_is_remembered(agent: AgentProcess) -> None:
    before = time.time()
    started = agent.client.start_process(shell("p", "echo out; echo err >&2; pwd; exit 7"))
    assert started.pid > 0
    assert agent.ended("p") == 7
    status = agent.client.process("p")
    assert status.state == "exited"
    assert status.ended_s is not None
    assert before <= status.started_s <= status.ended_s <= time.time()
    assert agent.client.start_process(shell("p", "echo twice")) == status
    assert agent.client.log("p").decode().splitlines() == ["out", "err", str(agent.workdir)]
    assert agent.client.status().processes == (status,)


def test_the_environment_is_small_and_arguments_never_meet_a_shell(agent: AgentProcess) -> None:
    given = {"COLOUR": "blue", "SPOTWEAVE_NODE_ID": "another"}
    agent.client.start_process(ProcessSpec(process_id="p", argv=("env",), env=given))
    agent.client.start_process(ProcessSpec(process_id="q", argv=("printf", "%s", "$(touch broken); `id` *")))
    assert agent.ended("p") == agent.ended("q") == 0
    found = dict(line.split("=", 1) for line in agent.client.log("p").decode().splitlines())
    assert set(found) == {"PATH", "HOME", "LANG", "COLOUR", "SPOTWEAVE_NODE_ID", "SPOTWEAVE_PROCESS_ID"}
    assert found["COLOUR"] == "blue"
    assert found["SPOTWEAVE_NODE_ID"] == agent.instance_id
    assert found["HOME"] == str(agent.workdir)
    assert agent.client.log("q") == b"$(touch broken); `id` *"
    assert not (agent.workdir / "broken").exists()


def test_stopping_is_polite_first_then_certain(agent: AgentProcess) -> None:
    polite = "trap 'echo bye; exit 5' TERM; echo up; while :; do sleep 0.05; done"
    stubborn = "trap '' TERM; echo up; setsid sleep 1000 & while :; do sleep 0.05; done"
    agent.client.start_process(shell("good", polite))
    agent.client.start_process(shell("bad", stubborn, grace_s=0.3))
    agent.up("good", "bad")
    assert agent.client.stop_process("good", wait_s=30).exit_code == 5
    assert agent.client.log("good") == b"up\nbye\n"
    assert agent.client.stop_process("bad", wait_s=30).exit_code == -signal.SIGKILL
    # What it had started, and what had left its session, went with it.
    assert agent.is_alone()


def test_a_signal_is_for_the_process_and_not_for_its_children(agent: AgentProcess) -> None:
    script = (
        "import signal, subprocess, time\n"
        "child = subprocess.Popen(['sleep', '1000'])\n"
        "signal.signal(signal.SIGPWR, lambda *_: print('decommissioned', child.poll(), flush=True))\n"
        "print('up', flush=True)\n"
        "while True: time.sleep(0.05)\n"
    )
    agent.client.start_process(ProcessSpec(process_id="p", argv=(sys.executable, "-c", script)))
    agent.up("p")
    agent.client.signal("p", "PWR")
    wait_until(lambda: agent.client.log("p") == b"up\ndecommissioned None\n")
    assert agent.client.process("p").state == "running"


@pytest.mark.parametrize("delay_s", [0.0, 0.001, 0.003, 0.01])
def test_an_agent_killed_by_what_it_starts_still_knows_it(agent: AgentProcess, delay_s: float) -> None:
    # At the first of these moments the agent has hardly come back from the fork.
    # It may or may not still answer.
    with suppress(NodeUnreachable):
        agent.client.start_process(shell("p", f"sleep {delay_s}; kill -9 $PPID; sleep 1000"))
    assert agent.popen.wait() == -signal.SIGKILL
    agent.kill()
    agent.start()
    status = agent.client.process("p")
    assert status.state == "running"
    assert status.pid in {process.pid for process in tagged(agent.instance_id)}
    assert agent.client.start_process(shell("p", "exit 0")) == status


def test_a_killed_agent_comes_back_to_what_it_had_started(agent: AgentProcess) -> None:
    # One process ended, one runs on, and one ends while no agent looks.
    agent.client.start_process(shell("done", "exit 4"))
    assert agent.ended("done") == 4
    stubborn = shell("running", "trap '' TERM; echo up; while :; do sleep 0.05; done", 0.3)
    running = agent.client.start_process(stubborn)
    short = agent.client.start_process(shell("short", "sleep 1000 & sleep 1000"))
    agent.up("running")
    agent.kill()
    os.kill(short.pid, signal.SIGKILL)
    agent.start()
    # The next one knows all of them, and claims to know no exit code that it did not see.
    found = {status.process_id: status for status in agent.client.status().processes}
    assert found["done"].exit_code == 4
    assert (found["running"].state, found["running"].pid) == ("running", running.pid)
    wait_until(lambda: agent.client.process("short").state == "unknown")
    assert agent.client.process("short").exit_code is None
    assert agent.client.start_process(shell("running", "exit 0")).pid == running.pid
    # And can still end them.
    wait_until(lambda: agent.client.stop_process("running").state == "unknown")
    assert agent.is_alone()


def test_an_agent_killed_between_start_and_note_finds_the_process(agent: AgentProcess) -> None:
    started = agent.client.start_process(shell("p", "sleep 1000"))
    agent.kill()
    # The intent is on the disk, the PID is not: as if the kill had come in between. "q" was never born.
    with agent.notes() as content:
        content["processes"][0].update(pid=0, start_ticks=0)
        content["processes"].append({**content["processes"][0], "process_id": "q"})
    agent.start()
    found = agent.client.process("p")
    assert (found.state, found.pid) == ("running", started.pid)
    assert agent.client.process("q").state == "unknown"


def test_a_reused_pid_is_not_taken_for_the_process(agent: AgentProcess) -> None:
    agent.client.start_process(shell("p", "sleep 1000"))
    agent.kill()
    time.sleep(2 / os.sysconf("SC_CLK_TCK"))  # a start time has ticks of 10 ms: of the same tick is the same
    with subprocess.Popen(["sleep", "1000"]) as stranger:
        with agent.notes() as content:
            content["processes"][0]["pid"] = stranger.pid
        agent.start()
        assert agent.client.process("p").state == "unknown"
        agent.client.signal("p", "TERM")
        agent.client.stop_process("p")
        assert stranger.poll() is None
        stranger.kill()


def test_only_one_agent_per_working_folder(agent: AgentProcess) -> None:
    command = [sys.executable, "-m", "spotweave.deploy.node", "--config", str(agent.config)]
    second = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert second.returncode == 2
    assert second.stderr == f"another agent runs in {agent.workdir}: end it first\n"


def test_logs_are_read_in_pieces(agent: AgentProcess) -> None:
    agent.client.start_process(shell("p", "head -c 2500000 /dev/zero | tr '\\0' x; echo end"))
    assert agent.ended("p") == 0
    pieces = [agent.client.log("p", offset) for offset in (0, 1 << 20, 2 << 20)]
    assert [len(piece) for piece in pieces] == [1 << 20, 1 << 20, 2500004 - (2 << 20)]
    assert pieces[-1].endswith(b"xend\n")
    assert agent.client.last_log("p", 6) == b"xxend\n"[-6:]
    assert len(agent.client.last_log("p", 10**9)) == 1 << 20
    assert agent.client.log("p", offset=10**9) == b""


def test_files_are_read_by_whole_and_no_link_or_pipe_is_followed(agent: AgentProcess, tmp_path: Path) -> None:
    big = os.urandom(5_000_000)
    agent.client.put_file("data/big file", big)
    for most in (len(big), 10**9, 7):
        assert agent.client.get_file("data/big file", most) == big[:most]
    agent.client.put_file("data/in put.bin", big)
    agent.client.put_file("data/in put.bin", b"new")
    assert (agent.workdir / "data" / "in put.bin").read_bytes() == b"new"
    assert (agent.workdir / "data" / "in put.bin").stat().st_mode & 0o077 == 0
    (tmp_path / "secret").write_text("of another")
    (agent.workdir / "link").symlink_to(tmp_path / "secret")
    (agent.workdir / "near").symlink_to(agent.workdir / "data" / "big file")
    os.mkfifo(agent.workdir / "pipe")
    refused = {}
    for path in ("missing", "link", "near", "pipe", "data", ".agent/processes.json"):
        with pytest.raises(NodeRefused) as refusal:
            agent.client.get_file(path, 10)
        refused[path] = refusal.value.code
    codes = {"missing": 404, "link": 400, "near": 500, "pipe": 500, "data": 500}
    assert refused == {**codes, ".agent/processes.json": 400}


OUTSIDE = ("../out", "a/../../out", "/etc/passwd", "a//b", ".", "a/./b", "link/out", "", "a\0b")


@pytest.mark.parametrize("path", [*OUTSIDE, ".agent/processes.json"])
def test_no_path_leads_out_of_the_working_folder(agent: AgentProcess, tmp_path: Path, path: str) -> None:
    (tmp_path / "out").write_text("mine")
    (agent.workdir / "link").symlink_to(tmp_path)
    quoted = "".join(f"%{byte:02x}" for byte in path.encode())
    code, _ = raw(agent, "PUT", f"/v1/files/{quoted}", b"x")
    assert code == 400
    assert (tmp_path / "out").read_text() == "mine"


def trusting(agent: AgentProcess) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=agent.pair.certificate)
    context.check_hostname = False
    return context


@contextmanager
def talking(agent: AgentProcess) -> Iterator[ssl.SSLSocket]:
    """A connection after its handshake."""
    with (
        socket.create_connection((agent.address, agent.port), timeout=30) as plain,
        trusting(agent).wrap_socket(plain) as secure,
    ):
        yield secure


def raw(
    agent: AgentProcess, method: str, path: str, body: bytes | None = None, **headers: str
) -> tuple[int, dict[str, str]]:
    """A request that NodeClient would not make."""
    connection = http.client.HTTPSConnection(agent.address, agent.port, timeout=30, context=trusting(agent))
    given = {"Authorization": f"Bearer {agent.token}", **headers}
    with closing(connection):
        connection.request(method, path, body=body, headers=given)
        response = connection.getresponse()
        content = response.read()
        return response.status, json.loads(content) if content.startswith(b"{") else {}


@pytest.mark.parametrize(
    "given", ["", "Bearer ", "Bearer wrong", "Basic {token}", "{token}", "Bearer {token}x", "Bearer ä"]
)
def test_without_the_token_it_is_deaf(agent: AgentProcess, given: str) -> None:
    header = given.format(token=agent.token).encode().decode("latin-1")
    asked = [
        ("GET", "/v1/node"),
        ("PUT", "/v1/processes/p"),
        ("POST", "/v1/processes/p/signal"),
        ("GET", "/x"),
    ]
    for method, path in asked:
        assert raw(agent, method, path, b"{}", Authorization=header)[0] == 401
    assert agent.client.status().processes == ()


@pytest.mark.parametrize(
    ("method", "path", "body", "code"),
    [
        ("GET", "/", None, 404),
        ("GET", "/v1/processes/none", None, 404),
        ("GET", "/v1/processes/none/log", None, 404),
        ("DELETE", "/v1/processes/none", None, 404),
        ("POST", "/v1/processes/none/signal", b'{"signal": "TERM"}', 404),
        ("POST", "/v1/processes/none/signal", b'{"signal": "KILL"}', 400),
        ("POST", "/v1/processes/none", b"{}", 405),
        ("GET", "/v1/processes/none/signal", None, 405),
        ("PUT", "/v1/processes/p", b"", 400),
        ("PUT", "/v1/processes/p", b'{"process_id": "q", "argv": ["true"]}', 400),
        ("PUT", "/v1/processes/p", b'{"process_id": "p", "argv": []}', 400),
        ("PUT", "/v1/processes/p", b'{"process_id": "p", "argv": ["a\\u0000b"]}', 422),
        ("PUT", "/v1/processes/p", b'{"process_id": "p", "argv": ["true"], "shell": true}', 400),
        ("PUT", "/v1/processes/" + "p" * 121, b"{}", 404),
        ("PUT", "/v1/processes/p%2f..", b"{}", 404),
        ("PUT", "/v1/processes/p", b'{"process_id": "p", "argv": ["true"], "stop_grace_s": NaN}', 400),
        ("PUT", "/v1/processes/p", b" " * ((1 << 20) + 1), 413),
        ("PATCH", "/v1/node", None, 501),
    ],
)
def test_what_makes_no_sense_is_refused(
    agent: AgentProcess, method: str, path: str, body: bytes | None, code: int
) -> None:
    answered, content = raw(agent, method, path, body)
    assert answered == code
    if code != 501:
        assert "\n" not in content["error"]
    assert agent.client.status().processes == ()


def test_sizes_are_bounded_before_anything_is_read(agent: AgentProcess) -> None:
    head = f"PUT /v1/files/f HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {agent.token}\r\nContent-Length: "
    for length, code in (("99999999999999", b"413"), ("-1", b"411"), ("x", b"411")):
        with talking(agent) as connection:
            connection.sendall(f"{head}{length}\r\n\r\n".encode())
            assert connection.recv(100).split(b" ")[1] == code
    # A body that ends early leaves nothing.
    with talking(agent) as connection, suppress(OSError):
        connection.sendall(f"{head}100\r\n\r\nhalf".encode())
        connection.unwrap()
    wait_until(lambda: [path.name for path in agent.workdir.iterdir()] == [".agent"])


def test_a_notice_from_the_metadata_service_drains_the_node(tmp_path: Path) -> None:
    with metadata_service() as (server, fates), AgentProcess(tmp_path, imds_url=server.url) as agent:
        asked = "trap 'echo asked' TERM; trap 'echo more' USR1; echo up; while :; do sleep 0.05; done"
        agent.client.start_process(shell("stays", asked))
        saver = "trap 'echo saved; exit 3' INT; echo up; while :; do sleep 0.05; done"
        agent.client.start_process(shell("saves", saver, stop="INT"))
        agent.up("stays", "saves")
        # When it recommends to leave, the node only says so.
        now = time.time()
        fates.append(Fate(rebalance_s=now))
        wait_until(lambda: agent.client.status().rebalance)
        assert not agent.client.status().draining
        # When the notice comes, each process is asked to stop, and once only.
        for within_s in (120.0, 100.0):
            fates.append(Fate(rebalance_s=now, notice_s=now, kill_s=now + within_s))
            ends_s = float(int(now + within_s))
            wait_until(lambda: agent.client.status().notice_s == ends_s)  # noqa: B023
            assert agent.client.status().draining
        assert agent.ended("saves") == 3
        assert agent.client.log("saves") == b"up\nsaved\n"
        wait_until(lambda: b"asked" in agent.client.log("stays"))
        agent.client.signal("stays", "USR1")
        wait_until(lambda: b"more" in agent.client.log("stays"))
        assert agent.client.log("stays") == b"up\nasked\nmore\n"
        assert agent.client.process("stays").state == "running"
        with pytest.raises(NodeRefused) as caught:
            agent.client.start_process(shell("new", "exit 0"))
        assert caught.value.code == 409
        # And an agent that comes back after the service has gone still knows.
        agent.kill(signal.SIGTERM)
        server.shutdown()
        agent.start()
        status = agent.client.status()
        assert (status.notice_s, status.rebalance, status.draining) == (ends_s, True, True)


def test_a_noticed_node_drains_from_that_heartbeat_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(procfs, "adopt_orphans", lambda: None)  # would be this process's for good
    node = Agent(AgentConfig.load(AgentProcess(tmp_path).config))
    try:
        # What is asked for while the drain has not begun.
        seen: list[NodeStatus] = []
        monkeypatch.setattr(node, "drain", lambda: seen.append(node.status()))
        node._notice(time.time() + 120.0)
        assert [status.draining for status in seen] == [True]
    finally:
        node.close()


def test_metadata_needs_a_session_as_on_ec2() -> None:
    action = "/latest/meta-data/spot/instance-action"
    with metadata_service(Fate(notice_s=1.0, kill_s=1505722920.0)) as (server, _):

        def ask(method: str, path: str, **headers: str) -> tuple[int, str]:
            given = {f"X-aws-ec2-metadata-{name.replace('_', '-')}": value for name, value in headers.items()}
            answer = httpx.request(method, f"{server.url}{path}", headers=given)
            return answer.status_code, answer.text

        assert ask("GET", action)[0] == 401
        assert ask("GET", action, token="made-up")[0] == 401
        for ttl in ("", "0", "21601", "x", "-1", "9" * 30):
            assert ask("PUT", "/latest/api/token", token_ttl_seconds=ttl)[0] == 400
        code, token = ask("PUT", "/latest/api/token", token_ttl_seconds="60")
        assert code == 200
        # The example of the EC2 user guide.
        said = '{"action": "terminate", "time": "2017-09-18T08:22:00Z"}'
        assert ask("GET", action, token=token) == (200, said)
        rebalance = "/latest/meta-data/events/recommendations/rebalance"
        assert ask("GET", rebalance, token=token)[0] == 404
        assert ask("GET", "/latest/meta-data/instance-id", token=token) == (200, "i-1")


def test_processes_are_told_apart_by_their_start() -> None:
    own = procfs.read(os.getpid())
    assert own is not None
    assert own.ppid == os.getppid()
    assert own.session == os.getsid(0)
    assert procfs.is_alive(own.pid, own.start_ticks)
    assert not procfs.is_alive(own.pid, own.start_ticks + 1)
    assert not procfs.send(own.pid, own.start_ticks + 1, signal.SIGKILL)
    with subprocess.Popen(["sleep", "1000"]) as child:
        found = procfs.read(child.pid)
        assert found is not None
        assert found.pid in procfs.descendants({own.pid}, list(procfs.scan()))
        assert procfs.kill_all(lambda seen: [one for one in seen if one == found or one.pid == child.pid])
        zombie = procfs.read(child.pid)
        assert zombie is not None
        assert not zombie.alive
        assert child.wait() == -signal.SIGKILL
    assert procfs.read(child.pid) is None
