"""Expected cost: the strongest hand-made market rule here. Each job goes where it should cost least in all.

What a job should cost on an offer is said in `agents.rules.expectation`. Waiting ("none") is compared as the
cheapest offer later on: one without capacity, that should return after its mean down-time, or one of now a
little later, which pays for a stream that would idle. A running job is moved only when that saves a margin.
A job that cannot miss a deadline joins no queue but that of a cluster which will grow, and where deadlines
are missed and on-demand offers are full it leaves some of every place free: others need it more.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from spotweave.agents.federated.cost import N_TIMES, RoundParameters, weigh_task
from spotweave.agents.rules.choice import NO_ACTION, flat_action, is_valid, row_of, stays, urgent_job
from spotweave.agents.rules.expectation import (
    ASK,
    MARGIN,
    MOVE,
    POSTPONE,
    QUEUE_AFTER,
    RESERVE,
    ROUNDS_AFTER,
    WORTH,
    ExpectedCostParameters,
    expected_usd,
    interruption_rate,
    owned_price,
    return_time,
    saved_usd_hour,
    to_come,
)
from spotweave.agents.rules.registry import MARKET, Rule, register
from spotweave.envs.simulation import columns as col
from spotweave.envs.simulation.compiled import inner, linked
from spotweave.envs.simulation.series import Floats
from spotweave.envs.simulation.snapshot import (
    Category,
    FloatArray,
    MaskArray,
    Observation,
    ObservationArrays,
    arrays_of,
)

# Markets charge data when an instance starts and no messages; a late round costs what the others hold. What
# owned executors and interruptions cost is said by the rule's own parameters.
ROUNDS = RoundParameters(
    delay_price=1.0,
    own_instance=0.0,
    delay_usd_hour=ExpectedCostParameters().delay_usd_hour,
    egress_in_rounds=0.0,
)


@inner
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


@inner
def gives_way(obs: ObservationArrays, job: int, cluster: int, parameters: Floats) -> bool:
    """Whether the job leaves the cluster to others, which lose more by waiting than it does.

    A job without a deadline joins no queue, unless the cluster can still grow enough for it. Where capacity
    is scarce it leaves `reserve` executors of every place free, and so does a job whose deadline is worth
    little; an idle client of a federated application gives up what it holds. A job that must go somewhere, or
    has waited for three days, gives way to none; nor does a task of an application that arrived a day ago.

    Args:
        obs: one observation.
        job: row of the job.
        cluster: where it could go.
        parameters: of the rule.
    """
    row, request = obs.jobs[job], obs.pairs[job, cluster, col.REQUEST]
    # A gang that takes nearly all of a place goes when the rest is free.
    kept = min(parameters[RESERVE], obs.clusters[cluster, col.CAPACITY_MAX] - request)
    idle = row[col.IDLE] != 0.0 and obs.pairs[job, cluster, col.HERE] != 0.0
    left = obs.pairs[job, cluster, col.FREE] + to_come(obs, cluster) - (0.0 if idle else request)
    if left >= kept or stays(obs, job) or not is_valid(obs, job, -1):
        return False
    since_s, most_s = row[col.WAITED_S], parameters[QUEUE_AFTER]
    if row[col.CATEGORY] == Category.FEDERATED.value:
        since_s, most_s = row[col.AGE_S], parameters[ROUNDS_AFTER]
    if since_s >= most_s:
        return False
    has_deadline = row[col.HAS_DEADLINE] != 0.0
    if not has_deadline and not idle and obs.clusters[cluster, col.QUEUES] != 0.0 and left < 0.0:
        return True
    if not _is_scarce(obs, job, parameters):
        return False
    return not has_deadline or saved_usd_hour(obs, job, parameters) <= parameters[WORTH]


@inner
def _is_scarce(obs: ObservationArrays, job: int, parameters: Floats) -> bool:
    """Whether deadlines were missed, and no on-demand offer has room for the job and the reserve."""
    missed = 0.0
    for cluster in range(obs.clusters.shape[0]):
        missed += obs.clusters[cluster, col.MISSED]
        interrupted = obs.clusters[cluster, col.IS_SPOT] != 0.0 or obs.clusters[cluster, col.QUEUES] != 0.0
        room = obs.pairs[job, cluster, col.FREE] - obs.pairs[job, cluster, col.REQUEST]
        if not interrupted and room >= parameters[RESERVE]:
            return False
    return missed > 0.0


@linked()
def choices_usd(obs: ObservationArrays, job: int, parameters: Floats, usd: Floats) -> None:
    """Fill usd (C + 1,) with the expected total of each cluster, as if it could be had now, and of "none".

    What a task that trains in rounds is expected to cost is said in `agents.federated.cost`.
    """
    n_clusters = obs.clusters.shape[0]
    if obs.jobs[job, col.CATEGORY] == Category.FEDERATED.value:
        absent_s, usd_hour, rates = np.zeros(n_clusters), np.empty(n_clusters), np.empty(n_clusters)
        for cluster in range(n_clusters):
            if not is_valid(obs, job, cluster):
                absent_s[cluster] = return_time(obs, job, cluster, parameters)
            listed = float(obs.clusters[cluster, col.PRICE_USD_HOUR])
            usd_hour[cluster] = listed if listed > 0.0 else owned_price(obs, cluster, parameters)
            rates[cluster] = interruption_rate(obs, cluster, parameters)
        times = np.empty((n_clusters, N_TIMES))
        row, pairs = obs.jobs[job], obs.pairs[job]
        weigh_task(obs.clusters, row, pairs, absent_s, usd_hour, rates, ROUNDS, usd, times)
        return
    for cluster in range(n_clusters):
        usd[cluster] = expected_usd(obs, job, cluster, 0.0, parameters)
    usd[n_clusters] = waiting_option(obs, job, parameters)[0]


@linked()
def choose_for(obs: ObservationArrays, job: int, parameters: Floats) -> int:
    """A job goes where its expected total is smallest; "none" if waiting costs less."""
    n_clusters = obs.clusters.shape[0]
    usd = np.full(n_clusters + 1, np.inf)
    rounds = obs.jobs[job, col.CATEGORY] == Category.FEDERATED.value
    if rounds:
        choices_usd(obs, job, parameters, usd)
    best = -1
    for cluster in range(n_clusters):
        if is_valid(obs, job, cluster) and not gives_way(obs, job, cluster, parameters):
            if not rounds:
                usd[cluster] = expected_usd(obs, job, cluster, 0.0, parameters)
            if best < 0 or usd[cluster] < usd[best]:
                best = cluster
    if best >= 0 and is_valid(obs, job, -1):
        if not rounds:
            usd[n_clusters] = waiting_option(obs, job, parameters)[0]
        if usd[n_clusters] <= usd[best]:
            best = -1
    return flat_action(obs, job, best)


@linked()
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


# What the rule `expected_cost` thinks every choice costs, for people who look at a decision.


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
            choices_usd(obs, job, parameters, usd)
            for c in range(n_clusters + 1):
                out.usd[k, job, c] = min(MOST, max(-MOST, usd[c]))
            for c in range(n_clusters):
                rate = interruption_rate(obs, c, parameters)
                out.gives_way[k, job, c] = gives_way(obs, job, c, parameters)
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
