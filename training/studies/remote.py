"""Whole trainings on a Ray cluster: each on some node, its files brought here whenever it saves.

For those whose episodes are no tasks (docs/scaling.md). What is kept is here: a worker or a node that is lost
costs what was learned since the latest save, and the training goes on from that save on another one.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import IO, Any, NamedTuple

from training import train
from training.adaptation import start_of
from training.config import INTERRUPTED, compose_values, run_command
from training.engines.engine import RETRIES, LostTaskError
from training.engines.ray_cluster import RayEngine
from training.files import write_bytes
from training.run_directory import RunDirectory
from training.studies.processes import TRAIN, Start, log_of
from training.studies.trained import Run

POLL_S = 0.2
FAILED = 1


class News(NamedTuple):
    """What happened to a training since it was last asked.

    Attributes:
        log: what it printed.
        files: by their path in the run's directory, in the order in which they were read: a file never
            belongs to a later moment than those after it, the state before all that it depends on.
        code: its exit code, once it has ended.
    """

    log: bytes = b""
    files: Mapping[str, bytes] = {}
    code: int | None = None


class NodeTraining:
    """On a node: `training/train.py resume=` in a process and a scratch folder of its own."""

    def begin(self, files: Mapping[str, bytes], threads: int) -> News:
        """Begin with the files of the run, or go on from them. Raises OSError where there is no room."""
        self._scratch = Path(tempfile.mkdtemp(prefix="spotweave-"))
        self._run = RunDirectory(self._scratch / "run")
        self._run.path.mkdir()
        for name, content in files.items():
            (self._run.path / name).write_bytes(content)
        self._seen = {path: _mark(path) for path in self._run.path.iterdir()}
        log = self._scratch / "log"
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-u", "-m", "training.studies.remote", "resume=run"],
                cwd=self._scratch,
                stdin=subprocess.PIPE,  # never written to: it ends with this process, however that ends
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, "OMP_NUM_THREADS": str(threads)},
                start_new_session=True,
            )
        self._log = log.open("rb")
        return News()

    def news(self) -> News:
        """Wait for news: new output, the files changed by a save, or the exit code."""
        while True:
            code = self._process.poll()
            state = self._run.state
            saved = state.is_file() and _mark(state) != self._seen.get(state)
            files = self._changed() if saved or code is not None else {}
            log = self._log.read()
            if code is not None:
                self._log.close()
                shutil.rmtree(self._scratch)
                assert self._process.stdin is not None
                self._process.stdin.close()  # not before: what waits for it removes the folder as well
            if log or files or code is not None:
                return News(log, files, code)
            time.sleep(POLL_S)

    def interrupt(self) -> None:
        """Ctrl-C: it finishes its round and saves; a second one stops it at once."""
        self._process.send_signal(signal.SIGINT)

    def _changed(self) -> dict[str, bytes]:
        # The end was written last and the state before it: what is read after them is at least as new.
        last = (self._run.done, self._run.state)
        there = [path for path in self._run.path.rglob("*") if path.is_file() and path.name[0] != "."]
        found = {}
        for path in sorted(there, key=lambda path: last.index(path) if path in last else len(last)):
            mark = _mark(path)
            if self._seen.get(path) != mark:
                found[path.relative_to(self._run.path).as_posix()] = path.read_bytes()
                self._seen[path] = mark
        return found


def _mark(path: Path) -> tuple[int, int, int]:
    """Differs whenever a file was written in between."""
    stat = path.stat()
    return stat.st_ino, stat.st_mtime_ns, stat.st_size


class ClusterTraining:
    """A run that is trained on the cluster, handled like a process.

    Args:
        engine: the cluster.
        run: what is trained; its directory is made here if there is none.
        threads: OMP_NUM_THREADS, and as many cores.
        claim: the lock on the run's directory, held until the training has ended.

    Raises:
        ValueError: for settings that are wrong, before anything is sent.
        OSError: if the run's directory cannot be read or written.
    """

    def __init__(self, engine: RayEngine, run: Run, threads: int, claim: IO[bytes]) -> None:
        self.returncode: int | None = None
        self._engine = engine
        self._run = run
        self._threads = threads
        self._losses = 0
        self._signals = 0
        self._interrupted = False
        if not run.begun:
            _make_directory(run)
        self._send()
        self._claim = os.dup(claim.fileno())

    def _send(self) -> None:
        directory = self._run.directory.path
        files = {
            path.name: path.read_bytes()
            for path in directory.iterdir()
            if path.is_file() and path.name[0] != "." and path != log_of(self._run)
        }
        self._begun = False
        self._there: Any = self._engine.place(NodeTraining, self._threads)
        self._asked: Any = self._there.begin.remote(files, self._threads)

    def send_signal(self, signum: int, /) -> None:
        """Ctrl-C, passed on by the next `poll`: Ray is not to be called from a handler of signals."""
        self._signals += 1
        self._interrupted = True

    def poll(self) -> int | None:
        """Write what has arrived; the exit code, once the training has ended."""
        if self.returncode is None:
            try:
                try:
                    self._look()
                except LostTaskError as lost:
                    self._go_on(str(lost))
            except Exception as error:  # of this machine or the node: it ends this training, not the others
                with suppress(OSError):
                    self._say(f"error: {error}")
                with suppress(Exception):  # the node may be gone
                    self._there.interrupt.remote()
                self._end(FAILED)
        return self.returncode

    def _look(self) -> None:
        if self._signals and not self._begun:
            self._end(INTERRUPTED)  # it waits for a core, and what was saved is here
            return
        for _ in range(self._signals):
            self._there.interrupt.remote()
        self._signals = 0
        news: News | None = self._engine.answer(self._asked)
        if news is None:
            return
        self._begun = True
        if news.log:
            with log_of(self._run).open("ab") as log:
                log.write(news.log)
        for name, content in reversed(list(news.files.items())):
            path = self._run.directory.path / name
            path.parent.mkdir(exist_ok=True)
            write_bytes(path, content)
        if self._run.directory.state.name in news.files:
            self._losses = 0
        if news.code is not None:
            self._end(news.code)
        else:
            self._asked = self._there.news.remote()

    def _go_on(self, problem: str) -> None:
        """Elsewhere, from the latest save."""
        self._losses += 1
        if self._interrupted:
            self._end(INTERRUPTED)
        elif self._losses > RETRIES:
            self._say(f"error: {problem}, {self._losses} times without a save in between")
            self._end(FAILED)
        else:
            self._say(f"{problem}: it goes on elsewhere from its latest save")
            self._send()

    def _say(self, line: str) -> None:
        with log_of(self._run).open("a", encoding="utf-8") as log:
            print(" ".join(line.split()), file=log)

    def _end(self, code: int) -> None:
        self.returncode = code
        self._there = self._asked = None  # the last reference: Ray ends the worker
        os.close(self._claim)


def _make_directory(run: Run) -> None:
    """What the command makes before it trains; here, where its checkpoint and its mistakes belong."""
    command = " ".join(["python", os.path.relpath(TRAIN), *run.overrides])
    values = train.kept_values(compose_values("train", run.overrides), command)
    start_of(train.new_run(values), values["checkpoint"])


@contextmanager
def cluster_of(runs: Sequence[Run]) -> Iterator[Start | None]:
    """What trains those of the runs that are trained on a cluster; None: there are none.

    Raises:
        UsageError: if Ray is not installed, or no cluster with cores answers.
    """
    address = next((run.cluster for run in runs if run.cluster is not None), None)
    if address is None:
        yield None
        return
    with RayEngine(address, 1) as engine:
        _ = engine.workers  # refuses a cluster that has none
        yield partial(ClusterTraining, engine)


def _end_with_worker() -> subprocess.Popen[bytes]:
    """See to it that this process, what it started and the scratch folder end with the worker.

    By a process that is no child of the worker, because Ray kills those with it.
    """
    # `-s KILL --`: dash takes what follows `-KILL` for a number. Repeated until no one is left (at most for
    # ten seconds): a process that is still ending would write the folder again.
    kill = 'for _ in $(seq 100); do kill -s KILL -- "-$1" || break; sleep 0.1; done'
    script = f'cat > /dev/null; {kill}; rm -rf -- "$2"'
    return subprocess.Popen(
        ["sh", "-c", script, "sh", str(os.getpid()), str(Path.cwd())],  # standard input ends with the worker
        cwd="/",
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


if __name__ == "__main__":
    # Ray starts its processes with this signal blocked, which theirs inherit.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    guard = _end_with_worker()
    run_command("train", train.main)
