"""What a running application has shown so far, as a scheduler can know it.

A scheduler sees when its tasks start and deliver; it does not see the simulation's means. Everything here is
measured, but for the relative speeds of offers (instance types are compared before anything runs) and, where
pre-scheduling has been done (`measured`), the mean times themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from envs.simulation.federations.rounds.application import SERVER
from envs.simulation.federations.rounds.decisions import Awaited, State
from envs.simulation.federations.rounds.member import Member
from envs.simulation.federations.rounds.running import RunningApplication
from envs.simulation.round_estimates import COLD_S, SPIN_UP_S, WARM_S, RoundEstimates, epoch_left_s


class ViewEstimates(RoundEstimates):
    """The estimates of an application that runs; times are on each client's first offer.

    Args:
        view: the application, at its beginning.
        measured: whether pre-scheduling has measured the mean times (Brum 2023, section 6.1).
    """

    def __init__(self, view: RunningApplication, measured: bool) -> None:
        super().__init__(len(view.clients))
        self._view = view
        self._seen_epochs = [0] * len(view.clients)
        self._seen_ready: list[int | None] = [None] * len(view.clients)
        self._measured = measured
        self._factors: dict[tuple[int, int, int | None], float] = {}
        self._alike: dict[tuple[int, int | None], bool] = {}
        """[client, the server's offer] whether all offers of the client take it the same time."""

    def observe(self) -> None:
        """Take in what has happened since the last call; to be called before each decision."""
        for k, client in enumerate(self._view.clients):
            if client.ready_s is not None and client.ready_s != self._seen_ready[k]:
                self._seen_ready[k] = client.ready_s
                assert client.launched_s is not None
                self.note_spin_up(k, client.ready_s - client.launched_s)
            if client.finished_s is not None and client.finished_s != self._seen_epochs[k]:
                self._seen_epochs[k] = client.finished_s
                self._delivered(k, client)

    def _delivered(self, k: int, client: Member) -> None:
        if client.resumed or client.started_s is None or client.finished_s is None or client.offer is None:
            return
        seconds = (client.finished_s - client.started_s) / self._factor(k, client.offer)
        self.note_epoch(k, seconds, client.epochs_here <= 1)

    def _factor(self, k: int, offer: int) -> float:
        """How much longer an epoch takes on this offer than on the client's first one."""
        view = self._view
        first = view.clients[k].allowed[0]
        if offer == first:
            return 1.0
        key = (k, offer, None if view.server is None else view.server.offer)
        if key not in self._factors:
            there, here = (view.expected_epoch_s(k, place, False) for place in (offer, first))
            self._factors[key] = there / here
        return self._factors[key]

    def epoch_on_s(self, k: int, offer: int, cold: bool) -> float | None:
        """Expected seconds of a whole epoch on an offer; None where neither kind was seen.

        Where times were measured beforehand, those stand in for a kind that was never seen.
        """
        if self._measured and self.measured_s(k, COLD_S if cold else WARM_S) is None:
            return self._view.expected_epoch_s(k, offer, cold)
        seconds = self.epoch_s(k, cold)
        return None if seconds is None else seconds * self._factor(k, offer)

    def guessed_epoch_s(self, k: int, offer: int, cold: bool) -> float:
        """The same; for a client that has never delivered, the longest of the others (0 if nobody has)."""
        seconds = self.epoch_on_s(k, offer, cold)
        if seconds is not None:
            return seconds
        view = self._view
        others = [
            known
            for other, client in enumerate(view.clients)
            if (known := self.epoch_on_s(other, client.allowed[0], cold)) is not None
        ]
        return max(others, default=0.0)

    def cold_extra_on_s(self, k: int, offer: int) -> float:
        """What the first epoch on a new instance takes longer; 0 while unknown."""
        extra_s = self.cold_extra_s(k)
        if extra_s is not None:
            return extra_s * self._factor(k, offer)
        if self._measured:
            return self._view.expected_epoch_s(k, offer, True) - self._view.expected_epoch_s(k, offer, False)
        return 0.0

    def spin_up_s(self, k: int, offer: int) -> float:
        """Expected seconds from request to ready: the client's own, another's, or the provider's word."""
        known = self.measured_s(k, SPIN_UP_S)
        if known is not None:
            return known
        seen = [self.measured_s(other, SPIN_UP_S) for other in range(len(self.times))]
        others = [seconds for seconds in seen if seconds is not None]
        return sum(others) / len(others) if others else self._view.expected_spin_up_s(k, offer)

    def server_spin_up_s(self, offer: int) -> float:
        """Expected seconds from the request of a server there until it serves: the provider's word."""
        return self._view.expected_spin_up_s(SERVER, offer)

    def aggregation_s(self, offer: int) -> float:
        """Expected seconds of an aggregation by a server there."""
        return self._view.expected_epoch_s(SERVER, offer, False)

    def finish_s(self, k: int) -> float:
        """When a client that owes a result can deliver it, if it is started now at the latest."""
        view, now_s = self._view, self._view.now_s
        client = view.clients[k]
        offer = self._place(k)
        epoch_s = self.guessed_epoch_s(k, offer, client.epochs_here == 0)
        left_s = epoch_s - client.saved * self.guessed_epoch_s(k, offer, False)
        if client.state is State.TRAINING:
            assert client.started_s is not None
            known = self._measured or bool(self._seen_epochs[k])
            return now_s + float(epoch_left_s(left_s, now_s - client.started_s, known))
        if client.state is State.IDLE:
            return now_s + left_s
        return self._ready_s(k, offer) + left_s

    def _place(self, k: int) -> int:
        """The offer of a client's instance; without one, that where it would deliver soonest.

        Were it a slow one, all clients could wait for each other for ever: each would seem to be the faster.
        """
        view, client = self._view, self._view.clients[k]
        if client.running and client.offer is not None:
            return client.offer
        key = (k, None if view.server is None else view.server.offer)
        if key not in self._alike:
            kinds = {(self._factor(k, place), view.expected_spin_up_s(k, place)) for place in client.allowed}
            self._alike[key] = len(kinds) == 1
        if self._alike[key]:
            return client.allowed[0]
        return min(
            client.allowed,
            key=lambda place: self.guessed_epoch_s(k, place, False) + view.expected_spin_up_s(k, place),
        )

    def _ready_s(self, k: int, offer: int) -> float:
        """When a client without a ready instance has one, if it is started now at the latest."""
        now_s, client = self._view.now_s, self._view.clients[k]
        spin_up_s = self.spin_up_s(k, offer)
        if client.state is State.SPIN_UP and client.launched_s is not None:
            return max(float(now_s), client.launched_s + spin_up_s)
        return now_s + spin_up_s

    def round_left_s(self, but: int) -> float:
        """Expected seconds until the others have delivered what the round waits for (0: nothing)."""
        view = self._view
        return _until(
            view.awaited(),
            lambda k: self.finish_s(k) - view.now_s if k != but and view.clients[k].has_task else None,
        )

    def round_s(self) -> float:
        """Expected seconds of a whole round on warm instances, aggregation included; 0 while unknown."""
        view = self._view
        epochs_s = _until(view.round_needs(), lambda k: self.epoch_on_s(k, self._place(k), False) or 0.0)
        server = view.server
        at = None if server is None else server.offer
        return epochs_s + (view.aggregation_s if at is None else self.aggregation_s(at))


def _until(needs: Sequence[Awaited], seconds: Callable[[int], float | None]) -> float:
    """Seconds until all needs are met, given each client's; None: it will not deliver."""
    longest_s = 0.0
    for clients, results in needs:
        known_s = sorted(s for s in map(seconds, clients) if s is not None)
        if known_s and results:
            longest_s = max(longest_s, known_s[min(results, len(known_s)) - 1])
    return longest_s
