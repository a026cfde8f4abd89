"""IH filter: no cluster with improper heterogeneity (Liu 2022, section 5.3), then most free executors."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from agents.rules.choice import NO_ACTION, flat_action, smallest_job, stays
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
    """The smallest job goes to the proper cluster with most free executors now; if none is proper, to any."""
    n_clusters = clusters.shape[0]
    job = smallest_job(jobs, pairs, mask)
    if job < 0:
        return NO_ACTION
    if stays(job, jobs, mask, n_clusters):
        return flat_action(job, -1, n_clusters)
    base = job * (n_clusters + 1)
    best = -1
    best_improper = True
    best_free = -np.inf
    for cluster in range(n_clusters):
        if mask[base + cluster] != 0:
            improper = pairs[job, cluster, col.IMPROPER] != 0.0
            free = float(pairs[job, cluster, col.FREE])
            better = free > best_free if improper == best_improper else best_improper
            if best < 0 or better:
                best = cluster
                best_improper = improper
                best_free = free
    return flat_action(job, best, n_clusters)
