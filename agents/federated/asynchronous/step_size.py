"""Step sizes for which HP-ASGD is proved to converge: Theorem 7.0.1 and Corollary 7.0.1.1 of Liu 2022."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from agents.federated.asynchronous.aggregator import above_zero, at_least
from agents.federated.asynchronous.updates import UpdateError


class Guarantee(NamedTuple):
    """What the corollary promises for K rounds.

    Attributes:
        smallest_step: lower end of the range of gamma_k.
        largest_step: upper end.
        mean_squared_gradient: bound on the mean of E ||grad f(x_k)||^2 over the rounds.
    """

    smallest_step: float
    largest_step: float
    mean_squared_gradient: float


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
