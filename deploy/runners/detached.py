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
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from spotweave.deploy.node import procfs
from spotweave.deploy.runners import launcher
from spotweave.deploy.runners.base import RunnerError
from spotweave.deploy.security import untrusted
from spotweave.deploy.security.sandbox import Box, Boxed, IdentitiesError, Sandbox, SandboxError
from spotweave.files import write_private

TAG = "SPOTWEAVE_DETACHED"  # in the environment of everything that the command starts: the folder
_START_S = 20.0
_LOOK_S = 0.02
_KILL_S = 1.0
_GIB = 1 << 30
_TEXT_BYTES = 1 << 17
"""Linux takes no argument or variable that is as long (MAX_ARG_STRLEN), its zero byte included."""
_TOTAL_BYTES = 1 << 20
"""Half of what Linux usually takes of all of them (ARG_MAX): the sandbox and Spark add their own."""
_POINTER_BYTES = 9


@dataclass(frozen=True)
class Limits:
    """What a command may use; over a limit it is killed, and its result says which."""

    # of all its processes together that is in RAM; what they share counts for each
    memory_bytes: int = 8 * _GIB
    folder_bytes: int = 50 * _GIB  # of the folders that it may write to, together
    log_bytes: int = _GIB  # of what it prints
    processes: int = 1000  # at once


@dataclass(frozen=True)
class Result:
    """Outcome of a command."""

    exit_code: int  # negative for a signal
    error: str  # why it could not be started or was not let go on, "" if neither
    ended_s: float  # epoch seconds
    # whether the error is of the command's own making: another try would end the same way
    of_job: bool = False


def require_startable(
    texts: Mapping[str, str],
    args: Sequence[str],
    env: Mapping[str, str],
    tables: Mapping[str, Mapping[str, str]],
) -> None:
    """Refuse what the operating system starts no program with. Raises ValueError: one line.

    `tables`: what else becomes arguments, variables or lines of files, by their names in the job file.
    """
    named = [*texts.items(), *((f"args[{at}]", text) for at, text in enumerate(args))]
    for name, table in {"env": env, **tables}.items():
        named += [(f"{name} {key[:100]}", f"{key}={value}") for key, value in table.items()]
    for name, text in named:
        if "\0" in text:
            raise ValueError(f"{name!r} holds a zero byte: leave it out")
        try:
            size = len(text.encode())
        except UnicodeEncodeError as error:
            raise ValueError(f"{name!r} holds half a character (a lone surrogate): leave it out") from error
        if size >= _TEXT_BYTES:
            raise ValueError(
                f"{name!r} has {size} bytes: a program can be given {_TEXT_BYTES - 1} in one value; put it "
                "into a file"
            )
    total = sum(len(text.encode()) + _POINTER_BYTES for _, text in named)
    if total > _TOTAL_BYTES:
        raise ValueError(
            f"args, env and settings have {total} bytes together: a program can be given {_TOTAL_BYTES}; put "
            "some into a file"
        )


