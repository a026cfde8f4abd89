"""Fed-SUDA: difference averaging with shadow updates of slow participants (Liu 2022, Algorithms 4 to 6)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from spotweave.agents.federated.asynchronous.aggregator import (
    Aggregator,
    Need,
    Update,
    UpdateError,
    UpdateId,
    Vector,
    above_zero,
    at_least,
    check_members,
    weighted_mean,
)

# Which updates make the next round of Fed-SUDA: the organising broker's part of Algorithm 5 of Liu 2022.


def slow_participants(response_s: Sequence[float], heterogeneity: float) -> frozenset[int]:
    """SP: those whose response speed is at most L times that of the slowest ("Design of Fed-SUDA").

    Args:
        response_s: expected response time of each participant, any unit.
        heterogeneity: L, 1 or more.

    Raises:
        UpdateError: for L below 1 or times that are not positive.
    """
    at_least("heterogeneity factor L", heterogeneity, 1)
    if not response_s or not min(response_s) > 0:
        raise UpdateError("response times must be given and positive")
    slowest = max(response_s)
    return frozenset(n for n, time_s in enumerate(response_s) if slowest / time_s <= heterogeneity)


class ShadowSelection:
    """Participant episodes: each takes part once in each, slow ones by the update that is kept of them.

    A round takes W_rp = W N_rp / N regular and W_sp = W - W_rp slow participants, and less only at the end of
    an episode. It works on ids alone, so a broker can run it on what it may see.

    Args:
        participants: N, numbered 0 to N - 1.
        slow: SP; the others are regular, RP.
        round_updates: W.
        staleness_bound: T.

    Attributes:
        slow: SP.
        attended: who has taken part in the present episode.
        episode: its number, from 0.
    """

    def __init__(
        self, participants: int, slow: Iterable[int], round_updates: int, staleness_bound: int
    ) -> None:
        self.slow = check_members("slow participants", slow)
        if self.slow and max(self.slow) >= participants:
            raise UpdateError(f"slow participant {max(self.slow)}: expected numbers below {participants}")
        at_least("updates per round W", round_updates, 1)
        at_least("staleness bound T", staleness_bound, 0)
        if round_updates > participants:
            raise UpdateError(
                f"{round_updates} updates per round: expected at most {participants}, as many as participants"
            )
        self._participants = participants
        regular = participants - len(self.slow)
        self._regular_needed = round(round_updates * regular / participants)
        self._slow_needed = round_updates - self._regular_needed
        if (regular and not self._regular_needed) or (self.slow and not self._slow_needed):
            raise UpdateError(
                f"{round_updates} updates per round leave no place for {regular} regular or {len(self.slow)} "
                f"slow participants: give more per round"
            )
        self._bound = staleness_bound
        self.attended: set[int] = set()
        self.episode = 0

    def choose(self, held: Sequence[UpdateId], version: int) -> list[UpdateId] | None:
        """The next round's updates; None while some must be waited for. Changes nothing.

        Of a participant's updates only the newest counts. Regular ones are taken in the order held; of the
        slow ones the oldest first, as it is the next to exceed T.

        Args:
            held: updates that are stored, in the order of arrival.
            version: number of the current model.
        """
        regular, slow = self._usable(held, version)
        regular_needed, slow_needed = self._needed()
        if len(regular) < regular_needed or len(slow) < slow_needed:
            return None
        slow.sort(key=lambda update: update.base_version)
        return regular[:regular_needed] + slow[:slow_needed]

    def needs(self, held: Sequence[UpdateId], version: int, *, fresh: bool) -> list[Need]:
        """As `Aggregator.needs`; in a usual round a shadow stands for every slow participant.

        Args:
            held: as in `choose`.
            version: number of the current model.
            fresh: see there.
        """
        regular = tuple(n for n in range(self._participants) if n not in self.slow)
        if fresh:
            return [Need(regular, self._regular_needed)]
        kinds = zip((regular, sorted(self.slow)), self._usable(held, version), self._needed(), strict=True)
        found = []
        for kind, usable, needed in kinds:
            there = self.attended | {update.participant for update in usable}
            open_places = tuple(n for n in kind if n not in there)
            found.append(Need(open_places, max(0, needed - len(usable))))
        return found

    def _needed(self) -> tuple[int, int]:
        """How many regular and slow participants the next round takes."""
        slow_left = len(self.slow - self.attended)
        regular_left = self._participants - len(self.attended) - slow_left
        return min(self._regular_needed, regular_left), min(self._slow_needed, slow_left)

    def _usable(self, held: Sequence[UpdateId], version: int) -> tuple[list[UpdateId], list[UpdateId]]:
        """What the next round may take, of regular and of slow participants, in the order held."""
        newest: dict[int, UpdateId] = {}
        for update in held:
            if (
                update.participant not in newest
                or update.base_version >= newest[update.participant].base_version
            ):
                newest[update.participant] = update
        usable = [
            update
            for update in held
            if newest[update.participant] == update
            and update.participant not in self.attended
            and version - update.base_version <= self._bound
        ]
        regular = [update for update in usable if update.participant not in self.slow]
        return regular, [update for update in usable if update.participant in self.slow]

    def used(self, chosen: Iterable[UpdateId]) -> list[UpdateId]:
        """Count a round's participants as attended; returns the updates to delete, those of regular ones."""
        taken = list(chosen)
        self.attended.update(update.participant for update in taken)
        if len(self.attended) == self._participants:
            self.attended.clear()
            self.episode += 1
        return [update for update in taken if update.participant not in self.slow]


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

    def needs(self, *, fresh: bool) -> list[Need]:
        """Regular participants, and slow ones of whom no shadow can be used."""
        return self._selection.needs(list(self._ids.values()), self.version, fresh=fresh)

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
