"""A broker of HALE-Fed: the shards it holds, and what it adds up when all brokers have confirmed a list.

A state machine without messages: the live side brings the shards and the lists (Algorithm 5 of Liu 2022 and
"Communication Failure Dealing Mechanism" of chapter 6). The brokers are honest but curious.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from spotweave.agents.federated.asynchronous.aggregator import (
    Aggregator,
    Need,
    Update,
    UpdateError,
    UpdateId,
    Vector,
    above_zero,
    at_least,
)
from spotweave.agents.federated.asynchronous.shards import RingVector, Shard, recover, ring_sum, split


class Confirmation(NamedTuple):
    """What the brokers agree on."""

    confirmed: list[UpdateId]  # updates of which every broker holds its shard, in the order proposed
    # proposed updates of which a shard is missing somewhere: every broker discards them
    incomplete: list[UpdateId]


class Component(NamedTuple):
    """C_j of Eq. 6.1, not yet divided by the weights."""

    values: RingVector  # (d,) uint64, the sum of this broker's shards by samples, modulo 2**64
    samples: int  # the sum of the weights, the same at every broker


class Broker:
    """The shard buffer of broker `number`.

    Args:
        number: gamma, 0 to B - 1.
        size: d, weights of the model.
        staleness_bound: T; a shard more versions behind the current model is refused, and removed.
    """

    def __init__(self, number: int, size: int, staleness_bound: int) -> None:
        if staleness_bound < 0:
            raise UpdateError(f"staleness bound T = {staleness_bound}: expected 0 or more")
        self.number = number
        self.version = 0
        self._size = size
        self._bound = staleness_bound
        self._held: dict[UpdateId, Shard] = {}
        # Ids stay here until their base is too old to be accepted anyway: the memory is bounded by T.
        self._settled: set[UpdateId] = set()

    @property
    def held(self) -> list[UpdateId]:
        """The updates whose shard is here, the first to arrive first."""
        return list(self._held)

    @property
    def settled(self) -> set[UpdateId]:
        """Updates that were used or discarded, as far as they are not too old anyway."""
        return set(self._settled)

    def receive(self, shard: Shard, sender: int) -> None:
        """Store a shard.

        Args:
            shard: what arrived.
            sender: the participant that the connection was authenticated as.

        Raises:
            UpdateError: if it is forged, for another broker, of another shape, replayed or decayed.
        """
        what = f"shard {(shard.participant, shard.base_version, shard.broker)}"
        if shard.participant != sender:
            raise UpdateError(f"{what} was sent by participant {sender}: expected its own shards only")
        if shard.broker != self.number:
            raise UpdateError(f"{what} is not for broker {self.number}: send it to broker {shard.broker}")
        if shard.values.shape != (self._size,) or shard.values.dtype != np.uint64:
            raise UpdateError(
                f"{what} holds {shard.values.dtype} {shard.values.shape}: expected uint64 ({self._size},)"
            )
        if shard.samples < 1:
            raise UpdateError(f"{what} counts {shard.samples} samples: expected at least 1")
        if not 0 <= shard.base_version <= self.version:
            raise UpdateError(f"{what} names a model that does not exist: the newest is {self.version}")
        if self.version - shard.base_version > self._bound:
            raise UpdateError(
                f"{what} is {self.version - shard.base_version} versions old: expected at most "
                f"T = {self._bound}; ask for the current model"
            )
        if shard.id in self._held or shard.id in self._settled:
            raise UpdateError(f"{what} was received before: expected each update once")
        self._held[shard.id] = shard

    def component(self, confirmed: Sequence[UpdateId]) -> Component:
        """The weighted sum of this broker's shards of a confirmed list.

        Raises:
            UpdateError: if the list is empty, names one twice, or one that is not here.
        """
        if len(set(confirmed)) != len(confirmed):
            raise UpdateError("a confirmed list names an update twice: expected each once")
        if missing := [update for update in confirmed if update not in self._held]:
            raise UpdateError(f"broker {self.number} holds no shard of {missing[0]}: confirm the list again")
        shards = [self._held[update] for update in confirmed]
        weights = [shard.samples for shard in shards]
        return Component(ring_sum([shard.values for shard in shards], weights), sum(weights))

    def settle(self, version: int, used: Iterable[UpdateId]) -> list[UpdateId]:
        """After the server's success message: forget what was used and what has decayed beyond T.

        Args:
            version: number of the new model.
            used: updates that will not be used again; shadow updates are not among them.

        Returns:
            The decayed updates.

        Raises:
            UpdateError: if the version goes backwards.
        """
        if version < self.version:
            raise UpdateError(f"model {version} after model {self.version}: expected a newer one")
        self.version = version
        self.discard(used)
        decayed = [update for update in self._held if version - update.base_version > self._bound]
        self.discard(decayed)
        self._settled = {u for u in self._settled if version - u.base_version <= self._bound}
        return decayed

    def discard(self, updates: Iterable[UpdateId]) -> None:
        """Remove updates, held or not; a shard of them that comes later is refused."""
        for update in updates:
            self._held.pop(update, None)
            self._settled.add(update)


def confirm(
    proposed: Sequence[UpdateId], held: Mapping[int, Collection[UpdateId]], brokers: int
) -> Confirmation:
    """Confirm the organiser's list among all brokers.

    Args:
        proposed: the organiser's list.
        held: what each broker holds, by its number.
        brokers: B.

    Raises:
        UpdateError: if a broker has not answered.
    """
    if set(held) != set(range(brokers)):
        raise UpdateError(
            f"brokers {sorted(held)} have answered: expected all of 0 to {brokers - 1} before a list is used"
        )
    everywhere = set(proposed).intersection(*held.values())
    return Confirmation(
        [update for update in proposed if update in everywhere],
        [update for update in proposed if update not in everywhere],
    )


UNBOUNDED = np.iinfo(np.int64).max  # a staleness bound for none: chapter 6 gives HALE-Fed alone none


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
