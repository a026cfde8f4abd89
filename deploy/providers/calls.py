"""Asking several regions at once, each for a limited time: one that hangs holds up nobody else.

The SDK's own time limits are for one read of a socket, so an answer that comes byte by byte may take for
ever. What is too late here goes on in its thread, which nobody waits for, and its answer is not used. Its
region is not asked the same again for `AGAIN_S`, unless the late call ends well before.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from typing import TypeVar

import structlog

from deploy.providers.base import ProviderError

log = structlog.get_logger("providers")
LOOK_S = 20.0
"""For what runs and for prices: pages of them, also for a machine that is busy."""
QUEUE_S = 5.0
CHANGE_S = 15.0
"""For a launch or an end."""
AGAIN_S = 60.0
MOST_LATE = 8
"""Late calls of one kind to one region that go on; beyond them it is not asked until one of them ends."""
T = TypeVar("T")


class Calls:
    """Calls of one provider, which errors name. Safe to use from several threads."""

    def __init__(self, provider: str, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._provider, self._monotonic = provider, monotonic
        self._late: dict[tuple[str, str], list[tuple[float, Future[object]]]] = {}
        self._lock = threading.Lock()

    def each(
        self, kind: str, within_s: float, asks: Mapping[str, Callable[[], T]]
    ) -> tuple[dict[str, T], dict[str, ProviderError]]:
        """Ask some regions at the same time.

        Args:
            kind: of what is asked, in words: it is what late calls are kept apart by.
            within_s: all of them together may take so long.
            asks: by region.

        Returns:
            The answers of those that gave one, and why the others did not, in the order of `asks`.
        """
        errors: dict[str, ProviderError] = {}
        started: dict[str, Future[T]] = {}
        for region, ask in asks.items():
            refused = self._refused(kind, region)
            if refused:
                errors[region] = ProviderError(refused)
            else:
                started[region] = _start(f"{self._provider} {region} {kind}", ask)
        wait(started.values(), within_s)
        answers: dict[str, T] = {}
        for region, future in started.items():
            where = f"{self._provider} {region}: {kind}"
            if not future.done():
                with self._lock:
                    late: Future[object] = future  # type: ignore[assignment]
                    self._late.setdefault((kind, region), []).append((self._monotonic(), late))
                errors[region] = ProviderError(f"{where}: no answer within {within_s:g} s")
                continue
            error = future.exception()
            if error is None:
                answers[region] = future.result()
            elif isinstance(error, ProviderError):
                errors[region] = error
            else:
                # An answer that we cannot read is no reason not to read those of the others.
                log.error("a call failed", provider=self._provider, region=region, kind=kind, exc_info=error)
                errors[region] = ProviderError(f"{where}: {type(error).__name__}: {error}")
        return answers, {region: errors[region] for region in asks if region in errors}

    def one(self, kind: str, within_s: float, region: str, ask: Callable[[], T]) -> T:
        """Ask one region. Raises ProviderError, also if it takes too long."""
        answers, errors = self.each(kind, within_s, {region: ask})
        if errors:
            raise errors[region]
        return answers[region]

    def _refused(self, kind: str, region: str) -> str:
        """Why a region is not asked now; "" if it may be."""
        with self._lock:
            now_s = self._monotonic()
            late = [
                (began_s, future)
                for began_s, future in self._late.pop((kind, region), ())
                if not future.done() or (future.exception() is not None and now_s - began_s < AGAIN_S)
            ]
            if not late:
                return ""
            self._late[kind, region] = late
            if now_s - late[-1][0] < AGAIN_S or len(late) >= MOST_LATE:
                where = f"{self._provider} {region}: {kind}"
                return f"{where}: it did not answer in time, and is left alone for {AGAIN_S:g} s"
            return ""


def _start(name: str, ask: Callable[[], T]) -> Future[T]:
    """In a thread of its own. An executor's would hold up the end of the process."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(ask())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return future
