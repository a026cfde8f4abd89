"""What the rounds of a federated application have shown so far, and what follows from it.

Every scheduler of federated work measures the same: how long a client's epochs take on a fresh and on a
warm instance, how long instances take to start, and by how much these expectations were off. The detailed
world of rounds, the markets with federated arrivals, FedCostAware and the live loop all keep their
measurements here, so that a policy is shown the same estimates everywhere. The compiled functions work on
one client's row of times; `RoundEstimates` holds the rows of one application.
"""

from __future__ import annotations

import math

import numpy as np

from spotweave.envs.simulation.compiled import entry
from spotweave.envs.simulation.series import Floats

Times = Floats

COLD_S, WARM_S, SPIN_UP_S, EPOCH_ERROR_S = range(4)
N_TIMES = 4
"""Columns of a client's times: its first epoch on an instance, a later one, an instance's start, and by how
much epochs were off what was expected. All are exponential means in seconds."""
UNKNOWN = -1.0
"""Stands in a row for what has not been measured yet."""

WEIGHT = 0.5
"""Weight of a new sample in the moving means."""
ERROR_WEIGHT = 0.2
"""Weight of a new sample in the moving means of errors, which are few and far apart."""
WARM_SHARE = 0.8
"""Until a warm epoch has been seen, it is expected to take this share of a cold one: rather too little, so
that no client comes too late for a round that is shorter than the first."""
UNSEEN_SHARE = 2.0
"""An epoch of unknown length that has lasted t is expected to last this share of t more: epochs of the
clients of one application differ by factors, not by per cents."""
OVERDUE_SHARE = 0.05
"""One that has outlasted its estimate t is expected to last this share of t more."""
ASK_AGAIN_LEAST_S = 15.0
ASK_AGAIN_MOST_S = 600.0


@entry
def average(before: float, sample: float, weight: float) -> float:
    """The exponential mean after one more sample; the first sample is the first mean."""
    return sample if before == UNKNOWN else weight * sample + (1.0 - weight) * before


@entry
def note_epoch(times: Times, seconds: float, cold: bool, weight: float) -> None:
    """A client has delivered an epoch that was trained in one piece."""
    kind = COLD_S if cold else WARM_S
    if times[kind] != UNKNOWN:
        times[EPOCH_ERROR_S] = average(times[EPOCH_ERROR_S], abs(seconds - times[kind]), ERROR_WEIGHT)
    times[kind] = average(times[kind], seconds, weight)


@entry
def epoch_left_s(expected_s: float, lasted_s: float, known: bool) -> float:
    """Expected seconds until an epoch ends that has lasted `lasted_s`.

    Args:
        expected_s: of the whole epoch.
        lasted_s: since it began.
        known: whether the expectation comes from this client; otherwise it is only a guess.
    """
    if not known:
        return max(expected_s - lasted_s, UNSEEN_SHARE * lasted_s)
    return expected_s - lasted_s if lasted_s < expected_s else OVERDUE_SHARE * lasted_s


@entry
def slack_s(owes: bool, round_left_s: float, round_s: float, start_s: float, execution_s: float) -> float:
    """Seconds until the latest start with which a client still delivers together with the others.

    Args:
        owes: whether its result of this round is still to come; otherwise it works for the next one.
        round_left_s: until all others have delivered in this round.
        round_s: of a whole round.
        start_s: from the request of an instance until its epoch can begin.
        execution_s: of that epoch.
    """
    opens_s = 0.0 if owes else round_left_s
    needed_s = round_left_s if owes else round_left_s + round_s
    return max(needed_s - execution_s, opens_s) - start_s


@entry
def ask_again_s(slack: float) -> float:
    """Seconds after which a client without an instance is asked again: half of its slack, within bounds."""
    return min(ASK_AGAIN_MOST_S, max(ASK_AGAIN_LEAST_S, 0.5 * slack))


@entry
def error_s(times: Times, launch_error_s: float, but: int) -> float:
    """By how much the end of the slowest other client's epoch and a start together were off lately.

    Args:
        times: (n_clients, N_TIMES).
        launch_error_s: of starts, or UNKNOWN.
        but: the client that is left out; -1 for none.

    Returns:
        0 while nothing could be compared.
    """
    slowest, error = 0.0, 0.0
    for k in range(len(times)):
        if k != but and times[k, WARM_S] > slowest:
            slowest, error = times[k, WARM_S], max(0.0, times[k, EPOCH_ERROR_S])
    return math.hypot(error, max(0.0, launch_error_s))


class RoundEstimates:
    """The times of one application's clients.

    Args:
        n_clients: how many there are.
        weight: of a new sample in the means, in (0, 1].

    Attributes:
        times: (n_clients, N_TIMES) seconds, UNKNOWN until measured.
        launch_error_s: by how much the starts of instances were off lately; UNKNOWN until two were seen.
    """

    def __init__(self, n_clients: int, weight: float = WEIGHT) -> None:
        self.times: Times = np.full((n_clients, N_TIMES), UNKNOWN)
        self.launch_error_s = UNKNOWN
        self._weight = weight

    def note_epoch(self, k: int, seconds: float, cold: bool) -> None:
        """Client k has delivered an epoch that was trained in one piece, on a fresh or on a warm instance."""
        note_epoch(self.times[k], float(seconds), cold, self._weight)

    def note_spin_up(self, k: int, seconds: float) -> None:
        """An instance of client k has become ready so long after its request."""
        before = self.times[k, SPIN_UP_S]
        if before != UNKNOWN:
            self.launch_error_s = average(self.launch_error_s, abs(seconds - before), ERROR_WEIGHT)
        self.times[k, SPIN_UP_S] = average(before, float(seconds), self._weight)

    def measured_s(self, k: int, kind: int) -> float | None:
        """A column of client k; None until it was measured."""
        seconds = self.times[k, kind]
        return None if seconds == UNKNOWN else float(seconds)

    def epoch_s(self, k: int, cold: bool, warm_share: float = WARM_SHARE) -> float | None:
        """Expected seconds of an epoch; of the other kind where this one was never seen; None for neither."""
        cold_s, warm_s = self.measured_s(k, COLD_S), self.measured_s(k, WARM_S)
        if cold:
            return cold_s if cold_s is not None else warm_s
        if warm_s is not None or cold_s is None:
            return warm_s
        return warm_share * cold_s

    def cold_extra_s(self, k: int) -> float | None:
        """What the first epoch on an instance takes longer; None until both kinds were seen."""
        cold_s, warm_s = self.measured_s(k, COLD_S), self.measured_s(k, WARM_S)
        return None if cold_s is None or warm_s is None else max(0.0, cold_s - warm_s)

    def error_s(self, but: int) -> float:
        """As `error_s`, for a client (-1: for none of them)."""
        return float(error_s(self.times, self.launch_error_s, but))
