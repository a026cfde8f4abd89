"""Asks nodes what their metadata service told them: that their instance will be ended, or better be left."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

import structlog

from deploy.model.clock import Clock
from deploy.model.instances import InstanceState
from deploy.store.instances import Instance
from deploy.store.store import Store

_EVERY_S = 5.0
_AT_ONCE = 16
_MOST = 256
"""Nodes of one round. With more of them each is asked every few rounds."""
log = structlog.get_logger("service")


class Notice(Protocol):
    """What a node knows of its end."""

    @property
    def notice_s(self) -> float | None:
        """Epoch seconds at which its instance will be ended; None without notice."""

    @property
    def rebalance(self) -> bool:
        """Whether the provider recommends to leave it."""


class Hearing:
    """A thread beside the scheduler's loop, so that no pass waits for a node that does not answer.

    Args:
        store: where it is kept.
        clock: of the scheduler.
        ask: a node; None: it does not answer.
    """

    def __init__(self, store: Store, clock: Clock, ask: Callable[[Instance], Notice | None]) -> None:
        self._store = store
        self._clock = clock
        self._ask = ask
        self._asked = ""
        self._closed = threading.Event()
        self._pool = ThreadPoolExecutor(_AT_ONCE, "hearing")
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin; `close` ends it."""
        self._thread = threading.Thread(target=self._run, name="hearing", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End after what is being asked just now."""
        self._closed.set()
        if self._thread is not None:
            self._thread.join()
        self._pool.shutdown()

    def listen(self) -> int:
        """One round: ask those of which no end is known yet. Returns how many of them had news.

        Raises:
            StoreError: if it cannot be kept.
        """
        instances = self._due()
        news = 0
        for instance, answer in zip(instances, self._pool.map(self._answer, instances), strict=True):
            if answer is not None and self._keep(instance, answer):
                news += 1
        return news

    def _due(self) -> list[Instance]:
        """Whoever comes after the last one that was asked, by their ids."""
        running = sorted(
            (
                one
                for one in self._store.instances.in_states([InstanceState.RUNNING])
                if one.offer.market == "spot" and one.notice_s is None and one.port
            ),
            key=lambda one: (one.instance_id <= self._asked, one.instance_id),
        )[:_MOST]
        self._asked = running[-1].instance_id if running else ""
        return running

    def _answer(self, instance: Instance) -> Notice | None:
        return None if self._closed.is_set() else self._ask(instance)

    def _keep(self, instance: Instance, answer: Notice) -> bool:
        if answer.notice_s is None and (instance.rebalance or not answer.rebalance):
            return False
        store, name = self._store, instance.instance_id
        with store.transaction():
            # The provider may have said so meanwhile.
            before = store.instances.get(name)
            if not store.instances.noticed(name, answer.notice_s, rebalance=answer.rebalance):
                return False
            if before.notice_s is None and answer.notice_s is not None:
                data = {"ends_s": answer.notice_s}
                store.events.add(
                    "instance.noticed", self._clock.now(), data, key=instance.key, instance_id=name
                )
            return True

    def _run(self) -> None:
        while not self._closed.wait(_EVERY_S):
            try:
                self.listen()
            except Exception:
                # As with passes: whatever it was, the next round asks anew.
                log.exception("nodes could not be asked for their end")
