"""One way to carry out independent tasks, whatever carries them out."""

from __future__ import annotations

import logging
import multiprocessing
import os
import pickle
import signal
import socket
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ProcessPoolExecutor, ThreadPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import lru_cache, partial
from importlib.util import find_spec
from queue import SimpleQueue
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import ConfigDict, Field

from spotweave.training.config import UsageError, typed

Given = TypeVar("Given")
Result = TypeVar("Result")

RETRIES = 3  # how often a task is carried out again because its process or its machine died


class LostTaskError(UsageError):
    """A task whose process died every time, told in one line."""


class Engine(ABC):
    """Carries out tasks anywhere and in any order; results come in the order of the tasks.

    The work is pickled once and each worker keeps what it unpickles, so that a work may hold what is slow to
    make (a world) and make it when first called. Its result must depend on the task alone: then neither the
    number of workers, nor the order of their answers, nor a task that is carried out twice changes it.
    """

    def map(
        self,
        work: Callable[[Given], Result],
        tasks: Sequence[Given],
        arrived: Callable[[int], None] | None = None,
    ) -> list[Result]:
        """`[work(task) for task in tasks]`; a task whose worker dies is carried out again.

        Work and tasks can be pickled; `arrived` is called with the number of each task as it ends.

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

    def __exit__(self, *_: object) -> None:
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


KEPT_WORKS = 4
"""A worker keeps so many works with their worlds: those of a training, its validation and a comparison."""


def carry_out(pickled: bytes, task: bytes) -> bytes:
    """The result of a work for a task; all three are pickled here, because Ray's own arrays are read-only."""
    return pickle.dumps(_unpickled(pickled)(pickle.loads(task)))


@lru_cache(KEPT_WORKS)
def _unpickled(pickled: bytes) -> Callable[[Any], Any]:
    work: Callable[[Any], Any] = pickle.loads(pickled)
    if "torch" in sys.modules:
        # There is a worker for each core, and what a network sums up must not depend on a machine's cores.
        sys.modules["torch"].set_num_threads(1)
    return work


# Which engine a command uses, and with how many workers.


KEYS = ("engine", "workers", "ray")


@dataclass
class RaySettings:
    """Settings of the connection to Ray."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    # "auto" for the cluster that this machine belongs to, or HOST:PORT; None: one of our own
    address: str | None = None


@dataclass
class EngineSettings:
    """The engine that runs trainings; no result depends on it."""

    engine: Literal["local", "ray"] = "local"  # "local", this machine, or "ray", a Ray cluster
    # processes of this machine, or cores of a Ray of our own; 1 with "local": this process
    workers: Annotated[int, Field(ge=1)] = 1
    ray: RaySettings = field(default_factory=RaySettings)  # connection to Ray

    def open(self) -> AbstractContextManager[Engine | None]:
        """The engine; None: everything is done in this process.

        Raises:
            UsageError: if Ray is not installed, nothing answers at its address, or what is given to one
                engine is for another.
        """
        if self.engine == "ray":
            if self.ray.address is not None and self.workers > 1:
                raise UsageError(
                    f"workers={self.workers} was given with ray.address={self.ray.address}: a cluster has as "
                    "many as it has cores; leave workers= out"
                )
            return RayEngine(self.ray.address, self.workers)
        if self.ray.address is not None:
            raise UsageError(f"ray.address={self.ray.address} was given to engine=local: use engine=ray")
        return nullcontext() if self.workers == 1 else LocalEngine(self.workers)


HERE = EngineSettings()


def engine_settings(values: Mapping[str, Any]) -> EngineSettings:
    """Checked settings from the keys of a command's configuration. Raises UsageError."""
    return typed(EngineSettings, {name: values[name] for name in KEYS}, "")


# Tasks on a Ray cluster (Moritz et al. 2018), a core each; Ray is the optional extra `rllib`.


