"""HALE-Fed: asynchronous difference averaging over brokers that each see one shard (Liu 2022, chapter 6)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from agents.federated.asynchronous.aggregator import (
    Aggregator,
    Need,
    Update,
    UpdateId,
    Vector,
    above_zero,
    at_least,
)
from agents.federated.asynchronous.brokers import Broker, confirm
from agents.federated.asynchronous.shards import Shard, recover, split

UNBOUNDED = np.iinfo(np.int64).max
"""A staleness bound for none: chapter 6 gives HALE-Fed alone none."""


class HaleFed(Aggregator[UpdateId]):
    """AsynDA with all its brokers in one place: what arrives is split at once, only sums are put together.

    Live, the participant splits and the brokers are elsewhere; the shards and the broker are the same.

    Args:
        model: (d,) initial weights.
        round_updates: W.
        brokers: B, two or more.
        rate: eta.
        staleness_bound: T.
    """

    def __init__(
        self,
        model: Vector,
        round_updates: int,
        brokers: int = 2,
        rate: float = 1.0,
        staleness_bound: int = UNBOUNDED,
    ) -> None:
        super().__init__(model, "difference", once_per_version=True)
        at_least("brokers", brokers, 2)
        at_least("updates per round", round_updates, 1)
        above_zero("rate", rate)
        self._needed = round_updates
        self._rate = rate
        self._brokers = [Broker(number, model.size, staleness_bound) for number in range(brokers)]

    def needs(self, *, fresh: bool) -> list[Need]:
        """Updates of anybody."""
        return [Need(None, self._needed if fresh else max(0, self._needed - len(self._brokers[0].held)))]

    def _store(self, update: Update) -> None:
        for broker, values in zip(self._brokers, split(update.values, len(self._brokers)), strict=True):
            shard = Shard(update.participant, update.base_version, broker.number, values, update.samples)
            broker.receive(shard, sender=update.participant)

    def _choose(self) -> list[UpdateId] | None:
        proposed = self._brokers[0].held[: self._needed]
        if len(proposed) < self._needed:
            return None
        return confirm(proposed, {b.number: b.held for b in self._brokers}, len(self._brokers)).confirmed

    def _next_model(self, chosen: Sequence[UpdateId], staleness: Sequence[int]) -> Vector:
        components = {broker.number: broker.component(chosen) for broker in self._brokers}
        values = {number: component.values for number, component in components.items()}
        return self._stepped(recover(values, len(self._brokers), components[0].samples), self._rate)

    def _forget(self, chosen: Sequence[UpdateId]) -> int:
        for broker in self._brokers:
            broker.settle(self.version, chosen)
        return len(chosen)
