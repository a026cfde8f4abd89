"""Processes that hide, print or fork for ever, or spoil what the agent keeps: it ends and bounds them."""

from __future__ import annotations

import os
import secrets
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from spotweave.deploy.node import procfs, server
from spotweave.deploy.node.api import MOST_PROCESSES, ProcessSpec
from spotweave.deploy.node.client import NodeRefused
from spotweave.deploy.node.server import Logs
from spotweave.deploy.providers.local.records import Fate
from tests.deploy.node.agents import AgentProcess, alive, metadata_service, shell, wait_until


@pytest.fixture
def mark() -> Iterator[str]:
    """In the command of whatever a test lets escape."""
    made = f"4242.{secrets.randbelow(10**9)}"
    try:
        yield made
    finally:
        procfs.kill_all(lambda _: alive(made))


HIDDEN = "(env -i setsid sleep {mark} &) ; (env -i setsid sh -c 'sleep {mark} & sleep {mark}' &) ; "


@pytest.mark.real
@pytest.mark.parametrize("restarted", [False, True])
def test_what_hides_is_killed_with_its_process(agent: AgentProcess, mark: str, restarted: bool) -> None:
    # They left their session, their parent and their environment.
    hide = HIDDEN.format(mark=mark)
    agent.client.start_process(shell("p", f"trap '' TERM; {hide} while :; do sleep 0.05; done", grace_s=0.3))
    agent.client.start_process(shell("q", "sleep 1000"))
    wait_until(lambda: len(alive(mark)) >= 4)
    if restarted:
        agent.kill()
        agent.start()
    agent.client.stop_process("p")
    wait_until(lambda: agent.client.process("p").state != "running")
    wait_until(lambda: not alive(mark))
    assert agent.client.process("q").state == "running"


@pytest.mark.real
@pytest.mark.parametrize("end", ["exit 3", "kill -9 $$"])
def test_what_hides_is_killed_when_its_process_ends(agent: AgentProcess, mark: str, end: str) -> None:
    agent.client.start_process(shell("q", "sleep 1000"))
    agent.client.start_process(shell("p", HIDDEN.format(mark=mark) + f"sleep 0.5; {end}"))
    agent.ended("p")
    assert agent.client.process("p").state == "exited"
    assert not alive(mark)
    assert agent.client.process("q").state == "running"


RUNNER = """
import os, sys, time
# Should it escape, it ends by itself.
end_s = time.monotonic() + 60
while time.monotonic() < end_s:
    with open(sys.argv[1], "ab") as file:
        file.write(b"x")
    if os.fork():
        os._exit(0)
    os.setsid()
"""


@pytest.mark.real
def test_what_forks_and_exits_for_ever_is_caught(agent: AgentProcess, tmp_path: Path) -> None:
    runner, steps = tmp_path / "runner.py", tmp_path / "steps"
    runner.write_text(RUNNER)
    run = f"env -i {sys.executable} -S {runner} {steps} &"
    agent.client.start_process(shell("p", f"{run} trap '' TERM; while :; do sleep 0.05; done", grace_s=0.1))
    wait_until(lambda: steps.exists() and steps.stat().st_size > 10)
    agent.client.stop_process("p")
    wait_until(lambda: agent.client.process("p").state != "running", within_s=30.0)
    before = steps.stat().st_size
    time.sleep(1.0)
    assert steps.stat().st_size == before
    assert agent.client.status().instance_id == agent.instance_id


@pytest.mark.real
def test_a_command_that_cannot_start_is_refused_and_blinds_nobody_for_ends(agent: AgentProcess) -> None:
    agent.client.start_process(shell("sleeper", "sleep 1000"))
    for _ in range(30):
        with pytest.raises(NodeRefused, match="no-such-command: No such file") as caught:
            agent.client.start_process(ProcessSpec(process_id="short", argv=("no-such-command",)))
        assert caught.value.code == 422
    assert len(agent.client.status().processes) == 1
    # Its id stays free.
    agent.client.start_process(shell("short", "exit 6"))
    wait_until(lambda: agent.client.process("short").exit_code == 6)


