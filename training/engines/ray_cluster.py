"""Tasks on a Ray cluster (Moritz et al. 2018), a core each; Ray is the optional extra `rllib`."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from training.config import UsageError
from training.engines.carrying import carry_out
from training.engines.engine import RETRIES, Engine, LostTaskError

OBJECT_STORE_BYTES = 80_000_000
"""Object store of our own Ray: what travels is small, and larger objects spill to the disk."""
ANSWER_S = 5.0


class RayEngine(Engine):
    """Tasks on the cluster at `address`, or in a Ray of `workers` cores that lives as long as the engine.

    Ray carries out again what was running on a worker or a node that died, on what is left of the cluster.

    Args:
        address: "auto" for the cluster that this machine belongs to, or HOST:PORT; None: a Ray of our own.
        workers: cores of a Ray of our own.

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

        Two of its methods may run at the same time, so that one can wait.

        Args:
            kind: makes it; workers can import it.
            cores: that it takes; until they are free, it waits.
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
        """Errors of Ray as those of an engine."""
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
