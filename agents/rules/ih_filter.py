"""IH filter: no cluster with improper heterogeneity (Liu 2022, section 5.3), then most free executors."""

from __future__ import annotations

import numpy as np

from spotweave.agents.rules.choice import smallest_job
from spotweave.agents.rules.kernels import scored
from spotweave.agents.rules.registry import Rule, register
from spotweave.envs.simulation import columns as col
from spotweave.envs.simulation.compiled import inner
from spotweave.envs.simulation.series import Floats
from spotweave.envs.simulation.snapshot import ObservationArrays


@inner
def score(obs: ObservationArrays, job: int, cluster: int, parameters: Floats) -> tuple[float, float]:
    """The smallest job goes to the proper cluster with most free executors now; if none is proper, to any."""
    improper = 1.0 if obs.pairs[job, cluster, col.IMPROPER] != 0.0 else 0.0
    return -improper, float(obs.pairs[job, cluster, col.FREE])


register(
    Rule(
        "ih_filter",
        "IH filter",
        scored(smallest_job, score, worst=(-np.inf, -np.inf)),
        "Liu 2022, section 5.3 (improper heterogeneity), then most free executors",
        worlds=("multicluster", "anyclusters"),
    )
)