class Detached:
    """One command in a folder of its own: started, found again and ended by whoever knows the folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()

    def start(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        cwd: Path,
        log: Path,
        *,
        again: bool = False,
        log_below: Path | None = None,
        boxed: tuple[Sandbox, Box] | None = None,
        limits: Limits | None = None,
    ) -> None:
        """Start it, once for ever; a command that runs or has ended is left alone (unless `again`).

        What can never be started, by its own fault, has ended at once with a result that says why. `argv`
        never passes through a shell, `env` is all of its environment, and what it prints is appended to the
        log; `log_below`: folder that the command can write to, in which the log lies (None: it cannot).
        Raises RunnerError if it cannot be started.
        """
        if self.running():
            return
        if again:
            for name in ("result.json", "asked"):
                (self.folder / name).unlink(missing_ok=True)
        elif self.result() is not None:
            return
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        tagged = {**env, TAG: str(self.folder)}
        try:
            made = Boxed(list(argv), tagged, None)
            if boxed is not None:
                made = boxed[0].wrap(argv, tagged, cwd, boxed[1])
        except SandboxError as error:
            ended = Result(127, str(error), time.time(), of_job=True)
            write_private(self.folder / "result.json", json.dumps(asdict(ended)))
            return
        except (IdentitiesError, OSError) as error:
            raise RunnerError(f"cannot start {argv[0]}: {error}") from error
        command = {
            "argv": made.argv,
            "env": {**made.env, TAG: str(self.folder)},
            "given": made.given,
            "cwd": str(cwd),
            "log": str(log),
            "log_below": str(log.parent if log_below is None else log_below),
            "boxed": boxed is not None and boxed[0].apart,
            "group": made.group,
            "limits": None if limits is None else asdict(limits),
            "folders": [] if boxed is None else [str(path) for path in (*boxed[1].writable, boxed[1].tmp)],
        }
        write_private(self.folder / "command.json", json.dumps(command))
        # Isolated: the launcher must not read modules from wherever the service was started.
        call = [sys.executable, "-I", "-S", launcher.__file__, str(self.folder)]
        try:
            done = subprocess.run(
                call,
                env={"PATH": os.environ.get("PATH", os.defpath), TAG: str(self.folder)},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=_START_S,
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
        """Whether the command was ever started."""
        return (self.folder / "process.json").exists()

    def up_s(self) -> float:
        """Seconds since it was started; 0 if that is not known."""
        started_s = self._load("process.json").get("started_s")
        return time.time() - started_s if isinstance(started_s, float) else 0.0

    def result(self) -> Result | None:
        """How it ended; None while it runs, and if its end was not seen."""
        try:
            return Result(**self._load("result.json"))
        except TypeError:
            return None

    def forget_result(self) -> None:
        """As if its latest run had not ended."""
        (self.folder / "result.json").unlink(missing_ok=True)

    def end(self, grace_s: float) -> None:
        """End it and everything that it started, wherever that went: SIGTERM, then after `grace_s` SIGKILL.

        It does not wait: it raises RunnerError while something of it still ends. Call it again.
        """
        mine = self._mine(list(procfs.scan()))
        if mine and grace_s > 0.0:
            if not (self.folder / "asked").exists():
                (self.folder / "asked").touch(mode=0o600)
                for process in mine:
                    # Bubblewrap would die of it, and take all that is inside along.
                    if procfs.name(process.pid) != "bwrap":
                        procfs.send(process.pid, process.start_ticks, signal.SIGTERM)
                time.sleep(_LOOK_S)
                mine = self._mine(list(procfs.scan()))
            if mine and 0.0 <= time.time() - (self.folder / "asked").stat().st_mtime < grace_s:
                raise RunnerError(f"{self.folder} still ends")
        if mine and not procfs.kill_all(self._mine, _KILL_S):
            raise RunnerError(f"processes of {self.folder} cannot be killed")

    def _mine(self, seen: list[procfs.Process]) -> list[procfs.Process]:
        """What bears its tag, belongs to its group, or is below its launcher."""
        group = self._load("command.json").get("group")
        process = self._load("process.json")
        pid, start_ticks = process.get("pid"), process.get("start_ticks")
        below: set[int] = set()
        if isinstance(pid, int) and isinstance(start_ticks, int) and procfs.is_alive(pid, start_ticks):
            below = {pid} | procfs.descendants({pid}, seen)
        return [
            one
            for one in seen
            if one.alive
            and (
                one.pid in below
                or (group is not None and group in procfs.groups(one.pid))
                or procfs.environment(one.pid).get(TAG) == str(self.folder)
            )
        ]

    def _load(self, name: str) -> dict[str, Any]:
        """One of its files; empty if it is not there, or not what was written."""
        try:
            found = json.loads((self.folder / name).read_bytes())
        except (FileNotFoundError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}


def tail(path: Path, size: int = 1 << 18) -> str:
    """The end of a text file in a folder that is the scheduler's; "" if there is none."""
    return untrusted.tail(path.parent, path.name, size)
