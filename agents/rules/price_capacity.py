"""Price-capacity: deep spot pools first, in the manner of EC2's `price-capacity-optimized` allocation.

EC2 picks the pools that are least likely to be interrupted and takes the cheapest of these; here the offers
whose cost is close to the cheapest compete by depth, as far as an observation shows it.
"""

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
    is_kind,
    is_pressed,
    no_dearer,
    place_of,
)
from agents.rules.parameters import RuleParameters
from envs.simulation import columns as col
from envs.simulation.snapshot import FloatArray, MaskArray


@dataclass(frozen=True)
class PriceCapacityParameters(RuleParameters):
    """How far depth may cost money, and when to give up on spot.

    Attributes:
        changeovers: changeover delays that must remain beyond the work left (2 in "Can't Be Late").
        tolerance: an offer competes if its cost is at most (1 + tolerance) times the cheapest one's.
        typical_up_s: mean up-spell that counts half.
    """

    changeovers: float = 2.0
    tolerance: float = 0.25
    typical_up_s: float = 3600.0


@njit(cache=True, error_model="numpy")
def pool_depth(job: int, cluster: int, typical_up_s: float, clusters: FloatArray, pairs: FloatArray) -> float:
    """How unlikely the offer is to run dry, in 0..1; 2 for an owned cluster.

    The product of the share of time it was up, of its up-spells (saturating) and of the room that the job
    would leave in it.
    """
    if clusters[cluster, col.IS_SPOT] == 0.0:
        return 2.0
    mean_up = clusters[cluster, col.MEAN_UP_S]
    spells = mean_up / (mean_up + typical_up_s) if mean_up > 0.0 else 0.5
    free = max(float(pairs[job, cluster, col.FREE]), 1.0)
    room = 1.0 - 0.5 * min(1.0, pairs[job, cluster, col.REQUEST] / free)
    return float(clusters[cluster, col.UP_RATIO] * spells * room)


@njit(cache=True, error_model="numpy")
def deepest_offer(
    job: int, parameters: NDArray[np.float64], clusters: FloatArray, pairs: FloatArray, mask: MaskArray
) -> int:
    """The deepest opportunistic offer among those that cost nearly as little as the cheapest, or -1."""
    cheapest = cheapest_offer(job, OPPORTUNISTIC, clusters, pairs, mask)
    if cheapest < 0:
        return -1
    limit = (1.0 + parameters[1]) * pairs[job, cheapest, col.COST_USD]
    best = cheapest
    best_depth = pool_depth(job, cheapest, parameters[2], clusters, pairs)
    for cluster in range(clusters.shape[0]):
        if mask[job * (clusters.shape[0] + 1) + cluster] == 0:
            continue
        if not is_kind(job, cluster, OPPORTUNISTIC, clusters, pairs):
            continue
        same_deadline = pairs[job, cluster, col.IMPROPER] <= pairs[job, cheapest, col.IMPROPER]
        depth = pool_depth(job, cluster, parameters[2], clusters, pairs)
        if same_deadline and pairs[job, cluster, col.COST_USD] <= limit and depth > best_depth:
            best = cluster
            best_depth = depth
    return best


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
    """The most urgent job takes a deep pool among the cheapest spot offers; without slack, a safe offer."""
    n_clusters = clusters.shape[0]
    job = urgent_job(jobs, mask, n_clusters)
    if job < 0:
        return NO_ACTION
    base = job * (n_clusters + 1)
    none_valid = mask[base + n_clusters] != 0
    safe = cheapest_offer(job, SAFE, clusters, pairs, mask)
    spot = deepest_offer(job, parameters, clusters, pairs, mask)
    pressed = is_pressed(job, safe, spot, parameters[0], jobs, pairs)
    if stays(job, jobs, mask, n_clusters):
        here = place_of(job, pairs)
        risky = here >= 0 and clusters[here, col.IS_SPOT] != 0.0
        return flat_action(job, safe if risky and pressed else -1, n_clusters)
    offer = safe if pressed else no_dearer(job, spot, safe, pairs)
    if offer < 0 and not none_valid:
        offer = any_offer(job, clusters, pairs, mask)
    return flat_action(job, offer, n_clusters)
