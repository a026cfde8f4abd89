"""Deadline-safe with barrier: never where the deadline cannot be met or the job must wait, if avoidable.

Behind the two barriers the execution ratio counts twice as much as the load: in the chapter 5 world of Liu
2022 that weight trades misses for execution ratio about as the prototype's rule of this name did, which is
known by its figures only (24.0 misses at 87.70; weight 1 gives 8 at 90.0, 2 gives 19 at 87.7, 5 gives 58 at
85.9).
"""

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
class DeadlineSafeParameters(RuleParameters):
    """Barriers and weights of the deadline-safe score; the load it competes with is about 0..1.

    Attributes:
        improper: added where the deadline is missed even without waiting.
        no_fit: added where the request does not fit in the free executors.
        ratio: weight of the execution ratio.
    """

    improper: float = 10.0
    no_fit: float = 10.0
    ratio: float = 2.0


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
    """The smallest job goes where improper * IH + no_fit * [no fit] + ratio * exec / std + load is least."""
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
            cost = parameters[0] * pairs[job, cluster, col.IMPROPER] + load(job, cluster, clusters, pairs)
            cost += parameters[2] * pairs[job, cluster, col.EXECUTION_RATIO]
            if pairs[job, cluster, col.FITS] == 0.0:
                cost += parameters[1]
            if best < 0 or cost < best_cost:
                best = cluster
                best_cost = cost
    return flat_action(job, best, n_clusters)
