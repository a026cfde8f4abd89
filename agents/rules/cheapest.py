"""Cheapest zone: the valid offer with the smallest cost at the price of now, whatever its risk."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from agents.rules.choice import NO_ACTION, flat_action, stays, urgent_job
from envs.simulation import columns as col
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
    """The most urgent job goes to the offer with the smallest COST_USD among those that it fits in.

    Where it fits nowhere, the cheapest place to queue is taken.
    """
    n_clusters = clusters.shape[0]
    job = urgent_job(jobs, mask, n_clusters)
    if job < 0:
        return NO_ACTION
    if stays(job, jobs, mask, n_clusters):
        return flat_action(job, -1, n_clusters)
    base = job * (n_clusters + 1)
    best = -1
    best_fits = False
    best_cost = np.inf
    for cluster in range(n_clusters):
        if mask[base + cluster] != 0:
            fits = pairs[job, cluster, col.FITS] != 0.0
            cost = float(pairs[job, cluster, col.COST_USD])
            better = cost < best_cost if fits == best_fits else fits
            if best < 0 or better:
                best = cluster
                best_fits = fits
                best_cost = cost
    return flat_action(job, best, n_clusters)
