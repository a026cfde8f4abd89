"""Earliest finish time (EFT): the execution ratio on each cluster, with a penalty for having to wait."""

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
class EftParameters(RuleParameters):
    """Weights of the earliest-finish score."""

    no_fit: float = 3.0  # added (in execution ratios) where the request does not fit in the free executors
    load: float = 0.2  # weight of the cluster's load (0..1)


@inner
def score(obs: ObservationArrays, job: int, cluster: int, parameters: Floats) -> float:
    """The smallest job goes where finish ratio + no_fit * [does not fit now] + load * load is smallest.

    The finish ratio is the execution ratio, stretched by launch and transfer where there are any.
    """
    cost = float(obs.pairs[job, cluster, col.EXECUTION_RATIO])
    if obs.pairs[job, cluster, col.EXECUTION_S] > 0.0:
        cost *= obs.pairs[job, cluster, col.FINISH_S] / obs.pairs[job, cluster, col.EXECUTION_S]
    if obs.pairs[job, cluster, col.FITS] == 0.0:
        cost += parameters[0]
    cost += parameters[1] * load(obs, job, cluster)
    return float(-cost)


register(
    Rule("eft", "EFT", scored(smallest_job, score), "earliest finish time, list scheduling", EftParameters())
)
