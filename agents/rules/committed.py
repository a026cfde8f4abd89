"""The place with the most capacity after what deployed jobs will still need."""

from __future__ import annotations

from dataclasses import dataclass

from spotweave.agents.rules.choice import largest_job
from spotweave.agents.rules.policy import scored
from spotweave.agents.rules.registry import Rule, RuleParameters, register
from spotweave.envs.simulation import columns as col
from spotweave.envs.simulation.compiled import inner
from spotweave.envs.simulation.series import Floats
from spotweave.envs.simulation.snapshot import Category, ObservationArrays


@dataclass(frozen=True)
class CommittedParameters(RuleParameters):
    """By how many free executors a drawback is made up for, for each category of jobs."""

    streaming_shortage: float = 30.0  # an executor that lacks on average while a streaming job runs
    critical_shortage: float = 7.0  # the same for a time-critical job
    general_shortage: float = 16.0  # the same for a general job
    streaming_no_fit: float = 120.0  # the peak request of a streaming job does not fit now
    critical_no_fit: float = 450.0  # the same for a time-critical job
    general_no_fit: float = 2000.0  # the same for a general job


@inner
def committed_cost(obs: ObservationArrays, job: int, cluster: int, parameters: Floats) -> float:
    """Executors that the job on the cluster costs, less those that stay free there.

    cost = shortage * SHORTAGE + no_fit * [free < peak request] - FREE_AHEAD
    with `shortage` and `no_fit` of the job's category.
    """
    category = 0
    if obs.jobs[job, col.CATEGORY] == Category.TIME_CRITICAL.value:
        category = 1
    elif obs.jobs[job, col.CATEGORY] == Category.GENERAL.value:
        category = 2
    cost = parameters[category] * obs.pairs[job, cluster, col.SHORTAGE]
    if obs.pairs[job, cluster, col.FREE] < obs.pairs[job, cluster, col.PEAK_REQUEST]:
        cost += parameters[3 + category]
    return float(cost - obs.clusters[cluster, col.FREE_AHEAD])


@inner
def score(obs: ObservationArrays, job: int, cluster: int, parameters: Floats) -> float:
    """The largest job goes where `committed_cost` is smallest: small ones find room afterwards too."""
    return -committed_cost(obs, job, cluster, parameters)


register(
    Rule(
        "committed",
        "Most free of what is committed",
        scored(largest_job, score),
        "Spotweave: by hand, weights found by search on training episodes",
        CommittedParameters(),
        worlds=("chapter4",),
        forecast=True,
    )
)
