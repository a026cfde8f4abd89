"""Cheapest zone: the valid offer with the smallest cost at the price of now, whatever its risk."""

from __future__ import annotations

import numpy as np

from spotweave.agents.rules.choice import urgent_job
from spotweave.agents.rules.kernels import scored
from spotweave.agents.rules.registry import MARKET, Rule, register
from spotweave.envs.simulation import columns as col
from spotweave.envs.simulation.compiled import inner
from spotweave.envs.simulation.series import Floats
from spotweave.envs.simulation.snapshot import ObservationArrays


@inner
def score(obs: ObservationArrays, job: int, cluster: int, parameters: Floats) -> tuple[float, float]:
    """The most urgent job goes to the offer with the smallest COST_USD among those that it fits in.

    Where it fits nowhere, the cheapest place to queue is taken.
    """
    fits = 1.0 if obs.pairs[job, cluster, col.FITS] != 0.0 else 0.0
    return fits, -float(obs.pairs[job, cluster, col.COST_USD])


register(
    Rule(
        "cheapest",
        "Cheapest zone",
        scored(urgent_job, score, worst=(-np.inf, -np.inf)),
        "common practice",
        worlds=MARKET,
    )
)
