"""The tuned rule: a weighted sum of missing, running long, having to wait and load.

Its form and weights were found by search on a prototype of the chapter 5 world of Liu 2022; it is the rule to
beat there, well ahead of the published baselines.
"""

from __future__ import annotations

from dataclasses import dataclass

from spotweave.agents.rules.choice import load, smallest_job
from spotweave.agents.rules.policy import scored
from spotweave.agents.rules.registry import Rule, RuleParameters, register
from spotweave.envs.simulation import columns as col
from spotweave.envs.simulation.compiled import inner
from spotweave.envs.simulation.series import Floats
from spotweave.envs.simulation.snapshot import Category, ObservationArrays


@dataclass(frozen=True)
class TunedParameters(RuleParameters):
    """Weights of the tuned rule."""

    improper: float = 0.24  # per execution that would miss its deadline even without waiting
    ratio: float = 5.0  # weight of the execution ratio
    no_fit: float = 34.4  # added where the free executors do not cover `peak_share` of the peak request
    peak_share: float = 0.89  # share of the peak request that must be free
    overload: float = 5.0  # weight of the load above `threshold`
    threshold: float = 0.631  # load from which a cluster counts as overloaded
    load: float = 0.12  # weight of the load
    # factor on `no_fit` and `overload` for general jobs (1 for time-critical and streaming)
    relaxed: float = 0.3


@inner
def tuned_cost(obs: ObservationArrays, job: int, cluster: int, parameters: Floats) -> float:
    """The weighted cost of a job on a cluster.

    cost = improper * IH * executions + ratio * exec / std + load * l
    + tc * (no_fit * [free < peak_share * peak request] + overload * max(0, l - threshold))
    with tc = 1 for jobs with deadlines (time-critical, streaming) and `relaxed` for general ones.
    """
    critical = 1.0 if obs.jobs[job, col.CATEGORY] != Category.GENERAL.value else parameters[7]
    busy = load(obs, job, cluster)
    cost = parameters[0] * obs.pairs[job, cluster, col.IMPROPER] * obs.jobs[job, col.EXECUTIONS]
    cost += parameters[1] * obs.pairs[job, cluster, col.EXECUTION_RATIO] + parameters[6] * busy
    if obs.pairs[job, cluster, col.FREE] < parameters[3] * obs.pairs[job, cluster, col.PEAK_REQUEST]:
        cost += critical * parameters[2]
    cost += critical * parameters[4] * max(0.0, busy - parameters[5])
    return float(cost)


@inner
def score(obs: ObservationArrays, job: int, cluster: int, parameters: Floats) -> float:
    """The smallest job goes where its weighted cost (`tuned_cost`) is smallest."""
    return -tuned_cost(obs, job, cluster, parameters)


register(
    Rule("tuned", "Tuned rule", scored(smallest_job, score), "Spotweave: found by search", TunedParameters())
)
