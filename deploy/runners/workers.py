"""Background threads for slow calls: one call per name at a time, and no caller blocks on it."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future

_log = logging.getLogger(__name__)


class Work:
    """Something that is done in a thread.

    Attributes:
        future: how it ends.
        begun_s: when a thread took it up (monotonic); None while it waits for one.
    """

    def __init__(self, act: Callable[[], object]) -> None:
        self.future: Future[object] = Future()
        self.begun_s: float | None = None
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
        """How long a thread has been at it."""
        return 0.0 if self.begun_s is None else time.monotonic() - self.begun_s


class WorkerPool:
    """A number of threads that are started when they are needed, and hold up nobody's end.

    Args:
        name: of the threads.
        most: of them.
    """

    def __init__(self, name: str, most: int) -> None:
        self._name = name
        self._most = most
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
    """How long callers may wait together: a little while is allowed again and again.

    Args:
        most_s: at once.
        refill: seconds that are allowed again for each second that passes.
    """

    def __init__(self, most_s: float, refill: float) -> None:
        self._most_s, self._refill = most_s, refill
        self._left_s = most_s
        self._seen_s = time.monotonic()
        self._lock = threading.Lock()

    def wait(self, work: Work) -> bool:
        """Wait for an work as long as that is allowed. Returns whether it is done."""
        with self._lock:
            now_s = time.monotonic()
            self._left_s = min(self._most_s, self._left_s + self._refill * (now_s - self._seen_s))
            self._seen_s = now_s
            allowed_s = self._left_s
        done = _wait(work.future, allowed_s)
        with self._lock:
            self._left_s = max(0.0, self._left_s - (time.monotonic() - now_s))
        return done


def wait_for(works: list[Work], within_s: float) -> None:
    """Wait until all are done, but no longer than that in sum."""
    until_s = time.monotonic() + within_s
    for work in works:
        _wait(work.future, until_s - time.monotonic())


def _wait(future: Future[object], within_s: float) -> bool:
    try:
        future.exception(timeout=max(0.0, within_s))
    except TimeoutError:
        return False
    return True
