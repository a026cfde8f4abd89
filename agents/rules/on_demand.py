"""On-demand only: never use capacity that the provider may interrupt.

The reference that spot savings are usually given against ("Can't Be Late", NSDI'24; Teylo 2021, Table 7.4).
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from agents.rules.choice import NO_ACTION, flat_action, stays, urgent_job
from agents.rules.offers import SAFE, any_offer, cheapest_offer
from envs.simulation.snapshot import FloatArray, MaskArray


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
    """The most urgent job goes to the cheapest safe offer: on demand, or an owned cluster with room."""
    n_clusters = clusters.shape[0]
    job = urgent_job(jobs, mask, n_clusters)
    if job < 0:
        return NO_ACTION
    if stays(job, jobs, mask, n_clusters):
        return flat_action(job, -1, n_clusters)
    none_valid = mask[job * (n_clusters + 1) + n_clusters] != 0
    offer = cheapest_offer(job, SAFE, clusters, pairs, mask)
    if offer < 0 and not none_valid:
        offer = any_offer(job, clusters, pairs, mask)
    return flat_action(job, offer, n_clusters)
