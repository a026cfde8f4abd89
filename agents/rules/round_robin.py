"""Round-Robin (RR): Liu 2022, chapter 5, baselines."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from agents.rules.choice import M_POINTER, NO_ACTION, flat_action, smallest_job, stays
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
    """The smallest job goes to the next valid cluster in turn; the first one of an episode is random."""
    n_clusters = clusters.shape[0]
    job = smallest_job(jobs, pairs, mask)
    if job < 0:
        return NO_ACTION
    if stays(job, jobs, mask, n_clusters):
        return flat_action(job, -1, n_clusters)
    base = job * (n_clusters + 1)
    pointer = int(memory[M_POINTER]) % n_clusters
    for step in range(n_clusters):
        cluster = (pointer + step) % n_clusters
        if mask[base + cluster] != 0:
            memory[M_POINTER] = float((cluster + 1) % n_clusters)
            return flat_action(job, cluster, n_clusters)
    return flat_action(job, -1, n_clusters)
