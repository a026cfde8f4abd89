"""Deadline-safe with barrier: never where the deadline cannot be met or the job must wait, if avoidable.

Behind the two barriers the execution ratio counts twice as much as the load: in the chapter 5 world of Liu
2022 that weight trades misses for execution ratio about as the prototype's rule of this name did, which is
known by its figures only (24.0 misses at 87.70; weight 1 gives 8 at 90.0, 2 gives 19 at 87.7, 5 gives 58 at
85.9).
"""

from __future__ import annotations

from dataclasses import dataclass

from spotweave.agents.rules.choice import load, smallest_job
from spotweave.agents.rules.kernels import scored
from spotweave.agents.rules.registry import Rule, RuleParameters, register
from spotweave.envs.simulation import columns as col
from spotweave.envs.simulation.compiled import inner
from spotweave.envs.simulation.series import Floats
from spotweave.envs.simulation.snapshot import ObservationArrays


@dataclass(frozen=True)
class DeadlineSafeParameters(RuleParameters):
    """Barriers and weights of the deadline-safe score; the load it competes with is about 0..1."""

    improper: float = 10.0  # added where the deadline is missed even without waiting
    no_fit: float = 10.0  # added where the request does not fit in the free executors
    ratio: float = 2.0  # weight of the execution ratio


@inner
def score(obs: ObservationArrays, job: int, cluster: int, parameters: Floats) -> float:
    """The smallest job goes where improper * IH + no_fit * [no fit] + ratio * exec / std + load is least."""
    cost = parameters[0] * obs.pairs[job, cluster, col.IMPROPER] + load(obs, job, cluster)
    cost += parameters[2] * obs.pairs[job, cluster, col.EXECUTION_RATIO]
    if obs.pairs[job, cluster, col.FITS] == 0.0:
        cost += parameters[1]
    return float(-cost)


register(
    Rule(
        "deadline_safe",
        "Deadline-safe",
        scored(smallest_job, score),
        "Spotweave: improper heterogeneity and waiting behind barriers",
        DeadlineSafeParameters(),
    )
)
