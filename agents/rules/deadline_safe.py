"""Deadline-safe with barrier: never where the deadline cannot be met or the job must wait, if avoidable."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from agents.rules.choice import NO_ACTION, flat_action, load, smallest_job, stays
from agents.rules.fields import P_FITS, P_IMPROPER
from agents.rules.parameters import RuleParameters
from envs.simulation.snapshot import FloatArray, MaskArray


@dataclass(frozen=True)
class DeadlineSafeParameters(RuleParameters):
    """Barriers of the deadline-safe score; the load they compete with is about 0..1.

    Attributes:
        improper: added where the deadline is missed even without waiting.
        no_fit: added where the request does not fit in the free executors.
    """

    improper: float = 10.0
    no_fit: float = 10.0


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
    """The smallest job goes where improper * [IH] + no_fit * [does not fit now] + load is smallest."""
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
            cost = parameters[0] * pairs[job, cluster, P_IMPROPER] + load(job, cluster, clusters, pairs)
            if pairs[job, cluster, P_FITS] == 0.0:
                cost += parameters[1]
            if best < 0 or cost < best_cost:
                best = cluster
                best_cost = cost
    return flat_action(job, best, n_clusters)
