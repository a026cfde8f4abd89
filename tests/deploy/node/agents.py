"""Real node agents for tests: each on an address of its own, and nothing of it left afterwards."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Self, TypeVar

from spotweave.deploy.model.tasks import Node
from spotweave.deploy.node import procfs
from spotweave.deploy.node.api import ProcessSpec, Signal
from spotweave.deploy.node.client import NodeClient
from spotweave.deploy.node.processes import NODE_VARIABLE
from spotweave.deploy.node.server import Listener
from spotweave.deploy.providers.local.machine import MetadataServer
from spotweave.deploy.providers.local.records import Fate, loopback_address
from spotweave.deploy.security.keys import node_pair

L = TypeVar("L", bound=Listener)
ROOT = Path(__file__).resolve().parents[3]
PATIENCE_S = 60.0


def wait_until(true: Callable[[], object], within_s: float = PATIENCE_S, every_s: float = 0.02) -> None:
    """Wait for something that has to come; fail if it does not."""
    end = time.monotonic() + within_s
    while not true():
        assert time.monotonic() < end, "it did not come"
        time.sleep(every_s)


def tagged(instance_id: str) -> list[procfs.Process]:
    """Everything that lives and belongs to an instance."""
    return [
        process
        for process in procfs.scan()
        if process.alive and procfs.environment(process.pid).get(NODE_VARIABLE) == instance_id
    ]


def alive(mark: str) -> list[procfs.Process]:
    """Everything that lives and has this in its command, whatever else it hides."""
    return [one for one in procfs.scan() if one.alive and mark in command(one.pid)]


def command(pid: int) -> str:
    """Of a process, with its arguments."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    return ""


def shell(process_id: str, script: str, grace_s: float = 30.0, stop: Signal = "TERM") -> ProcessSpec:
    argv = ("sh", "-c", script)
    return ProcessSpec(process_id=process_id, argv=argv, stop_grace_s=grace_s, stop_signal=stop)


class AgentProcess:
    """One agent: `with AgentProcess(tmp_path) as agent: agent.client.status()`."""

    def __init__(self, folder: Path, *, imds_url: str | None = None) -> None:
        self.instance_id = f"test-{secrets.token_hex(6)}"
        self.address = loopback_address()
        self.token = secrets.token_urlsafe(32)
        self.pair = node_pair()
        self.workdir = folder / self.instance_id
        self.config = folder / f"{self.instance_id}.json"
        self.config.touch(mode=0o600)
        content = {"instance_id": self.instance_id, "address": self.address, "port": 0}
        content |= {"workdir": str(self.workdir), "token": self.token}
        content |= {"certificate": self.pair.certificate, "key": self.pair.key}
        self.config.write_text(json.dumps({**content, "imds_url": imds_url, "imds_poll_s": 0.05}))
        self.popen: subprocess.Popen[bytes]
        self.client: NodeClient
        self.port = 0

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.destroy()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.destroy()

    def start(self) -> None:
        status = self.workdir / ".agent" / "status.json"
        status.unlink(missing_ok=True)
        self.popen = subprocess.Popen(
            [sys.executable, "-m", "spotweave.deploy.node", "--config", str(self.config)],
            cwd=ROOT,
            env={**os.environ, NODE_VARIABLE: self.instance_id},
            start_new_session=True,
        )
        wait_until(lambda: status.exists() or self.popen.poll() is not None)
        assert self.popen.poll() is None, "the agent did not start"
        self.port = json.loads(status.read_text())["port"]
        self.client = NodeClient(self.address, self.port, self.token, self.pair.certificate)

    def kill(self, number: int = signal.SIGKILL) -> None:
        """End the agent alone; its processes stay."""
        self.popen.send_signal(number)
        self.popen.wait()

    def up(self, *process_ids: str) -> None:
        """Wait until these have said `up`, and nothing else."""
        wait_until(lambda: all(self.client.log(name) == b"up\n" for name in process_ids))

    def ended(self, process_id: str) -> int | None:
        """Wait for a process's end; its exit code."""
        wait_until(lambda: self.client.process(process_id).state != "running")
        return self.client.process(process_id).exit_code

    def is_alone(self) -> bool:
        """Whether nothing but the agent lives on its instance."""
        return [process.pid for process in tagged(self.instance_id)] == [self.popen.pid]

    @contextmanager
    def notes(self) -> Iterator[dict[str, Any]]:
        """What it keeps of its processes, to change while it does not run."""
        path = self.workdir / ".agent" / "processes.json"
        content = json.loads(path.read_text())
        yield content
        path.write_text(json.dumps(content))

    def node(self, vcpus: int = 1, gpus: int = 0) -> Node:
        """As runners get it."""
        place = self.instance_id, self.address, self.port, self.token
        return Node(*place, vcpus, 1.0, certificate=self.pair.certificate, gpus=gpus)

    def destroy(self) -> None:
        """End the whole instance, as its provider would: SIGKILL of everything."""
        assert procfs.kill_all(lambda _: tagged(self.instance_id))
        self.popen.wait()


@contextmanager
def serving(listener: L) -> Iterator[L]:
    thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield listener
    finally:
        listener.shutdown()
        thread.join()
        listener.server_close()


@contextmanager
def metadata_service(*fates: Fate) -> Iterator[tuple[MetadataServer, list[Fate]]]:
    """Of an instance whose fate is the last of these, to which a test may add."""
    known = [Fate(), *fates]
    with serving(MetadataServer(loopback_address(), "i-1", lambda: known[-1])) as server:
        yield server, known


@contextmanager
def agents(folder: Path, count: int) -> Iterator[list[AgentProcess]]:
    with ExitStack() as opened:
        yield [opened.enter_context(AgentProcess(folder)) for _ in range(count)]
