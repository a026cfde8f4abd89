"""Rules that weigh finish, fit, load and free executors of the clusters."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from spotweave.agents.rules.choice import NO_ACTION, is_open, load, mean_available, mean_request, smallest_job
from spotweave.agents.rules.policy import scored
from spotweave.agents.rules.registry import Rule, RuleParameters, register
from spotweave.envs.simulation import columns as col
from spotweave.envs.simulation.compiled import inner
from spotweave.envs.simulation.series import Floats
from spotweave.envs.simulation.snapshot import ObservationArrays

# Earliest finish time: the execution ratio on each cluster, with a penalty for having to wait.


@dataclass(frozen=True)
class EftParameters(RuleParameters):
    """Weights of the earliest-finish score."""

    no_fit: float = 3.0  # added (in execution ratios) where the request does not fit in the free executors
    load: float = 0.2  # weight of the cluster's load (0..1)


@inner
def earliest_finish(obs: ObservationArrays, job: int, cluster: int, parameters: Floats) -> float:
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
    Rule(
        "eft",
        "EFT",
        scored(smallest_job, earliest_finish),
        "earliest finish time, list scheduling",
        EftParameters(),
    )
)


# Deadline-safe with barrier: never where the deadline cannot be met or the job must wait, if avoidable.
#
# Behind the two barriers the execution ratio counts twice as much as the load: in the chapter 5 world of Liu
# 2022 that weight trades misses for execution ratio about as the prototype's rule of this name did, which is
# known by its figures only (24.0 misses at 87.70; weight 1 gives 8 at 90.0, 2 gives 19 at 87.7, 5 gives 58 at
# 85.9).


@dataclass(frozen=True)
class DeadlineSafeParameters(RuleParameters):
    """Barriers and weights of the deadline-safe score; the load it competes with is about 0..1."""

    improper: float = 10.0  # added where the deadline is missed even without waiting
    no_fit: float = 10.0  # added where the request does not fit in the free executors
    ratio: float = 2.0  # weight of the execution ratio


@inner
def deadline_safe(obs: ObservationArrays, job: int, cluster: int, parameters: Floats) -> float:
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
        scored(smallest_job, deadline_safe),
        "Spotweave: improper heterogeneity and waiting behind barriers",
        DeadlineSafeParameters(),
    )
)


# IH filter: no cluster with improper heterogeneity, then most free executors.


@inner
def proper_and_free(
    obs: ObservationArrays, job: int, cluster: int, parameters: Floats
) -> tuple[float, float]:
    """The smallest job goes to the proper cluster with most free executors now; if none is proper, to any."""
    improper = 1.0 if obs.pairs[job, cluster, col.IMPROPER] != 0.0 else 0.0
    return -improper, float(obs.pairs[job, cluster, col.FREE])


register(
    Rule(
        "ih_filter",
        "IH filter",
        scored(smallest_job, proper_and_free, worst=(-np.inf, -np.inf)),
        "Liu 2022, section 5.3 (improper heterogeneity), then most free executors",
        worlds=("multicluster", "anyclusters"),
    )
)


# Half free now, half on average: the best rule by hand for the equal executors of Liu 2022, chapter 4.


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
def half_free(obs: ObservationArrays, job: int, cluster: int, parameters: Floats) -> tuple[float, float]:
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
        scored(smallest_with_deadline, half_free, worst=(-np.inf, -np.inf)),
        "Spotweave: by hand, after SF-E of Liu 2022, chapter 4",
        HalfFreeParameters(),
        worlds=("chapter4",),
    )
)
