"""Earliest finish time (EFT): the execution ratio on each cluster, with a penalty for having to wait."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from agents.rules.choice import NO_ACTION, flat_action, load, smallest_job, stays
from agents.rules.parameters import RuleParameters
from envs.simulation import columns as col
from envs.simulation.snapshot import FloatArray, MaskArray


@dataclass(frozen=True)
class EftParameters(RuleParameters):
    """Weights of the earliest-finish score.

    Attributes:
        no_fit: added (in execution ratios) where the request does not fit in the free executors.
        load: weight of the cluster's load (0..1).
    """

    no_fit: float = 3.0
    load: float = 0.2


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
    """The smallest job goes where finish ratio + no_fit * [does not fit now] + load * load is smallest.

    The finish ratio is the execution ratio, stretched by launch and transfer where there are any.
    """
    n_clusters = clusters.shape[0]
    job = smallest_job(jobs, pairs, mask)
    if job < 0:
        return NO_ACTION
    if stays(job, jobs, mask, n_clusters):
        return flat_action(job, -1, n_clusters)
    base = job * (n_clusters + 1)
    best = -1
    best_cost = np.inf
    for cluster in range(n_clusters):
        if mask[base + cluster] != 0:
            cost = float(pairs[job, cluster, col.EXECUTION_RATIO])
            if pairs[job, cluster, col.EXECUTION_S] > 0.0:
                cost *= pairs[job, cluster, col.FINISH_S] / pairs[job, cluster, col.EXECUTION_S]
            if pairs[job, cluster, col.FITS] == 0.0:
                cost += parameters[0]
            cost += parameters[1] * load(job, cluster, clusters, pairs)
            if best < 0 or cost < best_cost:
                best = cluster
                best_cost = cost
    return flat_action(job, best, n_clusters)
