"""Calls to nodes: their agents as clients, and background threads in which no caller blocks."""

from __future__ import annotations

import logging
import queue
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from spotweave.deploy.model.tasks import Assignment, Node
from spotweave.deploy.node.api import ProcessStatus, Signal
from spotweave.deploy.node.client import WITHIN_S, NodeClient, NodeError, NodeRefused, NodeUnknown
from spotweave.deploy.runners.base import Printed, RunnerError
from spotweave.deploy.runners.jobfolder import PoisonError
from spotweave.deploy.security.sandbox import NO_SANDBOX, Sandbox

_LOG_WITHIN_S = 3.0
_PIECE_BYTES = 1 << 20  # that an agent sends of a log at once
_PIECES_MOST = 256
_STOP_WAIT_S = 3.0


def connect(node: Node, within_s: float = WITHIN_S) -> NodeClient:
    """Make a client of a node's agent; nothing is asked yet."""
    return NodeClient(node.address, node.port, node.token, node.certificate, within_s=within_s)


def search_path(python: str) -> str:
    """PATH of a node's processes: where its Python is, and the usual."""
    return f"{Path(python).parent}:/usr/local/bin:/usr/bin:/bin"


def known_process(agent: NodeClient, process_id: str) -> ProcessStatus | None:
    """Ask how a process is; None if its node does not know it. Raises NodeError."""
    try:
        return agent.process(process_id)
    except NodeUnknown:
        return None


def file_of(agent: NodeClient, path: str, size: int) -> bytes | None:
    """The first bytes of a file in a node's working folder; None if there is none. Raises NodeError."""
    try:
        return agent.get_file(path, size)
    except NodeUnknown:
        return None


def end_process(agent: NodeClient, process_id: str) -> ProcessStatus | None:
    """End a process; None if its node does not know it. Raises RunnerError while it ends, NodeUnreachable."""
    try:
        status = agent.stop_process(process_id, _STOP_WAIT_S)
    except NodeUnknown:
        return None
    except NodeRefused as error:
        raise RunnerError(f"{process_id} cannot be stopped: {error}") from error
    if status.state == "running":
        raise RunnerError(f"{process_id} has not ended yet")
    return status


def printed_on_node(assignment: Assignment, process_id: str, offset: int, most_bytes: int) -> Printed | None:
    """Part of what a process printed, see `Runner.log`; None if none of the nodes knows it.

    Raises RunnerError if one cannot be asked.
    """
    for node in assignment.nodes:
        agent = connect(node, _LOG_WITHIN_S)
        try:
            begin = offset if offset >= 0 else max(0, _log_bytes(agent, process_id) + offset)
            content = agent.log(process_id, begin)[:most_bytes]
            return Printed(content, begin + len(content))
        except NodeUnknown:
            continue
        except NodeRefused as error:
            raise RunnerError(f"its log cannot be read: {error}") from error
        except NodeError as error:
            raise RunnerError(f"its log is on {node.instance_id}, which does not answer: {error}") from error
    return None


def _log_bytes(agent: NodeClient, process_id: str) -> int:
    """How long a log is, which agents do not tell: where the first piece begins that is not whole."""

    def left(piece: int) -> int:
        return len(agent.log(process_id, piece * _PIECE_BYTES))

    last = bisect_left(range(_PIECES_MOST), True, key=lambda piece: left(piece) < _PIECE_BYTES)
    return last * _PIECE_BYTES + left(last)


_log = logging.getLogger(__name__)
PATIENCE_S, REFILL = 3.0, 0.2


class Work:
    """Something that is done in a thread; `future` says how it ends."""

    def __init__(self, act: Callable[[], object]) -> None:
        self.future: Future[Any] = Future()
        self.begun_s: float | None = None  # when a thread took it up (monotonic); None while it waits for one
        self._act = act

    def run(self) -> None:
        """Do it."""
        self.begun_s = time.monotonic()
        try:
            self.future.set_result(self._act())
        except BaseException as error:
            self.future.set_exception(error)

    @property
    def took_s(self) -> float:
        """Seconds that a thread has worked on it."""
        return 0.0 if self.begun_s is None else time.monotonic() - self.begun_s


