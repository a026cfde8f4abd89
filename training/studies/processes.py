"""Runs many trainings, a few at a time, each in a process of its own, here or on a cluster."""

from __future__ import annotations

import ctypes
import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import FrameType
from typing import IO, Any, Literal, Protocol

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from spotweave.mistakes import EXIT_INTERRUPTED
from spotweave.training.config import UsageError
from spotweave.training.engine import RETRIES, LostTaskError, RayEngine
from spotweave.training.files import prepare_directory
from spotweave.training.progress import Pace, clock
from spotweave.training.studies.trained import Run

TRAIN = Path(__file__).resolve().parents[1] / "train.py"
POLL_S = 0.1


class Process(Protocol):
    """What trains a run: `subprocess.Popen`, or the like of it for a process elsewhere."""

    returncode: int | Any

    def poll(self) -> int | None:
        """The exit code, or None as long as it is at work."""

    def send_signal(self, signum: int, /) -> None:
        """Pass a signal on, if it has not ended; called from a handler of signals."""


Start = Callable[[Run, int], Process]  # starts a run on some threads


@dataclass
class Outcomes:
    """What became of the runs."""

    finished: list[Run] = field(default_factory=list)  # came to their end now
    failed: dict[Run, str] = field(default_factory=dict)  # with the reason, one line each
    interrupted: bool = False  # Ctrl-C ended the work; states are saved


@dataclass
class _Working:
    run: Run
    process: Process
    log: Path
    started: float


def log_of(run: Run) -> Path:
    """Output of the run's processes, all attempts in one file."""
    return run.directory.path / "training.log"


def run_all(
    runs: Sequence[Run], workers: int, threads: int, watcher: RepeatProgress, start: Start
) -> Outcomes:
    """Run (or go on with) every run, `workers` at a time; one that fails does not stop the others.

    Ctrl-C (or a termination signal) is passed on once to every process, which finishes its round and saves; a
    second one stops them at once. `threads` is the OMP_NUM_THREADS of each.
    """
    outcomes = Outcomes()
    waiting = list(runs)
    working: list[_Working] = []
    with _signals_passed_on(working, outcomes):
        while waiting or working:
            while waiting and len(working) < workers and not outcomes.interrupted:
                run = waiting.pop(0)
                try:
                    working.append(_start(run, threads, watcher, start))
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


def _start(run: Run, threads: int, watcher: RepeatProgress, start: Start) -> _Working:
    prepare_directory(run.directory.path)
    resumed = run.begun
    process = start(run, threads)
    watcher.began(run, resumed)
    return _Working(run, process, log_of(run), time.monotonic())


def start_here(run: Run, threads: int, prepare: Callable[[], None] | None = None) -> subprocess.Popen[bytes]:
    """Start a run, or go on with it, in a process of this machine, which runs `prepare` before anything else.

    Raises:
        OSError: if its directory cannot be written.
        ValueError: if another process trains it.
    """
    words = [f"resume={run.directory.path}"] if run.begun else list(run.overrides)
    with _claimed(run) as claim, log_of(run).open("ab") as output:
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
            preexec_fn=prepare,
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


def _collect(entry: _Working, outcomes: Outcomes, watcher: RepeatProgress) -> None:
    code, seconds = entry.process.returncode, time.monotonic() - entry.started
    if code == 0 and entry.run.finished:
        outcomes.finished.append(entry.run)
        watcher.ended(entry.run, None, seconds)
    elif outcomes.interrupted or code == EXIT_INTERRUPTED:
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


# What a person sees of many trainings: one live table on a terminal, plain lines elsewhere.

REFRESH_S = 1.0


class RepeatProgress:
    """Keeps and shows the state of every run; those that are finished need nothing."""

    def __init__(self, runs: Sequence[Run], finished: Sequence[Run]) -> None:
        self.console = Console(stderr=True)
        self.began_at: dict[Run, float] = {}
        self.state = {run: "finished before" if run in finished else "waiting" for run in runs}
        self.lines: dict[Run, str] = {}
        self._live = Live(self._table(), console=self.console, auto_refresh=False)
        self._shown_at = 0.0
        self._pace = Pace()

    def __enter__(self) -> RepeatProgress:
        if self.console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.console.is_terminal:
            self._live.update(self._table(), refresh=True)
            self._live.stop()

    def began(self, run: Run, resumed: bool) -> None:
        """A run was started."""
        self.began_at[run] = time.monotonic()
        self.state[run] = "resumed" if resumed else "running"
        self._say(f"{run.name}: {'resumed' if resumed else 'started'} in {run.directory.path}")

    def ended(self, run: Run, problem: str | None, seconds: float) -> None:
        """A run came to its end, or to a problem."""
        self.state[run] = "finished" if problem is None else "stopped"
        self.lines[run] = f"after {clock(seconds)}" if problem is None else problem
        done = sum(state.startswith("finished") for state in self.state.values())
        what = f"finished after {clock(seconds)}" if problem is None else problem
        self._say(f"{run.name}: {what} ({done} of {len(self.state)} finished)")

    def waited(self, logs: Mapping[Run, Path]) -> None:
        """Show the state of the runs at work again, whose logs these are, as time has passed."""
        if not self.console.is_terminal:
            if self._pace.due():
                for run, log in logs.items():
                    spent = clock(time.monotonic() - self.began_at[run])
                    print(f"{run.name}: {spent}, {last_line(log)}", file=sys.stderr, flush=True)
        elif time.monotonic() - self._shown_at >= REFRESH_S:
            self.lines.update({run: last_line(log) for run, log in logs.items()})
            self._live.update(self._table(), refresh=True)
            self._shown_at = time.monotonic()

    def _table(self) -> Table:
        done = sum(state.startswith("finished") for state in self.state.values())
        table = Table(title=f"{done} of {len(self.state)} trainings finished", box=None)
        for heading in ("training", "state", "time"):
            table.add_column(heading, no_wrap=True)
        table.add_column("latest", no_wrap=True, overflow="ellipsis")
        for run, state in self.state.items():
            running = state in ("running", "resumed")
            spent = clock(time.monotonic() - self.began_at[run]) if running else ""
            table.add_row(run.name, state, spent, Text(self.lines.get(run, "")))
        return table

    def _say(self, line: str) -> None:
        if not self.console.is_terminal:
            print(line, flush=True)


