"""Smallest first-P (SF-P): Liu 2022, chapter 4, rule-based baselines."""

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
    """The smallest job goes to the cluster with the lowest mean utilisation of the latest 100 steps."""
    n_clusters = clusters.shape[0]
    job = smallest_job(jobs, pairs, mask)
    if job < 0:
        return NO_ACTION
    if stays(job, jobs, mask, n_clusters):
        return flat_action(job, -1, n_clusters)
    base = job * (n_clusters + 1)
    best = -1
    best_score = -np.inf
    for cluster in range(n_clusters):
        if mask[base + cluster] != 0:
            score = -float(clusters[cluster, col.MEAN_OCCUPATION])
            if best < 0 or score > best_score:
                best = cluster
                best_score = score
    return flat_action(job, best, n_clusters)
