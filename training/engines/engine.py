"""One way to carry out independent tasks, whatever carries them out."""

from __future__ import annotations

import multiprocessing
import pickle
import signal
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ProcessPoolExecutor, ThreadPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Self, TypeVar

from training.config import UsageError
from training.engines.carrying import carry_out

Given = TypeVar("Given")
Result = TypeVar("Result")

RETRIES = 3
"""How often a task is carried out again because its process or its machine died."""


class LostTaskError(UsageError):
    """A task whose process died every time, told in one line."""


class Engine(ABC):
    """Carries out tasks anywhere and in any order; results come in the order of the tasks.

    The work is pickled once and each worker keeps what it unpickles, so that a work may hold what is slow to
    make (a world) and make it when first called. Its result must depend on the task alone: then neither the
    number of workers, nor the order of their answers, nor a task that is carried out twice changes it.

    """

    @property
    @abstractmethod
    def workers(self) -> int:
        """Tasks that run at the same time."""

    def map(
        self,
        work: Callable[[Given], Result],
        tasks: Sequence[Given],
        arrived: Callable[[int], None] | None = None,
    ) -> list[Result]:
        """`[work(task) for task in tasks]`; a task whose worker dies is carried out again.

        Args:
            work: it and the tasks can be pickled.
            tasks: what is to be done.
            arrived: called with the number of each task that is done, as they end.

        Raises:
            LostTaskError: if a task's worker died `RETRIES` times more.
            Exception: what the work raised; the other tasks are given up.
        """
        pickled = pickle.dumps(work)
        futures: list[Future[bytes]] = []
        try:
            for number, task in enumerate(tasks):
                future = self._submit(pickled, pickle.dumps(task))
                futures.append(future)
                if arrived is not None:
                    future.add_done_callback(partial(_tell, arrived, number))
            ended = wait(futures, return_when=FIRST_EXCEPTION).done
            for future in futures:
                if future in ended:
                    self._result(future)
            return [pickle.loads(self._result(future)) for future in futures]
        except BaseException:
            for future in futures:
                self._give_up(future)
            raise

    @abstractmethod
    def _submit(self, pickled: bytes, task: bytes) -> Future[bytes]:
        """Begin `carry_out(pickled, task)`."""

    def _result(self, future: Future[bytes]) -> bytes:
        """What a task came to, waited for; raises what its work raised, or LostTaskError."""
        return future.result()

    def _give_up(self, future: Future[bytes]) -> None:
        """Abandon a task that nobody waits for any more."""
        future.cancel()

    @abstractmethod
    def close(self) -> None:
        """End the workers."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def _tell(arrived: Callable[[int], None], number: int, future: Future[Any]) -> None:
    arrived(number)


# Tasks in processes of this machine.


class LocalEngine(Engine):
    """Tasks in `workers` processes of this machine; each is a pool of its own and dies alone."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._threads = ThreadPoolExecutor(workers)
        self._idle: SimpleQueue[ProcessPoolExecutor] = SimpleQueue()
        for _ in range(workers):
            self._idle.put(_process())

    @property
    def workers(self) -> int:
        """The processes."""
        return self._workers

    def _submit(self, pickled: bytes, task: bytes) -> Future[bytes]:
        return self._threads.submit(self._carry_out, pickled, task)

    def _carry_out(self, pickled: bytes, task: bytes) -> bytes:
        process = self._idle.get()
        try:
            for _ in range(1 + RETRIES):
                try:
                    return process.submit(carry_out, pickled, task).result()
                except BrokenProcessPool:
                    process.shutdown()
                    process = _process()
            raise LostTaskError(
                f"a task ended its process {1 + RETRIES} times: if memory is short, use fewer workers"
            )
        finally:
            self._idle.put(process)

    def close(self) -> None:
        """End the processes; tasks that have not begun are given up."""
        self._threads.shutdown(cancel_futures=True)
        for _ in range(self._workers):
            self._idle.get().shutdown()


def _process() -> ProcessPoolExecutor:
    # Ctrl-C reaches every process of a terminal: this one decides what becomes of the work.
    ignored = (signal.SIGINT, signal.SIG_IGN)
    return ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), signal.signal, ignored)
