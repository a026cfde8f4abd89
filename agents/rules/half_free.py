"""Half free now, half on average: the best rule by hand for the equal executors of Liu 2022, chapter 4."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from spotweave.agents.rules.choice import NO_ACTION, is_open, mean_available, mean_request
from spotweave.agents.rules.kernels import scored
from spotweave.agents.rules.registry import Rule, RuleParameters, register
from spotweave.envs.simulation import columns as col
from spotweave.envs.simulation.compiled import inner
from spotweave.envs.simulation.series import Floats
from spotweave.envs.simulation.snapshot import ObservationArrays


@dataclass(frozen=True)
class HalfFreeParameters(RuleParameters):
    """What counts as free."""

    # weight of the executors free now; the rest goes to those free on average (latest 100 steps)
    now: float = 0.5


@inner
def smallest_with_deadline(obs: ObservationArrays) -> int:
    """The open job with the smallest mean request among those with deadlines, else among all; -1 if none."""
    best = NO_ACTION
    best_general, best_request = 2, np.inf
    for job in range(obs.jobs.shape[0]):
        if is_open(obs, job):
            general = 1 if obs.jobs[job, col.HAS_DEADLINE] == 0.0 else 0
            request = mean_request(obs, job)
            if general < best_general or (general == best_general and request < best_request):
                best, best_general, best_request = job, general, request
    return best


@inner
def score(obs: ObservationArrays, job: int, cluster: int, parameters: Floats) -> tuple[float, float]:
    """The job goes where most executors are free, never where its peak does not fit now, if avoidable.

    Free = now * (capacity - used - halted) + (1 - now) * (1 - mean occupation) * capacity.
    """
    free = float(obs.pairs[job, cluster, col.FREE])
    fits = 1.0 if free >= obs.pairs[job, cluster, col.PEAK_REQUEST] else 0.0
    return fits, parameters[0] * free + (1.0 - parameters[0]) * mean_available(obs, cluster)


register(
    Rule(
        "half_free",
        "Half free now, half on average",
        scored(smallest_with_deadline, score, worst=(-np.inf, -np.inf)),
        "Spotweave: by hand, after SF-E of Liu 2022, chapter 4",
        HalfFreeParameters(),
        worlds=("chapter4",),
    )
)