class WorkerPool:
    """A pool of at most `most` daemon threads, started lazily."""

    def __init__(self, name: str, most: int) -> None:
        self._name, self._most = name, most
        self._lock = threading.Lock()
        self._queue: queue.SimpleQueue[Work] = queue.SimpleQueue()
        self._works: dict[str, Work] = {}
        self._threads = 0
        self._open = 0

    def begin(self, name: str, act: Callable[[], object]) -> Work:
        """Have something done; if the latest work of this name was not collected, that is returned."""
        with self._lock:
            if (found := self._works.get(name)) is not None:
                return found
            work = self._works[name] = Work(act)
            self._queue.put(work)
            self._open += 1
            if self._threads < min(self._open, self._most):
                self._threads += 1
                # Daemons: the scheduler's end does not wait for a node that does not answer.
                threading.Thread(target=self._work, name=f"{self._name}-{self._threads}", daemon=True).start()
            return work

    def pending(self, name: str) -> Work | None:
        """The work of this name that was not collected, if there is one."""
        return self._works.get(name)

    def collect(self, name: str) -> None:
        """Forget the latest work of this name, done or not: the next one may begin."""
        with self._lock:
            self._works.pop(name, None)

    def _work(self) -> None:
        while True:
            work = self._queue.get()
            work.run()
            del work
            with self._lock:
                self._open -= 1


class Patience:
    """How long callers may wait together: `most_s` at once, and `refill` more for each second."""

    def __init__(self, most_s: float, refill: float) -> None:
        self._most_s, self._refill = most_s, refill
        self._left_s = most_s
        self._seen_s = time.monotonic()
        self._lock = threading.Lock()

    def wait(self, work: Work) -> bool:
        """Wait for work as long as that is allowed. Returns whether it is done."""
        with self._lock:
            now_s = time.monotonic()
            self._left_s = min(self._most_s, self._left_s + self._refill * (now_s - self._seen_s))
            self._seen_s = now_s
            allowed_s = self._left_s
        wait([work.future], allowed_s)
        with self._lock:
            self._left_s = max(0.0, self._left_s - (time.monotonic() - now_s))
        return work.future.done()


def wait_for(works: list[Work], within_s: float) -> None:
    """Wait until all are done, but no longer than that in sum."""
    wait([work.future for work in works], within_s)


def one_line(error: BaseException) -> str:
    """An error in one line, with its type unless a runner raised it on purpose."""
    text = " ".join(str(error).split())[:300]
    known = text and isinstance(error, RunnerError | PoisonError)
    return text if known else f"{type(error).__name__}: {text}"


class AsyncRunner:
    """What runners share: locks, and threads, so that a slow node holds up its own task only."""

    def __init__(self, name: str, threads: int, folder: Path) -> None:
        self._folder = folder
        self._acts = WorkerPool(name, threads)
        self._patience = Patience(PATIENCE_S, REFILL)
        self._lock = threading.Lock()
        self._locks: dict[tuple[str, str], threading.RLock] = {}

    def start(self) -> None:
        """See Runner. Nothing is shared by jobs but the state folder."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def leave(self, assignment: Assignment) -> None:
        """See Runner. Tasks have no budgets of their own: none leaves."""

    def _done(self, name: str, act: Callable[[], object]) -> bool:
        """Do something once; whether it finished within a moment. Raises RunnerError if it failed."""
        work = self._acts.begin(name, act)
        if not self._patience.wait(work):
            return False
        self._acts.collect(name)
        self._raise(work)
        return True

    def _finish(self, name: str, act: Callable[[], object], unfinished: str) -> None:
        """Have something done once. Raises RunnerError while it goes on (`unfinished`), or if it failed."""
        if not self._done(name, act):
            raise RunnerError(unfinished)

    def _signal(self, assignment: Assignment, process_id: str, signal: Signal) -> None:
        def tell() -> None:
            try:
                connect(assignment.nodes[0]).signal(process_id, signal)
            except NodeError as error:
                _log.warning("%s cannot be drained: %s", assignment.attempt_id, error)

        name = f"{assignment.attempt_id}:drain"
        self._patience.wait(self._acts.begin(name, tell))
        self._acts.collect(name)

    @contextmanager
    def _alone(self, job_id: str, part: str = "") -> Iterator[None]:
        with self._lock:
            lock = self._locks.setdefault((job_id, part), threading.RLock())
        with lock:
            yield

    def _remove(self, job_id: str, remove: Callable[[str], None], sandbox: Sandbox = NO_SANDBOX) -> None:
        try:
            remove(job_id)
            sandbox.forget(job_id)
        except OSError as error:
            raise RunnerError(f"job {job_id} cannot be forgotten: {error}") from error

    def _forget_locks(self, job_id: str) -> None:
        with self._lock:
            self._locks = {key: lock for key, lock in self._locks.items() if key[0] != job_id}

    @staticmethod
    def _raise(work: Work) -> None:
        error = work.future.exception()
        if error is not None:
            raise error if isinstance(error, RunnerError) else RunnerError(one_line(error)) from error
