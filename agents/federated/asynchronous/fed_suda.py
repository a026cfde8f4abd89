"""Fed-SUDA: difference averaging with shadow updates of slow participants (Liu 2022, Algorithms 4 to 6)."""

from __future__ import annotations

from collections.abc import Sequence

from agents.federated.asynchronous.aggregator import Aggregator, above_zero
from agents.federated.asynchronous.shadow_selection import ShadowSelection
from agents.federated.asynchronous.updates import Update, UpdateId, Vector, weighted_mean


class FedSuda(Aggregator[Update]):
    """Every participant counts alike in every episode, however seldom it answers.

    M_{r+1} = M_r + eta sum(p_k D_k) / sum(p_k) over the updates of a ShadowSelection. This is the whole in
    one place; over brokers the same selection runs on ids and the sum on shards.

    Args:
        model: (d,) initial weights.
        selection: who takes part in which round.
        rate: eta.
    """

    def __init__(self, model: Vector, selection: ShadowSelection, rate: float = 1.0) -> None:
        super().__init__(model, "difference", once_per_version=True)
        above_zero("rate", rate)
        self._selection = selection
        self._rate = rate
        # The newest of each participant, the first to arrive first.
        self._held: dict[int, Update] = {}
        self._ids: dict[int, UpdateId] = {}
        self._used_shadows: set[UpdateId] = set()

    def _store(self, update: Update) -> None:
        if self._held.pop(update.participant, None) is not None:
            self._used_shadows.discard(self._ids.pop(update.participant))
        self._held[update.participant] = update
        self._ids[update.participant] = update.id

    def _choose(self) -> list[Update] | None:
        chosen = self._selection.choose(list(self._ids.values()), self.version)
        return None if chosen is None else [self._held[update.participant] for update in chosen]

    def _next_model(self, chosen: Sequence[Update], staleness: Sequence[int]) -> Vector:
        return self._stepped(weighted_mean(chosen), self._rate)

    def _forget(self, chosen: Sequence[Update]) -> int:
        ids = [update.id for update in chosen]
        fresh = len(set(ids) - self._used_shadows)
        once = self._selection.used(ids)
        for update in once:
            del self._held[update.participant], self._ids[update.participant]
        self._used_shadows.update(set(ids) - set(once))
        return fresh
