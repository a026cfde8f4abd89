"""What an application has shown so far: times of epochs, spin-ups and rounds, as a scheduler can know them.

A scheduler sees when its tasks start and deliver; it does not see the simulation's means. Everything here is
measured, but for the relative speeds of offers (instance types are compared before anything runs) and, where
pre-scheduling has been done (`measured`), the mean times themselves.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from envs.simulation.federations.rounds.decisions import ClientView, State, View
from envs.simulation.federations.rounds.server import SERVER

WEIGHT = 0.5
"""Of a new sample in the averages."""
ERROR_WEIGHT = 0.2
"""Of a new sample in the averages of errors, which are few and far apart."""
UNSEEN_SHARE = 2.0
"""An epoch of unknown length that has lasted t is expected to last this share of t more: epochs of the
clients of one application differ by factors, not by per cents."""
WARM_SHARE = 0.8
"""Until a warm epoch has been seen, it is expected to take this share of a cold one: rather too little, so
that nobody comes too late for a round that is shorter than the first."""
OVERDUE_SHARE = 0.05
"""One that has outlasted its estimate t is expected to last this share of t more."""


@dataclass
class _Times:
    """Seconds on the offer measured last; None until measured."""

    cold_s: float | None = None
    warm_s: float | None = None
    spin_up_s: float | None = None
    epoch_error_s: float | None = None


class RoundEstimates:
    """Averages of one application.

    Args:
        view: the application, at its beginning.
        measured: whether pre-scheduling has measured the mean times (Brum 2023, section 6.1).
    """

    def __init__(self, view: View, measured: bool) -> None:
        self._view = view
        self._times = [_Times() for _ in view.clients]
        self._seen_epochs = [0] * len(view.clients)
        self._seen_ready: list[int | None] = [None] * len(view.clients)
        self._measured = measured
        self._launch_error_s: float | None = None
        self._factors: dict[tuple[int, int, int | None], float] = {}
        self._alike: dict[tuple[int, int | None], bool] = {}
        """[client, the server's offer] whether all offers of the client take it the same time."""

    def observe(self) -> None:
        """Take in what has happened since the last call; to be called before each decision."""
        for k, client in enumerate(self._view.clients):
            if client.ready_s is not None and client.ready_s != self._seen_ready[k]:
                self._seen_ready[k] = client.ready_s
                assert client.launched_s is not None
                times = self._times[k]
                seconds = client.ready_s - client.launched_s
                if times.spin_up_s is not None:
                    error_s = abs(seconds - times.spin_up_s)
                    self._launch_error_s = _average(self._launch_error_s, error_s, ERROR_WEIGHT)
                times.spin_up_s = _average(times.spin_up_s, seconds)
            if client.finished_s is not None and client.finished_s != self._seen_epochs[k]:
                self._seen_epochs[k] = client.finished_s
                self._delivered(k, client)

    def _delivered(self, k: int, client: ClientView) -> None:
        if client.resumed or client.started_s is None or client.finished_s is None or client.offer is None:
            return
        cold = client.epochs_here <= 1
        seconds = (client.finished_s - client.started_s) / self._factor(k, client.offer)
        times = self._times[k]
        expected_s = times.cold_s if cold else times.warm_s
        if expected_s is not None:
            times.epoch_error_s = _average(times.epoch_error_s, abs(seconds - expected_s), ERROR_WEIGHT)
        if cold:
            times.cold_s = _average(times.cold_s, seconds)
        else:
            times.warm_s = _average(times.warm_s, seconds)

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

    def epoch_s(self, k: int, offer: int, cold: bool) -> float | None:
        """Expected seconds of a whole epoch; where one kind was never seen the other's; None for neither.

        Where times were measured beforehand, those stand in for a kind that was never seen.
        """
        times = self._times[k]
        if self._measured and (times.cold_s if cold else times.warm_s) is None:
            return self._view.expected_epoch_s(k, offer, cold)
        if cold:
            seconds = times.cold_s if times.cold_s is not None else times.warm_s
        elif times.warm_s is not None or times.cold_s is None:
            seconds = times.warm_s
        else:
            seconds = WARM_SHARE * times.cold_s
        return None if seconds is None else seconds * self._factor(k, offer)

    def guessed_epoch_s(self, k: int, offer: int, cold: bool) -> float:
        """The same; for a client that has never delivered, the longest of the others (0 if nobody has)."""
        seconds = self.epoch_s(k, offer, cold)
        if seconds is not None:
            return seconds
        view = self._view
        others = [
            known
            for other, client in enumerate(view.clients)
            if (known := self.epoch_s(other, client.allowed[0], cold)) is not None
        ]
        return max(others, default=0.0)

    def cold_extra_s(self, k: int, offer: int) -> float:
        """What the first epoch on a new instance takes longer; 0 while unknown."""
        times = self._times[k]
        if times.cold_s is not None and times.warm_s is not None:
            return max(0.0, times.cold_s - times.warm_s) * self._factor(k, offer)
        if self._measured:
            return self._view.expected_epoch_s(k, offer, True) - self._view.expected_epoch_s(k, offer, False)
        return 0.0

    def spin_up_s(self, k: int, offer: int) -> float:
        """Expected seconds from request to ready: the client's own, another's, or the provider's word."""
        known = self._times[k].spin_up_s
        if known is not None:
            return known
        others = [times.spin_up_s for times in self._times if times.spin_up_s is not None]
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
            due_s, lasted_s = client.started_s + left_s, now_s - client.started_s
            if not self._measured and not self._seen_epochs[k]:
                return max(due_s, now_s + UNSEEN_SHARE * lasted_s)
            return due_s if due_s > now_s else now_s + OVERDUE_SHARE * lasted_s
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
        """Expected seconds until all others that owe a result have delivered (0 if none does)."""
        now_s = self._view.now_s
        left = [
            self.finish_s(k) - now_s
            for k, client in enumerate(self._view.clients)
            if k != but and client.has_task
        ]
        return max(left, default=0.0)

    def round_s(self) -> float:
        """Expected seconds of a whole round on warm instances, aggregation included; 0 while unknown."""
        view = self._view
        epochs = [0.0]
        for k, client in enumerate(view.clients):
            if client.state is not State.GONE:
                epochs.append(self.epoch_s(k, self._place(k), False) or 0.0)
        server = view.server
        at = None if server is None else server.offer
        return max(epochs) + (view.aggregation_s if at is None else self.aggregation_s(at))

    def error_s(self, but: int) -> float:
        """By how much the end of the slowest other's epoch and a launch together were off lately.

        0 while nothing could be compared.
        """
        slowest_s, epoch_error_s = 0.0, 0.0
        for k, times in enumerate(self._times):
            if k != but and times.warm_s is not None and times.warm_s > slowest_s:
                slowest_s, epoch_error_s = times.warm_s, times.epoch_error_s or 0.0
        return math.hypot(epoch_error_s, self._launch_error_s or 0.0)


def _average(old: float | None, sample: float, weight: float = WEIGHT) -> float:
    return float(sample) if old is None else weight * sample + (1 - weight) * old