def refused(agent: AgentProcess) -> int:
    """How a process that starts is."""
    with pytest.raises(NodeRefused) as caught:
        agent.client.start_process(shell("new", "exit 0"))
    return caught.value.code


@pytest.mark.real
def test_an_agent_whose_notes_are_gone_still_sees_and_ends(tmp_path: Path) -> None:
    # A job on the node may remove them, or fill the disk: it runs as the same user.
    with metadata_service() as (service, fates), AgentProcess(tmp_path, imds_url=service.url) as agent:
        agent.client.start_process(
            shell("stubborn", "trap '' TERM; while :; do sleep 0.05; done", grace_s=0.2)
        )
        agent.client.start_process(shell("bad", f"sleep 0.3; rm -rf {agent.workdir}/.agent; exit 5"))
        wait_until(lambda: agent.client.process("bad").exit_code == 5)
        agent.client.stop_process("stubborn")
        wait_until(lambda: agent.client.process("stubborn").exit_code == -signal.SIGKILL)
        assert refused(agent) == 500
        fates.append(Fate(notice_s=1.0, kill_s=time.time() + 60.0))
        wait_until(lambda: refused(agent) == 409)
        assert agent.client.status().draining


@pytest.mark.real
def test_what_prints_for_ever_does_not_fill_the_disk(agent: AgentProcess) -> None:
    # 160 MB, and as much again by whoever opens the file without appending to it.
    script = "yes | head -c 160000000; yes | head -c 160000000 > /dev/stdout; echo last; sleep 1000"
    agent.client.start_process(shell("p", script))
    wait_until(lambda: agent.client.last_log("p").endswith(b"last\n"))
    place = agent.workdir / ".agent" / "logs" / "p.log"
    wait_until(lambda: place.stat().st_blocks * 512 <= server.MOST_LOG_BYTES)
    assert agent.client.process("p").state == "running"


def test_a_log_is_shortened_to_its_end_with_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "MOST_LOG_BYTES", 100_000)
    monkeypatch.setattr(server, "_TAIL_BYTES", 1000)
    kept = Logs(tmp_path / "logs")
    handle = kept.open("p")
    try:
        os.write(handle, b"a" * 90_000)
        assert not kept.shorten("p")
        os.write(handle, b"b" * 90_000)
        assert kept.shorten("p")
        os.write(handle, b"after\n")
        note, _, rest = kept.path("p").read_bytes().partition(b"\n")
        assert note == b"[the node agent dropped 179000 bytes of output here]"
        assert rest == b"b" * 1000 + b"after\n"
        assert not kept.shorten("p")
    finally:
        os.close(handle)
    assert not kept.shorten("none")


@pytest.mark.real
def test_the_number_of_processes_is_bounded_and_no_secret_is_kept(agent: AgentProcess) -> None:
    spec = ProcessSpec(process_id="p", argv=("sh", "-c", "exit 0", "argument"), env={"SECRET": "hush-hush"})
    agent.client.start_process(spec)
    wait_until(lambda: agent.client.process("p").exit_code == 0)
    agent.kill()
    with agent.notes() as content:
        assert "hush-hush" not in str(content)
        assert "argument" not in str(content)
        (ended,) = content["processes"]
        content["processes"] = [{**ended, "process_id": f"p{number}"} for number in range(MOST_PROCESSES - 1)]
    agent.start()
    agent.client.start_process(shell("last", "exit 0"))
    with pytest.raises(NodeRefused) as caught:
        agent.client.start_process(shell("more", "exit 0"))
    assert caught.value.code == 429
    assert agent.client.start_process(shell("last", "exit 1")).process_id == "last"
    assert len(agent.client.status().processes) == MOST_PROCESSES


@pytest.mark.real
def test_the_heartbeat_goes_on_while_the_agent_kills(agent: AgentProcess, mark: str) -> None:
    bomb = f"for n in $(seq 300); do (env -i setsid sleep {mark} &); done; echo up; sleep 0.3; exit 0"
    agent.client.start_process(shell("p", bomb))
    slowest_s = 0.0
    while agent.client.process("p").state == "running":
        began_s = time.monotonic()
        agent.client.status()
        slowest_s = max(slowest_s, time.monotonic() - began_s)
    assert slowest_s < 5.0
    assert not alive(mark)
