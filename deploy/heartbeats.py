"""Hears nodes: that they are there, and what their metadata service told them of their end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import NamedTuple, Protocol

import structlog

from spotweave.deploy.model.clock import Clock
from spotweave.deploy.model.gpus import broken_promise
from spotweave.deploy.model.instances import InstanceState
from spotweave.deploy.node.api import GpuStatus
from spotweave.deploy.store.instances import Instance
from spotweave.deploy.store.store import Store

_EVERY_S = 5.0
_ROUND_S = 5.0  # a round waits so long for answers; those that come later are for the next one
_MOST = 256  # nodes of one round. With more of them each is asked every few rounds.
_AT_ONCE = 96
_DOUBTFUL_AT_ONCE = 64  # at most this many of them did not answer last time: they keep no one else waiting
_UNANSWERED = 3  # questions in a row that make a silence of it: one may get lost, or the clock be set
_CUT_OFF = 3
_CUT_OFF_S = 600.0
"""If this many nodes are all silent it is more likely us who cannot be heard. That is believed so long."""
_NEW_AT_ONCE = 32
_NEW_WAIT_S = 0.25
log = structlog.get_logger("service")


class Heartbeat(Protocol):
    """Heartbeat of a node."""

    @property
    def notice_s(self) -> float | None:
        """Epoch seconds at which its instance will be ended; None without notice."""

    @property
    def rebalance(self) -> bool:
        """Whether the provider recommends to leave the instance."""

    @property
    def draining(self) -> bool:
        """Whether the node accepts no more work."""

    @property
    def gpus(self) -> Sequence[GpuStatus] | None:
        """Its GPUs; None: it has not looked yet."""

    @property
    def no_gpus(self) -> str:
        """Why there are not more."""


class _Heard(NamedTuple):
    """The latest heartbeat of a running node."""

    answered_s: float  # when it last answered, or was first asked
    unanswered_s: float  # when its last question that got no answer was given up
    unanswered: int = 0  # questions since its last answer


class Heartbeats:
    """A thread next to the scheduler's loop, so that no pass waits for a node that does not answer.

    What it knows of answers is in memory: after a restart every node has its time again.

    `ask` returns None for a node that does not answer, and returns in time by itself.
    """

    def __init__(self, store: Store, clock: Clock, ask: Callable[[Instance], Heartbeat | None]) -> None:
        self._store, self._clock, self._ask = store, clock, ask
        self._heard: dict[str, _Heard] = {}
        """Latest heartbeats of running nodes by id; written by one thread."""
        self._lacks: dict[str, str] = {}
        """What nodes lack of what their offers promise, by id; usually empty."""
        self._turns: dict[str, int] = {}
        """When each was last asked, as the number of the question."""
        self._questions = 0
        self._asked: dict[str, tuple[Instance, Future[Heartbeat | None]]] = {}
        self._new: dict[str, Future[Heartbeat | None]] = {}
        self._closed = threading.Event()
        self._pool = ThreadPoolExecutor(_AT_ONCE, "heartbeats")
        self._new_pool = ThreadPoolExecutor(_NEW_AT_ONCE, "heartbeats-new")
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin; `close` ends it."""
        self._thread = threading.Thread(target=self._run, name="heartbeats", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End after what is being asked just now."""
        self._closed.set()
        if self._thread is not None:
            self._thread.join()
        self._pool.shutdown(cancel_futures=True)
        self._new_pool.shutdown(cancel_futures=True)

    def silent_s(self, instance_id: str, now_s: float) -> float:
        """For how long a node that runs has left questions unanswered; 0 while it answers.

        Only questions count, not time: while nodes are not asked, because the scheduler is down or slow, none
        of them gets silent by that.

        Of an instance that does not run it is 0.
        """
        heard = self._heard.get(instance_id)
        if heard is None or heard.unanswered < _UNANSWERED:
            return 0.0
        silence_s = max(0.0, min(now_s, heard.unanswered_s) - heard.answered_s)
        everyone = list(self._heard.values())
        cut_off = len(everyone) >= _CUT_OFF and all(one.unanswered for one in everyone)
        return 0.0 if cut_off and silence_s < _CUT_OFF_S else silence_s

    def lacks(self, instance_id: str) -> str:
        """What a node lacks of what its offer promised, in one line, as it said last; "": nothing."""
        return self._lacks.get(instance_id, "")

    def answers(self, instance: Instance) -> bool:
        """Whether the node of a new instance answers and takes work, and knows which GPUs it has.

        It hardly waits: the answer of a node that takes its time is for a later call.
        """
        name = instance.instance_id
        if len(self._new) > 2 * _MOST:
            self._new = {other: asked for other, asked in self._new.items() if not asked.done()}
        if name not in self._new:
            # Where another node is waited for already, the next call comes soon enough.
            patience_s = 0.0 if self._new else _NEW_WAIT_S
            self._new[name] = self._new_pool.submit(self._answer, instance)
            wait([self._new[name]], patience_s)
        if not self._new[name].done():
            return False
        answer = self._result(instance, self._new.pop(name))
        if answer is None or answer.draining or (instance.offer.gpus and answer.gpus is None):
            return False
        self._compare(instance, answer)
        return True

    def listen(self) -> int:
        """One round. Returns how many nodes had news. Raises StoreError if the store cannot be read."""
        now_s = self._clock.now()
        for instance in self._due():
            name = instance.instance_id
            self._questions += 1
            self._turns[name] = self._questions
            self._heard.setdefault(name, _Heard(now_s, now_s))
            self._asked[name] = (instance, self._pool.submit(self._answer, instance))
        wait([asked for _, asked in self._asked.values()], _ROUND_S)
        news = 0
        for name, (instance, asked) in list(self._asked.items()):
            if asked.done():
                del self._asked[name]
                answer = self._result(instance, asked)
                self._note(name, answer is not None)
                if answer is not None:
                    self._compare(instance, answer)
                try:
                    news += answer is not None and self._keep(instance, answer)
                except Exception:
                    log.exception("what a node says could not be kept", instance=name)
        return news

    def _compare(self, instance: Instance, answer: Heartbeat) -> None:
        """Note what it lacks of its offer. Before it has looked, what it said before holds."""
        offer = instance.offer
        if not offer.gpus or answer.gpus is None:
            return
        found = [(one.name, one.memory_gib) for one in answer.gpus]
        lacks = broken_promise(offer.gpus, offer.gpu, offer.gpu_memory_gib, found, answer.no_gpus)
        if lacks:
            self._lacks[instance.instance_id] = lacks
        else:
            self._lacks.pop(instance.instance_id, None)

    def _due(self) -> list[Instance]:
        """Whoever was asked longest ago, and is not being asked."""
        running = {
            one.instance_id: one
            for one in self._store.instances.in_states([InstanceState.RUNNING])
            if one.port
        }
        self._heard = {name: heard for name, heard in self._heard.items() if name in running}
        self._turns = {name: turn for name, turn in self._turns.items() if name in running}
        room = _MOST - len(self._asked)
        doubtful = _DOUBTFUL_AT_ONCE - sum(self._is_doubtful(name) for name in self._asked)
        due: list[Instance] = []
        for name in sorted(
            running.keys() - self._asked.keys(), key=lambda one: (self._turns.get(one, 0), one)
        ):
            if len(due) == room:
                break
            if self._is_doubtful(name):
                if not doubtful:
                    continue
                doubtful -= 1
            due.append(running[name])
        return due

    def _is_doubtful(self, name: str) -> bool:
        return name in self._heard and self._heard[name].unanswered > 0

    def _answer(self, instance: Instance) -> Heartbeat | None:
        return None if self._closed.is_set() else self._ask(instance)

    def _result(self, instance: Instance, asked: Future[Heartbeat | None]) -> Heartbeat | None:
        error = asked.exception()
        if error is None:
            return asked.result()
        log.error("a node could not be asked", instance=instance.instance_id, exc_info=error)
        return None

    def _note(self, name: str, answered: bool) -> None:
        now_s = self._clock.now()
        before = self._heard.get(name, _Heard(now_s, now_s))
        if answered:
            self._heard[name] = _Heard(now_s, now_s)
        else:
            # A clock that was set back must not make a silence last longer.
            self._heard[name] = _Heard(min(before.answered_s, now_s), now_s, before.unanswered + 1)

    def _keep(self, instance: Instance, answer: Heartbeat) -> bool:
        if instance.offer.market != "spot" or instance.notice_s is not None:
            return False
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
        while not self._closed.is_set():
            began_s = time.monotonic()
            try:
                self.listen()
            except Exception:
                # As with passes: whatever it was, there is another round.
                log.exception("nodes could not be heard")
            self._closed.wait(max(_EVERY_S / 5, began_s + _EVERY_S - time.monotonic()))
