"""Most Available First (MAF): Liu 2022, chapter 5, baselines; the guide of RL-LSFC's exploration."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from agents.rules.choice import NO_ACTION, flat_action, mean_available, smallest_job, stays
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
    """The smallest job goes where (1 - RO) * CAP / ER is largest.

    RO is the mean occupation of the latest 100 steps, CAP the capacity now (elastic part included), ER the
    executors that the job most likely asks for there.
    """
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
            score = mean_available(cluster, clusters) / max(float(pairs[job, cluster, col.REQUEST]), 1.0)
            if best < 0 or score > best_score:
                best = cluster
                best_score = score
    return flat_action(job, best, n_clusters)