# Whole trainings on a Ray cluster, in a folder that all its machines share (docs/scaling.md).
#
# When its worker or node dies, a training goes on from its latest save on another one.


FAILED = 1
CLAIM_S = 10.0  # how long a lost training may take to die before another takes its place
PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)


class NodeTraining:
    """On a node: a training in a process of its own."""

    def __init__(self) -> None:
        self._process: Any = None
        self._interrupted = False

    def reached(self) -> bool:
        """Answers as soon as there is a core."""
        return True

    def train(self, run: Run, threads: int, folder: str) -> int:
        """Train a run, or resume it, in `folder`; returns the exit code. Raises OSError, ValueError."""
        os.chdir(folder)
        end = time.monotonic() + CLAIM_S
        while not self._interrupted:
            try:
                self._process = start_here(run, threads, end_with_parent)
                return int(self._process.wait())
            except ValueError:  # a lost one still holds the run's directory
                if time.monotonic() > end:
                    raise
                time.sleep(0.1)
        return EXIT_INTERRUPTED

    def interrupt(self) -> None:
        """Ctrl-C: it finishes its round and saves; a second one stops it at once."""
        self._interrupted = True
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)


def end_with_parent() -> None:
    """Have this process killed with its parent, and reached by Ctrl-C, which Ray's workers block."""
    _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


class ClusterTraining:
    """A run that is trained on the cluster, on as many cores as threads, handled like a process."""

    def __init__(self, engine: RayEngine, run: Run, threads: int) -> None:
        self.returncode: int | None = None
        self._engine = engine
        self._run = run
        self._threads = threads
        self._losses = 0
        self._signals = 0
        self._interrupted = False
        self._place()

    def _place(self) -> None:
        self._node = self._engine.place(NodeTraining, self._threads)
        self._reached = self._node.reached.remote()
        self._code = self._node.train.remote(self._run, self._threads, os.getcwd())

    def send_signal(self, signum: int, /) -> None:
        """Ctrl-C, passed on by the next `poll`: Ray is not to be called from a handler of signals."""
        self._signals += 1
        self._interrupted = True

    def poll(self) -> int | None:
        """The exit code, or None as long as it is at work; what goes wrong is a line of its log."""
        if self.returncode is None:
            try:
                if self._signals and self._engine.answer(self._reached) is None:
                    self.returncode = EXIT_INTERRUPTED  # it waits for a core
                else:
                    for _ in range(self._signals):
                        self._node.interrupt.remote()
                    self._signals = 0
                    self.returncode = self._engine.answer(self._code)
            except LostTaskError as lost:
                self.returncode = self._go_on(str(lost))
            except Exception as error:  # ends this training, not the others
                self._say(f"error: {error}")
                self.returncode = FAILED
            if self.returncode is not None:
                del self._node  # the last reference: Ray ends the worker
        return self.returncode

    def _go_on(self, problem: str) -> int | None:
        """Elsewhere, from the latest save; returns the exit code if it does not."""
        self._losses += 1
        if self._interrupted:
            return EXIT_INTERRUPTED
        if self._losses > RETRIES:
            self._say(f"error: {problem}, {self._losses} times")
            return FAILED
        self._say(f"{problem}: it goes on elsewhere from its latest save")
        self._place()
        return None

    def _say(self, line: str) -> None:
        with log_of(self._run).open("a", encoding="utf-8") as log:
            print(" ".join(line.split()), file=log)


@contextmanager
def started_by(engine: Literal["local", "ray"], address: str | None) -> Iterator[Start]:
    """What starts a training: a process of this machine, or the Ray cluster at an address.

    Raises:
        UsageError: for an address without Ray or the other way round, if Ray is not installed, or no cluster
            with cores answers.
    """
    if engine == "local":
        if address is not None:
            raise UsageError(f"ray.address={address} was given to engine=local: use engine=ray")
        yield start_here
        return
    if address is None:
        raise UsageError("engine=ray needs ray.address=auto|HOST:PORT: trainings share a cluster")
    with RayEngine(address, 1) as cluster:
        _ = cluster.workers  # refuses a cluster that has none
        yield partial(ClusterTraining, cluster)
