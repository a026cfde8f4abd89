"""Random: Liu 2022, chapter 4, rule-based baselines (job and cluster are both drawn); RAN of chapter 5."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from agents.rules.choice import NO_ACTION, draw, flat_action, is_open, stays
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
    """A random open job goes to a random valid cluster; both draws come from the lane's memory."""
    n_clusters = clusters.shape[0]
    n_open = 0
    for job in range(jobs.shape[0]):
        if is_open(job, jobs, mask, n_clusters):
            n_open += 1
    if n_open == 0:
        return NO_ACTION
    left = int(draw(memory) * n_open)
    chosen = NO_ACTION
    for job in range(jobs.shape[0]):
        if is_open(job, jobs, mask, n_clusters):
            if left == 0:
                chosen = job
                break
            left -= 1
    if stays(chosen, jobs, mask, n_clusters):
        return flat_action(chosen, -1, n_clusters)
    base = chosen * (n_clusters + 1)
    n_valid = 0
    for cluster in range(n_clusters):
        if mask[base + cluster] != 0:
            n_valid += 1
    if n_valid == 0:
        return flat_action(chosen, -1, n_clusters)
    left = int(draw(memory) * n_valid)
    for cluster in range(n_clusters):
        if mask[base + cluster] != 0:
            if left == 0:
                return flat_action(chosen, cluster, n_clusters)
            left -= 1
    return NO_ACTION
