"""What a rule thinks every choice costs: an input for networks that learn where the rule is wrong."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from agents.rules import expected_cost, tuned
from agents.rules.choice import row_of
from agents.rules.compiled import Kernel
from envs.simulation import columns as col
from envs.simulation.snapshot import FloatArray, Observation, ObservationArrays, arrays_of

MOST = 1.0e4
"""Bound on an appraised cost."""


@njit(cache=True, error_model="numpy", nogil=True)
def appraise_expected_cost(
    batch: ObservationArrays,
    parameters: NDArray[np.float64],
    out: FloatArray,
) -> None:
    """Fill out (n, J', C + 1) with expected USD; a cluster that cannot be chosen counts as if it could."""
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


@njit(cache=True, error_model="numpy", nogil=True)
def appraise_tuned(
    batch: ObservationArrays,
    parameters: NDArray[np.float64],
    out: FloatArray,
) -> None:
    """Fill out (n, J', C + 1) with the tuned rule's cost; "none" costs what the dearest cluster does."""
    n_clusters = batch.clusters.shape[1]
    for k in range(out.shape[0]):
        obs = row_of(batch, k)
        for job in range(out.shape[1]):
            if obs.jobs[job, col.PRESENT] == 0.0:
                continue
            dearest = 0.0
            for c in range(n_clusters):
                cost = tuned.tuned_cost(obs, job, c, parameters)
                out[k, job, c] = cost
                dearest = max(dearest, cost)
            out[k, job, n_clusters] = dearest


_KERNELS: dict[str, tuple[Kernel, NDArray[np.float64]]] = {
    "expected_cost": (appraise_expected_cost, expected_cost.ExpectedCostParameters().vector()),
    "tuned": (appraise_tuned, tuned.TunedParameters().vector()),
}


class Appraiser:
    """Costs of all choices by the rule `name` ("expected_cost" or "tuned").

    Raises:
        ValueError: for a rule that gives no costs.
    """

    def __init__(self, name: str) -> None:
        if name not in _KERNELS:
            raise ValueError(f"no rule {name!r} appraises choices: expected one of {', '.join(_KERNELS)}")
        self.name = name
        self._kernel, self._parameters = _KERNELS[name]

    def __call__(self, observations: Observation, n_jobs: int) -> FloatArray:
        """(n, n_jobs, C + 1) float32 costs for the first rows of the window; 0 where no job is."""
        n, n_clusters = observations["clusters"].shape[:2]
        out = np.zeros((n, n_jobs, n_clusters + 1), np.float32)
        self._kernel(arrays_of(observations), self._parameters, out)
        return out
