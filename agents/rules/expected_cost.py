"""Expected cost: the strongest hand-made market rule here. Each job goes where it should cost least in all.

What a job should cost on an offer is said in `agents.rules.expectation`. Waiting ("none") is compared as the
cheapest offer later on: one without capacity, that should return after its mean down-time, or one of now a
little later, which pays for a stream that would idle. A running job is moved only when that saves a margin.
Where there is little to wait for but an owned cluster, a job with a deadline waits in that cluster's queue.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from agents.federated.cost import N_TIMES, RoundParameters, weigh_task
from agents.rules.choice import NO_ACTION, flat_action, is_valid, stays, urgent_job
from agents.rules.compiled import compiled
from agents.rules.expectation import (
    ASK,
    MARGIN,
    MOVE,
    POSTPONE,
    QUEUE,
    QUEUE_RISK,
    SCARCE,
    SCARCE_QUEUE,
    ExpectedCostParameters,
    expected_usd,
    return_time,
)
from agents.rules.registry import MARKET, Rule, register
from envs.simulation import columns as col
from envs.simulation.series import Floats
from envs.simulation.snapshot import Category, ObservationArrays

_ROUNDS = RoundParameters()


@compiled
def waiting_option(obs: ObservationArrays, job: int, parameters: Floats) -> tuple[float, int, float]:
    """What "none for now" comes to: staying where it runs, or the cheapest place to be had later.

    Returns:
        The expected total in USD (infinite if there is no place), the cluster (-1) and the wait in seconds.
    """
    running = stays(obs, job)
    best, place, after_s, asks = np.inf, -1, 0.0, 0.0
    for cluster in range(obs.clusters.shape[0]):
        wait_s, usd = 0.0, np.inf
        if is_valid(obs, job, cluster):
            if not running:
                asks = parameters[ASK]
                if parameters[POSTPONE] > 0.0:
                    wait_s = parameters[POSTPONE]
                    usd = expected_usd(obs, job, cluster, wait_s, parameters)
        elif running and obs.pairs[job, cluster, col.HERE] != 0.0:
            usd = expected_usd(obs, job, cluster, 0.0, parameters)
            usd -= parameters[MOVE] + parameters[MARGIN] * max(0.0, usd)
        elif (
            not running
            and 0.0 < obs.pairs[job, cluster, col.REQUEST] <= obs.clusters[cluster, col.CAPACITY_MAX]
        ):
            wait_s = return_time(obs, job, cluster, parameters)
            usd = expected_usd(obs, job, cluster, wait_s, parameters)
        if usd < best:
            best, place, after_s = usd, cluster, wait_s
    return float(best + asks), place, float(after_s)


@njit(cache=True, error_model="numpy")
def queue_when_scarce(
    obs: ObservationArrays, job: int, waiting_usd: float, parameters: Floats
) -> tuple[int, float]:
    """The owned cluster in whose queue a job with a deadline waits, where there is little else to wait for.

    That is: nothing on demand is large enough for it, and the spot that is large enough has on average less
    capacity up than `scarce` times the cluster. There, who does not join the queue is passed by those who do;
    elsewhere a job that queues gives up the offers that return in the meantime.

    Args:
        obs: one observation.
        job: row of a job that would otherwise wait elsewhere.
        waiting_usd: what that should cost.
        parameters: of the rule.

    Returns:
        The cluster (-1: none) and what queueing there should cost in USD.
    """
    if obs.jobs[job, col.HAS_DEADLINE] == 0.0 or stays(obs, job):
        return -1, np.inf
    rented = 0.0
    for cluster in range(obs.clusters.shape[0]):
        capacity = float(obs.clusters[cluster, col.CAPACITY_MAX])
        if obs.clusters[cluster, col.QUEUES] != 0.0 or obs.pairs[job, cluster, col.REQUEST] > capacity:
            continue
        if obs.clusters[cluster, col.IS_SPOT] == 0.0:
            return -1, np.inf
        rented += capacity * float(obs.clusters[cluster, col.UP_RATIO])
    queueing = parameters.copy()
    queueing[QUEUE], queueing[QUEUE_RISK] = parameters[SCARCE_QUEUE], 1.0
    best, lowest = -1, waiting_usd
    for cluster in range(obs.clusters.shape[0]):
        few = rented < parameters[SCARCE] * obs.clusters[cluster, col.CAPACITY_MAX]
        if few and obs.clusters[cluster, col.QUEUES] != 0.0 and is_valid(obs, job, cluster):
            usd = expected_usd(obs, job, cluster, 0.0, queueing)
            if usd <= lowest:
                best, lowest = cluster, usd
    return best, float(lowest)


@njit(cache=True, error_model="numpy")
def choices_usd(obs: ObservationArrays, job: int, parameters: Floats, usd: Floats) -> None:
    """Fill usd (C + 1,) with the expected total of each cluster, as if it could be had now, and of "none".

    What a task that trains in rounds is expected to cost is said in `agents.federated.cost`.
    """
    n_clusters = obs.clusters.shape[0]
    if obs.jobs[job, col.CATEGORY] == Category.FEDERATED.value:
        absent_s = np.zeros(n_clusters)
        for cluster in range(n_clusters):
            if not is_valid(obs, job, cluster):
                absent_s[cluster] = return_time(obs, job, cluster, parameters)
        times = np.empty((n_clusters, N_TIMES))
        weigh_task(obs.clusters, obs.jobs[job], obs.pairs[job], absent_s, _ROUNDS, usd, times)
        return
    for cluster in range(n_clusters):
        usd[cluster] = expected_usd(obs, job, cluster, 0.0, parameters)
    usd[n_clusters] = waiting_option(obs, job, parameters)[0]
    queue, queue_usd = queue_when_scarce(obs, job, float(usd[n_clusters]), parameters)
    if queue >= 0:
        usd[queue] = min(usd[queue], queue_usd)


@njit(cache=True, error_model="numpy")
def choose_for(obs: ObservationArrays, job: int, parameters: Floats) -> int:
    """A job goes where its expected total is smallest; "none" if waiting costs less."""
    n_clusters = obs.clusters.shape[0]
    usd = np.full(n_clusters + 1, np.inf)
    rounds = obs.jobs[job, col.CATEGORY] == Category.FEDERATED.value
    if rounds:
        choices_usd(obs, job, parameters, usd)
    best = -1
    for cluster in range(n_clusters):
        if is_valid(obs, job, cluster):
            if not rounds:
                usd[cluster] = expected_usd(obs, job, cluster, 0.0, parameters)
            if best < 0 or usd[cluster] < usd[best]:
                best = cluster
    if best >= 0 and is_valid(obs, job, -1):
        if not rounds:
            usd[n_clusters] = waiting_option(obs, job, parameters)[0]
        if usd[n_clusters] <= usd[best]:
            best = -1
            if not rounds:
                best = queue_when_scarce(obs, job, float(usd[n_clusters]), parameters)[0]
    return flat_action(obs, job, best)


@njit(cache=True, error_model="numpy")
def choose(obs: ObservationArrays, memory: Floats, parameters: Floats) -> int:
    """What `choose_for` says of the most urgent job."""
    job = urgent_job(obs)
    return choose_for(obs, job, parameters) if job >= 0 else NO_ACTION


register(
    Rule(
        "expected_cost",
        "Expected cost",
        choose,
        "Spotweave: cost model of Brum 2023, eq. 6.4, with a Poisson hazard",
        ExpectedCostParameters(),
        worlds=MARKET,
        keeps_idle=False,
    )
)
