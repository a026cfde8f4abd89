"""Tasks in processes of this machine."""

from __future__ import annotations

import multiprocessing
import signal
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from queue import SimpleQueue

from training.engines.carrying import carry_out
from training.engines.engine import RETRIES, Engine, LostTaskError


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
