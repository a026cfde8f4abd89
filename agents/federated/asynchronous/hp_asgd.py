"""HP-ASGD: asynchronous SGD with every gradient scaled by p_n / fre_n (Liu 2022, Algorithm 7)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from spotweave.agents.federated.asynchronous.aggregator import (
    BufferedAggregator,
    Invitation,
    Update,
    UpdateError,
    Vector,
    above_zero,
    at_least,
)


class HpAsgd(BufferedAggregator):
    """x_{k+1} = x_k - gamma / M_k sum_m G_m with G_m = (p_m / fre_m) of the participant's gradient.

    fre_n = N_n / M_A is how often gradients of participant n were used so far, 0 before the first. Here one
    gradient of everybody is counted in advance: fre_n = (N_n + 1) / (M_A + N).

    A round takes all gradients that are stored and not too stale once there are M_L of them: M_k >= M_L.

    Args:
        model: (d,) initial weights.
        samples: of each participant; p_n is in proportion.
        round_updates: M_L.
        rate: gamma.
        generator: of whom to invite where `at_once` leaves a choice.
        staleness_bound: T; None: none, as in the thesis' experiments.
        at_once: P = C M_L, the most gradients that are stored or being computed; None: no limit.

    Attributes:
        used: N_n, how many gradients of each participant were used.
    """

    def __init__(
        self,
        model: Vector,
        samples: Sequence[int],
        round_updates: int,
        rate: float,
        generator: np.random.Generator,
        staleness_bound: int | None = None,
        at_once: int | None = None,
    ) -> None:
        super().__init__(model, "gradient", round_updates)
        above_zero("rate", rate)
        if not samples or min(samples) < 1:
            raise UpdateError(
                "samples per participant: expected at least one participant with at least 1 each"
            )
        if staleness_bound is not None:
            at_least("staleness bound T", staleness_bound, 0)
        if at_once is not None:
            at_least("gradients at once P", at_once, round_updates)
        self._share = np.asarray(samples, dtype=float) / sum(samples)
        self._rate = rate
        self._generator = generator
        self._bound = staleness_bound
        self._at_once = at_once
        self.used = np.zeros(len(samples), dtype=np.int64)
        self._computing: set[int] = set()

    def scale(self, participant: int) -> float:
        """p_n / fre_n."""
        seen = (self.used[participant] + 1) / (self.used.sum() + len(self.used))
        return float(self._share[participant] / seen)

    def invite(self, idle: Sequence[int]) -> list[Invitation]:
        """All idle participants, or as many at random as P allows, each with its scale."""
        invited = list(idle)
        if self._at_once is not None:
            free = max(0, self._at_once - len(self._buffer) - len(self._computing))
            if free < len(invited):
                drawn = self._generator.choice(len(invited), free, replace=False)
                invited = [invited[place] for place in sorted(drawn)]
        self._computing.update(invited)
        return [Invitation(participant, self.version, self.scale(participant)) for participant in invited]

    def _store(self, update: Update) -> None:
        self._computing.discard(update.participant)
        super()._store(update)

    def _choose(self) -> list[Update] | None:
        usable = [
            update
            for update in self._buffer
            if self._bound is None or self.version - update.base_version <= self._bound
        ]
        return usable if len(usable) >= self._needed else None

    def _next_model(self, chosen: Sequence[Update], staleness: Sequence[int]) -> Vector:
        # p_n is in the scale already: samples do not weigh again.
        mean: Vector = np.mean([update.values for update in chosen], axis=0)
        return self._stepped(mean, self._rate)

    def _forget(self, chosen: Sequence[Update]) -> int:
        np.add.at(self.used, [update.participant for update in chosen], 1)
        # What is left is too stale, now and ever.
        self._buffer.clear()
        return len(chosen)


# Step sizes for which HP-ASGD is proved to converge: Theorem 7.0.1 and Corollary 7.0.1.1 of Liu 2022.


class Guarantee(NamedTuple):
    """What the corollary promises for K rounds."""

    smallest_step: float  # lower end of the range of gamma_k
    largest_step: float  # upper end
    mean_squared_gradient: float  # bound on the mean of E ||grad f(x_k)||^2 over the rounds


def largest_step(lipschitz: float, staleness_bound: int) -> float:
    """The largest constant gamma of Theorem 7.0.1: gamma L + 2 L^2 T^2 gamma^2 = 1.

    Args:
        lipschitz: L of the gradients.
        staleness_bound: T, 0 or more versions.

    Raises:
        UpdateError: for L not above 0 or T below 0.
    """
    above_zero("Lipschitz constant L", lipschitz)
    at_least("staleness bound T", staleness_bound, 0)
    # The positive root, in the form that stays exact for T = 0.
    return 2.0 / (lipschitz * (1.0 + math.sqrt(1.0 + 8.0 * staleness_bound**2)))


def allowed(steps: Sequence[float], lipschitz: float, staleness_bound: int) -> bool:
    """Whether gamma_k L + 2 L^2 T gamma_k sum_{i=1..T} gamma_{k+i} <= 1 for every k of the sequence.

    Steps beyond the end of the sequence are not taken and count 0.

    Raises:
        UpdateError: for L or a step not above 0, or T below 0.
    """
    above_zero("Lipschitz constant L", lipschitz)
    at_least("staleness bound T", staleness_bound, 0)
    above_zero("smallest step", min(steps))
    taken = np.asarray(steps, dtype=float)
    for k, step in enumerate(taken):
        later = taken[k + 1 : k + 1 + staleness_bound].sum()
        if step * lipschitz + 2 * lipschitz**2 * staleness_bound * step * later > 1 + 1e-12:
            return False
    return True


def guarantee(
    *,
    lipschitz: float,
    staleness_bound: int,
    gap: float,
    variance: float,
    rounds: int,
    round_updates: int,
    spread: float = 1.0,
) -> Guarantee:
    """Corollary 7.0.1.1.

    Its proof ends with the factor C, the statement has C^2, which is weaker: the statement is used.

    Args:
        lipschitz: L.
        staleness_bound: T.
        gap: f(x_1) - f(x*).
        variance: sigma_1^2 of uploaded gradients.
        rounds: K.
        round_updates: M_L.
        spread: C >= 1, the largest step divided by the smallest.

    Raises:
        UpdateError: for arguments out of range, or fewer rounds than the corollary needs.
    """
    for name, value in (("L", lipschitz), ("f(x_1) - f(x*)", gap), ("variance", variance)):
        above_zero(name, value)
    at_least("staleness bound T", staleness_bound, 0)
    at_least("updates per round M_L", round_updates, 1)
    at_least("spread C", spread, 1)
    needed = math.ceil(4 * lipschitz * gap * (staleness_bound + 1) ** 2 / variance)
    if rounds < needed:
        raise UpdateError(f"{rounds} rounds: the corollary needs at least {needed} with these values")
    largest = math.sqrt(gap / (lipschitz * rounds * variance))
    bound = (
        (4 * round_updates + 1) * spread**2 / round_updates * math.sqrt(gap * variance * lipschitz / rounds)
    )
    return Guarantee(largest / spread, largest, bound)
