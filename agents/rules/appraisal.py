"""What the rule `expected_cost` thinks every choice costs, for people who look at a decision."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from agents.rules import expected_cost
from agents.rules.choice import row_of
from agents.rules.expectation import ExpectedCostParameters
from envs.simulation import columns as col
from envs.simulation.snapshot import FloatArray, Observation, ObservationArrays, arrays_of

MOST = 1.0e4
"""Bound on an appraised cost."""


@njit(cache=True, error_model="numpy", nogil=True)
def _appraise(batch: ObservationArrays, parameters: NDArray[np.float64], out: FloatArray) -> None:
    n_clusters = batch.clusters.shape[1]
    usd = np.empty(n_clusters + 1)
    for k in range(out.shape[0]):
        obs = row_of(batch, k)
        for job in range(out.shape[1]):
            if obs.jobs[job, col.PRESENT] == 0.0:
                continue
            expected_cost.choices_usd(obs, job, parameters, usd)
            for c in range(n_clusters + 1):
                out[k, job, c] = min(MOST, max(-MOST, usd[c]))


def appraise(observations: Observation, n_jobs: int) -> FloatArray:
    """(n, n_jobs, C + 1) float32 expected USD for the first rows of the window; 0 where no job is.

    A cluster that cannot be chosen counts as if it could.
    """
    n, n_clusters = observations["clusters"].shape[:2]
    out = np.zeros((n, n_jobs, n_clusters + 1), np.float32)
    _appraise(arrays_of(observations), ExpectedCostParameters().vector(), out)
    return out
