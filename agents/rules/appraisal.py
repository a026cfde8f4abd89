"""What the rule `expected_cost` thinks every choice costs, for people who look at a decision."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from spotweave.agents.rules import expected_cost
from spotweave.agents.rules.choice import row_of
from spotweave.agents.rules.expectation import ExpectedCostParameters, interruption_rate
from spotweave.envs.simulation import columns as col
from spotweave.envs.simulation.series import Floats
from spotweave.envs.simulation.snapshot import (
    FloatArray,
    MaskArray,
    Observation,
    ObservationArrays,
    arrays_of,
)

MOST = 1.0e4  # bound on an appraised cost


class Appraisal(NamedTuple):
    """What every choice for some jobs of some observations is expected to come to."""

    usd: FloatArray  # (n, n_jobs, C + 1) float32 expected USD, within +-`MOST`; 0 where no job is
    risk: FloatArray  # (n, n_jobs, C + 1) float32 chance of an interruption before the end
    gives_way: MaskArray  # (n, n_jobs, C + 1) whether the rule leaves it to others, that lose more by waiting


@njit(cache=True, error_model="numpy", nogil=True)
def _appraise(batch: ObservationArrays, parameters: Floats, out: Appraisal) -> None:
    n_clusters = batch.clusters.shape[1]
    usd = np.empty(n_clusters + 1)
    for k in range(out.usd.shape[0]):
        obs = row_of(batch, k)
        for job in range(out.usd.shape[1]):
            if obs.jobs[job, col.PRESENT] == 0.0:
                continue
            expected_cost.choices_usd(obs, job, parameters, usd)
            for c in range(n_clusters + 1):
                out.usd[k, job, c] = min(MOST, max(-MOST, usd[c]))
            for c in range(n_clusters):
                rate = interruption_rate(obs, c, parameters)
                out.gives_way[k, job, c] = expected_cost.gives_way(obs, job, c, parameters)
                out.risk[k, job, c] = 1.0 - np.exp(-rate * max(0.0, obs.pairs[job, c, col.FINISH_S]))


def appraise(observations: Observation, n_jobs: int) -> Appraisal:
    """Appraise every choice for the first rows of the window.

    A cluster that cannot be chosen counts as if it could.
    """
    n, n_clusters = observations["clusters"].shape[:2]
    shape = (n, n_jobs, n_clusters + 1)
    out = Appraisal(np.zeros(shape, np.float32), np.zeros(shape, np.float32), np.zeros(shape, np.int8))
    _appraise(arrays_of(observations), ExpectedCostParameters().vector(), out)
    return out
