"""The organizing broker's part: a list that all brokers confirm (Algorithm 5 of Liu 2022)."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from agents.federated.asynchronous.brokers import confirm
from agents.federated.asynchronous.updates import UpdateId
from deploy.fl.brokers.broker import DurableBroker, Held, incomplete
from deploy.fl.brokers.messages import Agreement
from deploy.fl.brokers.places import BrokerError, Place


class Other(Protocol):
    """Another broker, as the organizer sees it. Both raise BrokerError."""

    def held(self) -> Held:
        """See DurableBroker."""

    def agree(self, version: int, confirmed: Sequence[UpdateId], discarded: Iterable[UpdateId]) -> None:
        """See DurableBroker."""


class RemoteBroker:
    """Another broker over its connection."""

    def __init__(self, place: Place) -> None:
        self._place = place

    def held(self) -> Held:
        """See DurableBroker."""
        found: Any = self._place.post("/v1/held")
        return Held(found["version"], [UpdateId(*one) for one in found["updates"]])

    def agree(self, version: int, confirmed: Sequence[UpdateId], discarded: Iterable[UpdateId]) -> None:
        """See DurableBroker."""
        message = Agreement(version=version, confirmed=list(confirmed), discarded=list(discarded))
        self._place.post("/v1/agree", message.model_dump())


class Organizer:
    """Of one job; broker 0.

    Args:
        own: broker 0 itself.
        others: by number.
        incomplete_s: an update of which shards are missing is given up after so long.
    """

    def __init__(self, own: DurableBroker, others: Mapping[int, Other], incomplete_s: float) -> None:
        self._own = own
        self._others = others
        self._incomplete_s = incomplete_s
        self._since_s: dict[UpdateId, float] = {}
        self._one = threading.Lock()

    def prepare(self, version: int) -> list[UpdateId]:
        """Have a list confirmed for the version after this one; the same list until that is there.

        Returns:
            The list; empty while updates have to be waited for.

        Raises:
            BrokerError: if a broker does not answer, or is not where the others are.
        """
        with self._one:
            if agreed := self._own.agreed():
                # Perhaps it was killed before it could tell the others.
                self._tell(version, agreed, [])
                return agreed
            held = {0: self._own.held(), **{number: one.held() for number, one in self._others.items()}}
            if {one.version for one in held.values()} != {version}:
                raise BrokerError(f"not all brokers know model {version} yet")
            updates = {number: one.updates for number, one in held.items()}
            complete = confirm(updates[0], updates, len(held)).confirmed
            chosen = self._own.choose(complete, version)
            discarded = self._overdue(incomplete(list(held.values()))) + self._own.superseded(complete)
            if chosen or discarded:
                self._own.agree(version, chosen or [], discarded)
                self._tell(version, chosen or [], discarded)
            return chosen or []

    def _tell(self, version: int, confirmed: Sequence[UpdateId], discarded: Sequence[UpdateId]) -> None:
        for other in self._others.values():
            other.agree(version, confirmed, discarded)

    def _overdue(self, missing: set[UpdateId]) -> list[UpdateId]:
        now_s = time.monotonic()
        self._since_s = {update: self._since_s.get(update, now_s) for update in missing}
        return [update for update, since_s in self._since_s.items() if now_s - since_s > self._incomplete_s]