OBJECT_STORE_BYTES = 80_000_000
"""Object store of our own Ray: what travels is small, and larger objects spill to the disk."""
ANSWER_S = 5.0


class RayEngine(Engine):
    """Tasks on the cluster at `address`, or in a Ray of `workers` cores that lives as long as the engine.

    Ray carries out again what was running on a worker or a node that died, on what is left of the cluster.

    Raises:
        UsageError: if Ray is not installed, or nothing answers at the address.
    """

    def __init__(self, address: str | None, workers: int) -> None:
        if find_spec("ray") is None:
            raise UsageError("engine=ray needs Ray, which is not installed: pip install 'spotweave[rllib]'")
        if address is not None and address != "auto":
            _require_answer(address)
        # Ray reads these when it is imported.
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        import ray

        options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
        if address is None:
            options |= {"num_cpus": workers, "include_dashboard": False}
            options |= {"object_store_memory": OBJECT_STORE_BYTES}
        try:
            ray.init(address or "local", **options)
        except ConnectionError as error:
            raise _no_answer(str(address), error) from error
        self._ray = ray
        # Ray takes a task for lost if its worker or node died, not if the work raised.
        self._remote = ray.remote(carry_out).options(num_cpus=1, max_retries=RETRIES, retry_exceptions=False)

    @property
    def workers(self) -> int:
        """The cores of the cluster as it is now. Raises UsageError if it has none."""
        cores = int(self._ray.cluster_resources().get("CPU", 0))  # type: ignore[no-untyped-call]
        if cores < 1:
            raise UsageError("the Ray cluster has no cores: start its nodes with `ray start --num-cpus N`")
        return cores

    def _submit(self, pickled: bytes, task: bytes) -> Future[bytes]:
        future: Future[bytes] = self._remote.remote(pickled, task).future()
        return future

    def _result(self, future: Future[bytes]) -> bytes:
        with self._told(f"a task ended its worker {1 + RETRIES} times"):
            return future.result()

    def place(self, kind: Callable[[], Any], cores: int) -> Any:
        """An object in a process of its own on the cluster, as Ray's handle, whose loss ends that process.

        Two of its methods may run at the same time, so that one can wait. Workers can import `kind`, which
        makes it; until as many cores are free, it waits.
        """
        return self._ray.remote(kind).options(num_cpus=cores, max_concurrency=2).remote()

    def answer(self, asked: Any) -> Any | None:
        """What a method of a placed object returned, or None as long as it runs.

        Raises:
            LostTaskError: if its worker or node died.
            Exception: what the method raised.
        """
        if not self._ray.wait([asked], timeout=0)[0]:
            return None
        with self._told("its worker or node died"):
            return self._ray.get(asked)

    @contextmanager
    def _told(self, loss: str) -> Iterator[None]:
        errors = self._ray.exceptions
        try:
            yield
        except errors.RayTaskError as error:  # its own text is a traceback of the worker
            raise error.cause from None
        except errors.RayError as error:
            raise LostTaskError(f"{loss} ({str(error).splitlines()[0]})") from error

    def _give_up(self, future: Future[bytes]) -> None:
        # They run out, or end with the engine: Ray 2.55 aborts this process where a reply meets `ray.cancel`.
        pass

    def close(self) -> None:
        """Leave the cluster, or end a Ray of our own."""
        self._ray.shutdown()


def _require_answer(address: str) -> None:
    """Refuse an address where nobody listens: Ray itself would try for minutes. Raises UsageError."""
    try:
        host, port = address.rsplit(":", 1)
        socket.create_connection((host, int(port)), ANSWER_S).close()
    except (OSError, ValueError) as error:
        raise _no_answer(address, error) from error


def _no_answer(address: str, error: Exception) -> UsageError:
    reason = " ".join(str(error).split())
    return UsageError(
        f"no Ray cluster answers at ray.address={address} ({reason}): expected auto or HOST:PORT of one that "
        "`ray start --head` started; without ray.address, engine=ray starts a Ray of its own"
    )
