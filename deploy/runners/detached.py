"""Processes on the scheduler's machine that outlive the scheduler: Spark's master, drivers, SuperLinks."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from deploy.node import procfs
from deploy.node.config import write_private
from deploy.runners import launcher
from deploy.runners.base import RunnerError

TAG = "SPOTWEAVE_DETACHED"
"""In the environment of everything that the command starts: the folder."""
_TAIL_BYTES = 1 << 18


@dataclass(frozen=True)
class Result:
    """How a command ended.

    Attributes:
        exit_code: negative for a signal.
        error: why it could not be started, "" if it was.
        ended_s: epoch seconds.
    """

    exit_code: int
    error: str
    ended_s: float


class Detached:
    """One command in a folder of its own: started, found again and ended by whoever knows the folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()

    def start(
        self, argv: Sequence[str], env: Mapping[str, str], cwd: Path, log: Path, *, again: bool = False
    ) -> None:
        """Start it, once for ever; a command that runs or has ended is left alone.

        Args:
            argv: never passed through a shell.
            env: the whole environment.
            cwd: its current folder.
            log: what it prints is appended there.
            again: start it anew if it has ended.

        Raises:
            RunnerError: if it cannot be started.
        """
        if self.running():
            return
        if again:
            (self.folder / "result.json").unlink(missing_ok=True)
        elif self.result() is not None:
            return
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        tagged = {**env, TAG: str(self.folder)}
        command = {"argv": list(argv), "env": tagged, "cwd": str(cwd), "log": str(log)}
        write_private(self.folder / "command.json", json.dumps(command))
        # Isolated: the launcher must not read modules from wherever the service was started.
        call = [sys.executable, "-I", "-S", launcher.__file__, str(self.folder)]
        try:
            done = subprocess.run(
                call, env=tagged, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise RunnerError(f"cannot start {argv[0]}: {error}") from error
        if done.returncode not in (0, launcher.ALREADY_RUNNING):
            reason = (done.stderr.strip().splitlines() or [f"the launcher exited with {done.returncode}"])[-1]
            raise RunnerError(f"cannot start {argv[0]}: {reason}")

    def running(self) -> bool:
        """Whether the command, or its launcher, lives: they hold the lock."""
        try:
            handle = os.open(self.folder / "lock", os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(handle)
        return False

    def was_started(self) -> bool:
        """Whether it ever was."""
        return (self.folder / "process.json").exists()

    def started_s(self) -> float | None:
        """When it was started, epoch seconds."""
        try:
            return float(json.loads((self.folder / "process.json").read_bytes())["started_s"])
        except FileNotFoundError:
            return None

    def result(self) -> Result | None:
        """How it ended; None while it runs, and if its end was not seen."""
        try:
            return Result(**json.loads((self.folder / "result.json").read_bytes()))
        except FileNotFoundError:
            return None

    def end(self, grace_s: float) -> None:
        """End it and everything that it started, wherever that went: SIGTERM, then SIGKILL.

        Raises:
            RunnerError: if something cannot be killed.
        """
        mine = self._mine()
        for process in mine:
            procfs.send(process.pid, process.start_ticks, signal.SIGTERM)
        until = time.monotonic() + grace_s
        while mine and time.monotonic() < until:
            time.sleep(0.05)
            mine = [process for process in mine if procfs.is_alive(process.pid, process.start_ticks)]
        if not procfs.kill_all(self._select):
            raise RunnerError(f"processes of {self.folder.name} cannot be killed")

    def _mine(self) -> list[procfs.Process]:
        return self._select([process for process in procfs.scan() if process.alive])

    def _select(self, processes: list[procfs.Process]) -> list[procfs.Process]:
        return [
            process for process in processes if procfs.environment(process.pid).get(TAG) == str(self.folder)
        ]


def tail(path: Path, size: int = _TAIL_BYTES) -> str:
    """The end of a text file; "" if there is none."""
    try:
        with path.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - size))
            return file.read().decode(errors="replace")
    except FileNotFoundError:
        return ""
