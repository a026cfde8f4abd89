"""The process around a command on its node: `python -m spotweave.deploy.runners.bag.process FOLDER`.

It unpacks the job's files into FOLDER/work and the checkpoint, if there is one, into FOLDER/checkpoint, runs
the command in the former, and ends with its exit code. Every interval, and on SIGPWR (the node agent's word
that the instance is about to end), it runs the user's checkpoint command there and packs FOLDER/checkpoint;
the scheduler fetches it. After SIGPWR the command goes on: it may come to its end before its instance does.
"""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat

from spotweave.files import replacing, write_private

CHECKPOINT_WITHIN_S = 600.0
"""A checkpoint command that takes longer is ended, and its checkpoint does not count."""
_KEPT = 2  # the scheduler may still be fetching the one before the latest
_NO_COMMAND = 127  # what shells end with where a program cannot be started; a signal is 128 and its number
_WAKE = (signal.SIGPWR, signal.SIGCHLD)
_LOOK_S = 60.0


# What the runner and this process say to each other: two files in the task's folder.

PLAN, STATUS = "plan.json", "status.json"
FILES, RESTORED = "files.tar", "restored.tar"
"""The job's files; the checkpoint from which the command goes on, if there is one."""


def checkpoint_file(number: int) -> str:
    """File name of a checkpoint in the task's folder."""
    return f"saved/{number:06d}.tar"


class Plan(BaseModel):
    """The commands of one attempt at a task."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    command: Annotated[tuple[str, ...], Field(min_length=1)]  # the user's
    checkpoint: tuple[str, ...] = ()  # the user's; () without
    # of work between two checkpoints; 0: only when the instance is about to end
    interval_s: Annotated[FiniteFloat, Field(ge=0)] = 0.0


class Status(BaseModel):
    """How far it is. The job's own code can write it: it is believed in what concerns its own task only."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    # of the latest checkpoint of this attempt, from 1; 0 before the first
    number: Annotated[int, Field(ge=0, lt=1_000_000)] = 0
    size: Annotated[int, Field(ge=0)] = 0  # of its file, in bytes
    sha256: Annotated[str, Field(max_length=64)] = ""  # of its file, hexadecimal
    # how long the command had run when that checkpoint was begun
    ran_s: Annotated[FiniteFloat, Field(ge=0)] = 0.0
    # why the latest try at a checkpoint failed; "" if it did not
    problem: Annotated[str, Field(max_length=300)] = ""
    # of the command, negative for a signal; None while it runs
    exit_code: Annotated[int, Field(ge=-128, le=255)] | None = None


class TaskProcess:
    """One attempt at a task, in its folder with its plan."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._plan = Plan.model_validate_json((folder / PLAN).read_bytes())
        self._work, self._checkpoint = folder / "work", folder / "checkpoint"
        self._env = {**os.environ, "SPOTWEAVE_CHECKPOINT_DIR": str(self._checkpoint)}
        self._status = Status()

    def run(self) -> int:
        """Fetch the files and run the command. Returns the exit code."""
        # Signals are waited for, not handled: one that comes at any other moment stays pending.
        signal.pthread_sigmask(signal.SIG_BLOCK, _WAKE)
        self._unpack(FILES, self._work)
        self._unpack(RESTORED, self._checkpoint)
        (self._folder / "saved").mkdir(exist_ok=True)
        try:
            child = self._start(self._plan.command)
        except OSError as error:
            print(f"cannot start {self._plan.command[0]}: {error.strerror}", flush=True)
            self._tell(exit_code=_NO_COMMAND)
            return _NO_COMMAND
        self._look_after(child)
        code = child.returncode
        self._tell(exit_code=code)
        return code if code >= 0 else 128 - code

    def _look_after(self, child: subprocess.Popen[bytes]) -> None:
        began_s = time.monotonic()
        interval_s = self._plan.interval_s if self._plan.checkpoint else 0.0
        next_s = began_s + interval_s
        while child.poll() is None:
            wait_s = next_s - time.monotonic() if interval_s else _LOOK_S
            woken = signal.sigtimedwait(_WAKE, max(0.0, wait_s))
            if child.poll() is not None:
                return
            noticed = woken is not None and woken.si_signo == signal.SIGPWR
            if self._plan.checkpoint and (noticed or (interval_s and time.monotonic() >= next_s)):
                self._take_checkpoint(child, time.monotonic() - began_s)
                next_s = time.monotonic() + interval_s

    def _take_checkpoint(self, child: subprocess.Popen[bytes], ran_s: float) -> None:
        number = self._status.number + 1
        try:
            taking = self._start(self._plan.checkpoint, SPOTWEAVE_PID=str(child.pid))
            try:
                code = taking.wait(CHECKPOINT_WITHIN_S)
            except subprocess.TimeoutExpired:
                os.killpg(taking.pid, signal.SIGKILL)
                taking.wait()
                raise ValueError(f"it took longer than {CHECKPOINT_WITHIN_S:g} s") from None
            if code != 0:
                raise ValueError(f"it ended with exit code {code}")
            place = self._folder / checkpoint_file(number)
            with replacing(place, mode=0o600) as temporary, tarfile.open(temporary, "w") as tar:
                tar.add(self._checkpoint, arcname=".")
            with place.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
        except (OSError, ValueError, tarfile.TarError) as error:
            reason = " ".join(str(error).split())[:200]
            print(f"the checkpoint command {self._plan.checkpoint[0]} failed: {reason}", flush=True)
            self._tell(problem=f"the checkpoint command failed: {reason}")
            return
        self._tell(number=number, size=place.stat().st_size, sha256=digest, ran_s=ran_s, problem="")
        (self._folder / checkpoint_file(number - _KEPT)).unlink(missing_ok=True)

    def _start(self, argv: Sequence[str], **variables: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            argv,
            cwd=self._work,
            env={**self._env, **variables},
            stdin=subprocess.DEVNULL,
            process_group=0,
            preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_UNBLOCK, _WAKE),
        )

    def _unpack(self, name: str, to: Path) -> None:
        to.mkdir(exist_ok=True)
        file = self._folder / name
        if file.exists():
            with tarfile.open(file) as tar:
                tar.extractall(to, filter="data")

    def _tell(self, **news: object) -> None:
        self._status = self._status.model_copy(update=news)
        write_private(self._folder / STATUS, self._status.model_dump_json())


if __name__ == "__main__":
    sys.exit(TaskProcess(Path(sys.argv[1])).run())
