"""Whole trainings on a Ray cluster, in a folder that all its machines share (docs/scaling.md).

When its worker or node dies, a training goes on from its latest save on another one.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal

from spotweave.mistakes import EXIT_INTERRUPTED
from spotweave.training.config import UsageError
from spotweave.training.engine import RETRIES, LostTaskError, RayEngine
from spotweave.training.studies.processes import Start, log_of, start_here
from spotweave.training.studies.trained import Run

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
