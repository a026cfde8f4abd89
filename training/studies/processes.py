"""Runs many trainings, a few at a time, each in a process of its own, here or on a cluster."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import IO, Any, Protocol

from training.config import INTERRUPTED
from training.files import prepare_directory
from training.studies.trainings import Run

TRAIN = Path(__file__).resolve().parents[1] / "train.py"
POLL_S = 0.1


class Watcher(Protocol):
    """Is told what happens to the runs."""

    def began(self, run: Run, resumed: bool) -> None:
        """A run was started."""

    def ended(self, run: Run, problem: str | None, seconds: float) -> None:
        """A run came to its end, or to a problem."""

    def waited(self, logs: Mapping[Run, Path]) -> None:
        """A moment has passed; `logs` are those of the runs at work."""


class Process(Protocol):
    """What trains a run: `subprocess.Popen`, or the like of it for a process elsewhere."""

    returncode: int | Any

    def poll(self) -> int | None:
        """The exit code, or None as long as it is at work."""

    def send_signal(self, signum: int, /) -> None:
        """Pass a signal on, if it has not ended; called from a handler of signals."""


Start = Callable[[Run, int, IO[bytes]], Process]
"""Starts a run on some threads; the process keeps the lock on the run's directory until it ends."""


@dataclass
class Outcomes:
    """What became of the runs.

    Attributes:
        finished: came to their end now.
        failed: with the reason, one line each.
        interrupted: Ctrl-C ended the work; states are saved.
    """

    finished: list[Run] = field(default_factory=list)
    failed: dict[Run, str] = field(default_factory=dict)
    interrupted: bool = False


@dataclass
class _Working:
    run: Run
    process: Process
    log: Path
    started: float


def log_of(run: Run) -> Path:
    """What the run's processes printed, all attempts in one file."""
    return run.directory.path / "training.log"


def run_all(
    runs: Sequence[Run], workers: int, threads: int, watcher: Watcher, cluster: Start | None = None
) -> Outcomes:
    """Run (or go on with) every run, `workers` at a time; one that fails does not stop the others.

    Ctrl-C (or a termination signal) is passed on once to every process, which finishes its round and saves; a
    second one stops them at once.

    Args:
        runs: what shall run.
        workers: at the same time.
        threads: OMP_NUM_THREADS of each.
        watcher: is told what happens.
        cluster: starts those that have a `cluster`; None: there are none.
    """
    outcomes = Outcomes()
    waiting = list(runs)
    working: list[_Working] = []
    with _signals_passed_on(working, outcomes):
        while waiting or working:
            while waiting and len(working) < workers and not outcomes.interrupted:
                run = waiting.pop(0)
                try:
                    working.append(_start(run, threads, watcher, cluster))
                except (OSError, ValueError) as error:
                    outcomes.failed[run] = str(error)
                    watcher.ended(run, str(error), 0.0)
            for entry in [entry for entry in working if entry.process.poll() is not None]:
                working.remove(entry)
                _collect(entry, outcomes, watcher)
            if outcomes.interrupted:
                waiting.clear()
            watcher.waited({entry.run: entry.log for entry in working})
            if working:
                time.sleep(POLL_S)
    return outcomes


def _start(run: Run, threads: int, watcher: Watcher, cluster: Start | None) -> _Working:
    prepare_directory(run.directory.path)
    resumed = run.begun
    start = _start_here if run.cluster is None else cluster
    assert start is not None
    with _claimed(run) as claim:
        process = start(run, threads, claim)
    watcher.began(run, resumed)
    return _Working(run, process, log_of(run), time.monotonic())


def _start_here(run: Run, threads: int, claim: IO[bytes]) -> Process:
    words = [f"resume={run.directory.path}"] if run.begun else list(run.overrides)
    with log_of(run).open("ab") as output:
        return subprocess.Popen(
            # Relative, because the command goes onto the policy's card: no card shall name a private folder.
            [sys.executable, "-u", os.path.relpath(TRAIN), *words],
            stdout=output,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "OMP_NUM_THREADS": str(threads)},
            # Ctrl-C on the terminal shall reach the process once, through us, not twice.
            start_new_session=True,
            # The process keeps the claim, so that a run whose parent was killed is not begun a second time.
            pass_fds=[claim.fileno()],
        )


@contextmanager
def _claimed(run: Run) -> Iterator[IO[bytes]]:
    """A lock on the run's directory that is held as long as any process has the file open."""
    with (run.directory.path / ".lock").open("ab") as claim:
        try:
            fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ValueError(
                f"{run.directory.path} is being trained by another process: wait for it or stop it"
            ) from error
        yield claim


def _collect(entry: _Working, outcomes: Outcomes, watcher: Watcher) -> None:
    code, seconds = entry.process.returncode, time.monotonic() - entry.started
    if code == 0 and entry.run.finished:
        outcomes.finished.append(entry.run)
        watcher.ended(entry.run, None, seconds)
    elif outcomes.interrupted or code == INTERRUPTED:
        watcher.ended(entry.run, "interrupted; its latest state is saved", seconds)
        outcomes.interrupted = True
    else:
        reason = f"ended with exit code {code} ({last_line(entry.log)}): see {entry.log}"
        outcomes.failed[entry.run] = reason
        watcher.ended(entry.run, reason, seconds)


def last_line(log: Path) -> str:
    """The last line of a log that says something, or an empty one."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - 4000))
            lines = [line.strip() for line in file.read().decode(errors="replace").splitlines()]
    except OSError:
        return ""
    return next((line for line in reversed(lines) if line), "")


@contextmanager
def _signals_passed_on(working: list[_Working], outcomes: Outcomes) -> Iterator[None]:
    def pass_on(signum: int, frame: FrameType | None) -> None:
        outcomes.interrupted = True
        # Not polled here: this may be in the middle of a poll.
        for entry in working:
            entry.process.send_signal(signal.SIGINT)

    kinds = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    previous = {kind: signal.signal(kind, pass_on) for kind in kinds}
    try:
        yield
    finally:
        for kind, handler in previous.items():
            signal.signal(kind, handler)
