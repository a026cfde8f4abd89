"""A runner that is asked until it is so far, as the scheduler's loop does; what still lives; bad peers."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Generic, TypeVar

from spotweave.deploy.model.tasks import Assignment, Phase, TaskReport
from spotweave.deploy.node import procfs
from spotweave.deploy.runners.base import Runner, RunnerError
from spotweave.deploy.runners.detached import TAG
from tests.deploy.node.agents import wait_until

R = TypeVar("R", bound=Runner)
PATIENCE_S = 480.0
"""Far more than anything takes, as other tests may keep the machine busy."""


SLIPS_AWAY = """
import os, subprocess, time
# Another session, no variable of its own, and no parent that anybody knows.
subprocess.run(['env', '-i', 'setsid', '--fork', '/bin/sh', '-c',
    'trap "" TERM HUP; echo $$ > slipped; while :; do date +%N > alive; sleep 0.1; done'])
# The parent of a fork returns first: with it gone, the shell could be killed before it says its name.
while not os.path.exists('alive'): time.sleep(0.02)
"""


def insist(act: Callable[[], None]) -> None:
    end = time.monotonic() + PATIENCE_S
    while True:
        try:
            return act()
        except RunnerError:
            assert time.monotonic() < end
            time.sleep(0.1)


def alive(pid: int) -> bool:
    found = procfs.read(pid)
    return found is not None and found.alive


def left_behind(state: Path) -> dict[int, str]:
    """What still runs of a runner with this state: PIDs and tags."""
    tags = {one.pid: procfs.environment(one.pid).get(TAG, "") for one in procfs.scan() if one.alive}
    return {pid: tag for pid, tag in tags.items() if tag.startswith(str(state.resolve()))}


Act = Callable[[socket.socket], object]


@contextmanager
def peer(act: Act, tls: ssl.SSLContext | None = None, port: int = 0) -> Iterator[int]:
    """A port where each connection is treated so, until the end."""

    def one(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            if tls is None:
                act(connection)
            else:
                with tls.wrap_socket(connection, server_side=True) as secure:
                    act(secure)

    with socket.create_server(("127.0.0.1", port)) as server:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    threading.Thread(target=one, args=(server.accept()[0],), daemon=True).start()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield int(server.getsockname()[1])
        server.shutdown(socket.SHUT_RDWR)
        thread.join()


def drip(head: bytes, more: bytes = b"x") -> Act:
    """Says that, and then a byte now and then."""

    def act(connection: socket.socket) -> None:
        connection.sendall(head)
        while True:
            connection.sendall(more)
            time.sleep(0.05)

    return act


@contextmanager
def dripping(connections: Sequence[socket.socket], text: bytes, every_s: float = 0.3) -> Iterator[None]:
    """Sends it to all of them, a byte now and then, until the end of the block."""
    over = threading.Event()

    def send() -> None:
        for at in range(len(text)):
            for one in connections:
                with suppress(OSError):
                    one.send(text[at : at + 1])
            if over.wait(every_s):
                return

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


class Asked(Generic[R]):
    """A runner, which may be replaced by one that knows only what is on the disk."""

    runner: R
    workdir: Path

    def restart(self) -> None:
        """What follows knows only what is on the disk and in the processes."""
        raise NotImplementedError

    def ensure(self, assignment: Assignment) -> Assignment:
        insist(lambda: self.runner.ensure(assignment))
        return assignment

    def stop(self, assignment: Assignment) -> None:
        insist(lambda: self.runner.stop(assignment))

    def forget(self, job_id: str) -> None:
        insist(lambda: self.runner.forget(job_id))

    def report(self, assignment: Assignment) -> TaskReport:
        (found,) = self.runner.reports([assignment])
        return found

    def ended(self, assignment: Assignment) -> TaskReport:
        wait_until(lambda: self.report(assignment).phase.ended)
        return self.report(assignment)

    def outcome(self, assignment: Assignment) -> tuple[Phase, str]:
        found = self.ended(assignment)
        return found.phase, found.message
