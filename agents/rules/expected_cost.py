"""Expected cost: the strongest hand-made market rule here. Each job goes where it should cost least in all.

For a job and an offer, the expected total in USD is the price of the executors over launch, transfer, work
and the rework after expected interruptions, egress, the risk of missing deadlines and the delay. Waiting
("none") is compared as the cheapest offer later on: one without capacity, that should return after its mean
down-time, or one of now a little later, which pays for a stream that would idle. A running job is moved only
when that saves a margin.

The form is that of Multi-FedLS's cost model (Brum 2023, eq. 6.4), with a Poisson hazard from the up-spells
seen in the place of a fixed revocation rate; the constants were tuned on training episodes by
`benchmarks/tune_expected_cost.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from agents.federated.cost import N_TIMES, RoundParameters, weigh_task
from agents.rules.choice import NO_ACTION, flat_action, is_valid, stays, urgent_job
from agents.rules.compiled import compiled
from agents.rules.parameters import RuleParameters
from agents.rules.registry import MARKET, Rule, register
from envs.simulation import columns as col
from envs.simulation.snapshot import Category, ObservationArrays

(
    _MISS,
    _BATCH_MISS,
    _DELAY,
    _OWNED,
    _HAZARD,
    _MEMORY,
    _UP,
    _DOWN,
    _PATIENCE,
    _QUEUE,
    _SAFETY,
    _MARGIN,
    _MOVE,
    _ALLOWED,
    _POSTPONE,
    _QUEUE_RISK,
    _DOWN_MEMORY,
    _FULL,
) = range(18)


_ROUNDS = RoundParameters()


@dataclass(frozen=True)
class ExpectedCostParameters(RuleParameters):
    """What counts how much.

    Attributes:
        miss_usd: price of the missed deadline of a one-shot job.
        batch_miss_usd: price of one late batch of a streaming job.
        delay_usd_hour: price of one hour until a job ends (streaming: of backlog and start-up).
        owned_usd_hour: what an owned executor-hour is worth to other jobs.
        hazard: factor on the interruption rate 1 / mean up-spell.
        spell_memory: 0 = the rate is constant, 1 = it falls as 1 / time since it came up (heavy tails).
        typical_up_s: up-spell assumed where none has been seen.
        typical_down_s: down-time assumed where none can be derived.
        patience: factor on the down-time when waiting is weighed (above 1: waiting looks worse).
        queue_s: wait in an owned cluster's queue per missing share of its capacity.
        safety_s: seconds taken off every deadline.
        move_margin: a running job moves only if this share of its remaining cost is saved.
        move_usd: and at least this much.
        allowance: periods that a batch of a streaming job may take beyond its due time.
        postpone_s: going to the same offer this much later is weighed as well (0: not weighed).
        queue_risk: factor on `queue_s` for jobs with a deadline, which cannot afford a wrong guess.
        down_memory: 0 = an offer returns after its mean down-time, 1 = after as long as it has been down.
        full_s: wait for a full offer per missing share of its quota.
    """

    miss_usd: float = 25.0
    batch_miss_usd: float = 8.0
    delay_usd_hour: float = 0.25
    owned_usd_hour: float = 0.36
    hazard: float = 0.12
    spell_memory: float = 0.75
    typical_up_s: float = 2000.0
    typical_down_s: float = 6400.0
    patience: float = 2.0
    queue_s: float = 140000.0
    safety_s: float = 160.0
    move_margin: float = 0.01
    move_usd: float = 0.5
    allowance: float = 1.32
    postpone_s: float = 300.0
    queue_risk: float = 8.6
    down_memory: float = 0.38
    full_s: float = 15000.0


@compiled
def poisson_tail(mean: float, allowed: float) -> float:
    """P(more than `allowed` events) for a Poisson number of events; 1 if `allowed` is negative."""
    if allowed < 0.0:
        return 1.0
    if mean <= 0.0:
        return 0.0
    term = np.exp(-mean)
    total = term
    for k in range(1, min(int(allowed), 20) + 1):
        term *= mean / k
        total += term
    return float(max(0.0, 1.0 - total))


@compiled
def interruption_rate(obs: ObservationArrays, cluster: int, parameters: NDArray[np.float64]) -> float:
    """Expected interruptions per second of an instance of the offer (0 where none can happen)."""
    if obs.clusters[cluster, col.IS_SPOT] == 0.0:
        return 0.0
    mean_up = float(obs.clusters[cluster, col.MEAN_UP_S])
    if mean_up <= 0.0:
        mean_up = float(parameters[_UP])
    seen = mean_up
    if obs.clusters[cluster, col.AVAILABLE] > 0.0:
        seen = max(float(obs.clusters[cluster, col.SPELL_S]), 0.1 * mean_up)
    return float(parameters[_HAZARD] / (mean_up ** (1.0 - parameters[_MEMORY]) * seen ** parameters[_MEMORY]))


@compiled
def down_time(obs: ObservationArrays, cluster: int, parameters: NDArray[np.float64]) -> float:
    """Expected seconds until an offer that is down returns.

    The mean down-time follows from its up-ratio and mean up-spell; the longer it has been down, the longer it
    is likely to stay so (heavy tails).
    """
    ratio = float(obs.clusters[cluster, col.UP_RATIO])
    mean_up = float(obs.clusters[cluster, col.MEAN_UP_S])
    if ratio <= 0.0:
        mean_down = 10.0 * parameters[_DOWN]
    elif mean_up <= 0.0:
        mean_down = float(parameters[_DOWN])
    else:
        mean_down = mean_up * (1.0 - ratio) / ratio
    if obs.clusters[cluster, col.AVAILABLE] > 0.0:
        return float(mean_down)
    mean_down = max(mean_down, 60.0)
    seen = max(float(obs.clusters[cluster, col.SPELL_S]), 0.1 * mean_down)
    return float(mean_down ** (1.0 - parameters[_DOWN_MEMORY]) * seen ** parameters[_DOWN_MEMORY])


@compiled
def return_time(obs: ObservationArrays, job: int, cluster: int, parameters: NDArray[np.float64]) -> float:
    """Seconds after which to count on an offer that cannot be had now: it is down, or its quota is in use."""
    if obs.clusters[cluster, col.AVAILABLE] == 0.0:
        return float(parameters[_PATIENCE] * down_time(obs, cluster, parameters))
    missing = max(0.0, float(obs.pairs[job, cluster, col.REQUEST] - obs.pairs[job, cluster, col.FREE]))
    return float(parameters[_FULL] * missing / max(1.0, float(obs.clusters[cluster, col.CAPACITY_NOW])))


@compiled
def late_batches(late_s: float, execution_s: float, period_s: float) -> float:
    """Batches that miss their deadline when the next one ends `late_s` after its own, until caught up.

    Batch i ends at start + (i + 1) executions and is allowed until slack + i periods, so each period makes
    up for period - execution seconds. An execution longer than the period never catches up.
    """
    if late_s <= 0.0:
        return 0.0
    return 1.0 + late_s / max(1e-3, period_s - execution_s)


@compiled
def expected_usd(
    obs: ObservationArrays, job: int, cluster: int, wait_s: float, parameters: NDArray[np.float64]
) -> float:
    """Expected total in USD of the job on the cluster if it gets there after `wait_s` seconds.

    Streaming jobs hold their executors until the last batch, which is due at a time of its own; what they
    can miss is every batch that an interruption, a late start or a slow cluster delays.
    """
    here = obs.pairs[job, cluster, col.HERE] != 0.0
    recovery = float(obs.clusters[cluster, col.LAUNCH_S] + obs.pairs[job, cluster, col.TRANSFER_S])
    start = wait_s if here else wait_s + recovery
    egress = 0.0 if here else float(obs.pairs[job, cluster, col.EGRESS_USD])
    if obs.clusters[cluster, col.QUEUES] != 0.0 and not here and obs.pairs[job, cluster, col.FITS] == 0.0:
        missing = obs.pairs[job, cluster, col.REQUEST] - obs.pairs[job, cluster, col.FREE]
        queue_s = parameters[_QUEUE]
        if obs.jobs[job, col.HAS_DEADLINE] != 0.0:
            queue_s *= parameters[_QUEUE_RISK]
        start += queue_s * max(0.0, missing) / max(1.0, float(obs.clusters[cluster, col.CAPACITY_NOW]))
    price = float(obs.clusters[cluster, col.PRICE_USD_HOUR])
    if obs.clusters[cluster, col.PROVIDER] == 0.0:
        price += parameters[_OWNED]
    rate = interruption_rate(obs, cluster, parameters)
    execution = float(obs.pairs[job, cluster, col.EXECUTION_S])
    streaming = obs.jobs[job, col.CATEGORY] == Category.STREAMING.value
    slack = obs.jobs[job, col.SLACK_S] - parameters[_SAFETY]
    work = execution
    if streaming:
        # The last batch is complete at a time of its own: who starts later pays for less idle time.
        ahead = obs.jobs[job, col.SLACK_S] - parameters[_ALLOWED] * obs.jobs[job, col.PERIOD_S] - start
        work = max(execution, ahead + obs.jobs[job, col.DURATION_S] - obs.jobs[job, col.PERIOD_S] + execution)
    undone = 0.5 * execution
    if obs.jobs[job, col.CHECKPOINT_INTERVAL_S] > 0.0:
        undone = min(undone, 0.5 * obs.jobs[job, col.CHECKPOINT_INTERVAL_S])
    interruptions = rate * work
    rework = interruptions * (undone + recovery)

    paid_s = start - wait_s + work + rework
    total = egress * (1.0 + interruptions) + price * obs.pairs[job, cluster, col.REQUEST] * paid_s / 3600.0

    has_deadline = obs.jobs[job, col.HAS_DEADLINE] != 0.0
    if streaming:
        left = max(1.0, float(obs.jobs[job, col.EXECUTIONS]))
        period = max(1.0, float(obs.jobs[job, col.PERIOD_S]))
        misses = 0.0
        if has_deadline:
            misses = late_batches(start + execution - slack, execution, period)
            lost = recovery + undone + execution - parameters[_ALLOWED] * period
            misses = min(left, misses + interruptions * late_batches(lost, execution, period))
        total += parameters[_BATCH_MISS] * misses
        total += parameters[_DELAY] * (start + rework) / (3600.0 * left)
        return float(total)
    if has_deadline:
        margin = slack - start - execution
        each = max(1.0, undone + recovery)
        total += parameters[_MISS] * poisson_tail(interruptions, np.floor(margin / each))
    return float(total + parameters[_DELAY] * (start + work + rework) / 3600.0)


@compiled
def waiting_usd(obs: ObservationArrays, job: int, parameters: NDArray[np.float64]) -> float:
    """Expected total of "none for now": staying where it runs, or the cheapest place to be had later."""
    n_clusters = obs.clusters.shape[0]
    running = stays(obs, job)
    waiting = np.inf
    for cluster in range(n_clusters):
        if is_valid(obs, job, cluster):
            if not running and parameters[_POSTPONE] > 0.0:
                wait_s = parameters[_POSTPONE]
                later = expected_usd(obs, job, cluster, wait_s, parameters)
                waiting = min(waiting, later)
        elif running and obs.pairs[job, cluster, col.HERE] != 0.0:
            here = expected_usd(obs, job, cluster, 0.0, parameters)
            waiting = here - parameters[_MOVE] - parameters[_MARGIN] * max(0.0, here)
        elif (
            not running
            and 0.0 < obs.pairs[job, cluster, col.REQUEST] <= obs.clusters[cluster, col.CAPACITY_MAX]
        ):
            wait_s = return_time(obs, job, cluster, parameters)
            waiting = min(waiting, expected_usd(obs, job, cluster, wait_s, parameters))
    return float(waiting)


@njit(cache=True, error_model="numpy")
def choices_usd(
    obs: ObservationArrays, job: int, parameters: NDArray[np.float64], usd: NDArray[np.float64]
) -> None:
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
    usd[n_clusters] = waiting_usd(obs, job, parameters)


@njit(cache=True, error_model="numpy")
def choose(obs: ObservationArrays, memory: NDArray[np.float64], parameters: NDArray[np.float64]) -> int:
    """The most urgent job goes where its expected total is smallest; "none" if waiting costs less."""
    n_clusters = obs.clusters.shape[0]
    job = urgent_job(obs)
    if job < 0:
        return NO_ACTION
    usd = np.empty(n_clusters + 1)
    choices_usd(obs, job, parameters, usd)
    best = -1
    for cluster in range(n_clusters):
        if is_valid(obs, job, cluster) and (best < 0 or usd[cluster] < usd[best]):
            best = cluster
    if best >= 0 and is_valid(obs, job, -1) and usd[n_clusters] <= usd[best]:
        best = -1
    return flat_action(obs, job, best)


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
