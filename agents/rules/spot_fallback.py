"""Greedy spot with an on-demand fallback: the common practice that "Can't Be Late" (NSDI'24) starts from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from agents.rules.choice import NO_ACTION, flat_action, stays, urgent_job
from agents.rules.offers import (
    OPPORTUNISTIC,
    SAFE,
    any_offer,
    cheapest_offer,
    is_pressed,
    no_dearer,
    place_of,
)
from agents.rules.parameters import RuleParameters
from envs.simulation import columns as col
from envs.simulation.snapshot import FloatArray, MaskArray


@dataclass(frozen=True)
class SpotFallbackParameters(RuleParameters):
    """When greedy spot gives up on spot.

    Attributes:
        changeovers: changeover delays that must remain beyond the work left (2 in "Can't Be Late").
    """

    changeovers: float = 2.0


@njit(cache=True, error_model="numpy")
def choose(
    clusters: FloatArray,
    occupation: FloatArray,
    jobs: FloatArray,
    pairs: FloatArray,
    mask: MaskArray,
    memory: NDArray[np.float64],
    parameters: NDArray[np.float64],
) -> int:
    """The most urgent job takes the cheapest spot offer; without slack for an interruption, a safe one.

    A job on spot capacity is moved to a safe offer while that still meets its deadline. If no spot offer is
    available, the job waits.
    """
    n_clusters = clusters.shape[0]
    job = urgent_job(jobs, mask, n_clusters)
    if job < 0:
        return NO_ACTION
    base = job * (n_clusters + 1)
    none_valid = mask[base + n_clusters] != 0
    safe = cheapest_offer(job, SAFE, clusters, pairs, mask)
    spot = cheapest_offer(job, OPPORTUNISTIC, clusters, pairs, mask)
    pressed = is_pressed(job, safe, spot, parameters[0], jobs, pairs)
    if stays(job, jobs, mask, n_clusters):
        here = place_of(job, pairs)
        risky = here >= 0 and clusters[here, col.IS_SPOT] != 0.0
        return flat_action(job, safe if risky and pressed else -1, n_clusters)
    offer = safe if pressed else no_dearer(job, spot, safe, pairs)
    if offer < 0 and not none_valid:
        offer = any_offer(job, clusters, pairs, mask)
    return flat_action(job, offer, n_clusters)
