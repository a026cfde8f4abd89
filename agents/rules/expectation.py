"""What a job should cost on an offer: executors, egress, delay, owned capacity and missed deadlines.

The form is that of Multi-FedLS's cost model (Brum 2023, eq. 6.4), with a Poisson hazard from the up-spells
seen in the place of a fixed revocation rate; the constants were tuned on training episodes
(docs/results/markets.md).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from spotweave.agents.rules.registry import RuleParameters
from spotweave.envs.simulation import columns as col
from spotweave.envs.simulation.compiled import inner
from spotweave.envs.simulation.series import Floats
from spotweave.envs.simulation.snapshot import Category, ObservationArrays

(
    MISS,
    BATCH_MISS,
    DELAY,
    OWNED,
    HAZARD,
    MEMORY,
    UP,
    DOWN,
    PATIENCE,
    QUEUE,
    SAFETY,
    MARGIN,
    MOVE,
    ALLOWED,
    POSTPONE,
    QUEUE_RISK,
    DOWN_MEMORY,
    FULL,
    FULL_MEMORY,
    ASK,
    OWNED_POWER,
    NOTICE,
    FREE_FIRST,
    WORTH,
    RESERVE,
    QUEUE_AFTER,
    GROW,
    ROUNDS_AFTER,
    STEPS,
) = range(29)


AWS = 1.0  # `PROVIDER` of the offers whose first hour is free when they are interrupted


@dataclass(frozen=True)
class ExpectedCostParameters(RuleParameters):
    """Weights and constants of the expected cost."""

    miss_usd: float = 25.0  # price of the missed deadline of a one-shot job
    batch_miss_usd: float = 8.0  # price of one late batch of a streaming job
    delay_usd_hour: float = 0.25  # price of one hour until a job ends (streaming: of backlog and start-up)
    owned_usd_hour: float = 0.2  # what an owned executor-hour is worth to other jobs
    hazard: float = 0.12  # factor on the interruption rate 1 / mean up-spell
    # 0 = the rate is constant, 1 = it falls as 1 / time since it came up (heavy tails)
    spell_memory: float = 0.75
    typical_up_s: float = 2000.0  # up-spell assumed where none has been seen
    typical_down_s: float = 6400.0  # down-time assumed where none can be derived
    patience: float = 2.0  # factor on the down-time when waiting is weighed (above 1: waiting looks worse)
    queue_s: float = 40000.0  # wait in an owned cluster's queue per missing share of its capacity
    safety_s: float = 160.0  # seconds taken off every deadline
    move_margin: float = 0.01  # a running job moves only if this share of its remaining cost is saved
    move_usd: float = 0.5  # and at least this much
    allowance: float = 1.32  # periods that a batch of a streaming job may take beyond its due time
    postpone_s: float = 300.0  # going to the same offer this much later is weighed as well (0: not weighed)
    queue_risk: float = 3.0  # factor on `queue_s` for jobs with a deadline, which cannot afford a wrong guess
    # 0 = an offer returns after its mean down-time, 1 = after as long as it has been down
    down_memory: float = 0.38
    full_s: float = 15000.0  # wait for a full offer per missing share of its quota
    full_memory: float = 1.0  # and this share of the time that the job has waited already
    ask_usd: float = 0.03  # what it costs to wait although something is valid: the place may be gone then
    # the worth of an owned executor-hour falls with this power of its mean occupation; 0: it is always the
    # same
    owned_power: float = 0.5
    # share of the unsaved work that an interruption notice saves, where it is long enough
    notice: float = 0.95
    free_first_s: float = 3600.0  # AWS does not charge for what it interrupts earlier than this
    # a job leaves scarce capacity to others if an executor-hour saves it less than this in missed deadlines
    worth_usd_hour: float = 10.0
    reserve: float = 4.0  # executors of a place that such a job leaves free
    queue_after_s: float = 259200.0  # and the wait after which it leaves nothing to others
    grow_s: float = 300.0  # wait per executor that an elastic cluster has still to add
    # the same for tasks of a federated application, since it arrived
    rounds_after_s: float = 86400.0
    # a late step of a workflow makes this share of the steps that wait for it late
    steps: float = 0.3


@inner
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


@inner
def interruption_rate(obs: ObservationArrays, cluster: int, parameters: Floats) -> float:
    """Expected interruptions per second of an instance of the offer (0 where none can happen)."""
    if obs.clusters[cluster, col.IS_SPOT] == 0.0:
        return 0.0
    mean_up = float(obs.clusters[cluster, col.MEAN_UP_S])
    if mean_up <= 0.0:
        mean_up = float(parameters[UP])
    seen = mean_up
    if obs.clusters[cluster, col.AVAILABLE] > 0.0:
        seen = max(float(obs.clusters[cluster, col.SPELL_S]), 0.1 * mean_up)
    return float(parameters[HAZARD] / (mean_up ** (1.0 - parameters[MEMORY]) * seen ** parameters[MEMORY]))


@inner
def down_time(obs: ObservationArrays, cluster: int, parameters: Floats) -> float:
    """Expected seconds until an offer that is down returns.

    The mean down-time follows from its up-ratio and mean up-spell; the longer it has been down, the longer it
    is likely to stay so (heavy tails).
    """
    ratio = float(obs.clusters[cluster, col.UP_RATIO])
    mean_up = float(obs.clusters[cluster, col.MEAN_UP_S])
    if ratio <= 0.0:
        mean_down = 10.0 * parameters[DOWN]
    elif mean_up <= 0.0:
        mean_down = float(parameters[DOWN])
    else:
        mean_down = mean_up * (1.0 - ratio) / ratio
    if obs.clusters[cluster, col.AVAILABLE] > 0.0:
        return float(mean_down)
    mean_down = max(mean_down, 60.0)
    seen = max(float(obs.clusters[cluster, col.SPELL_S]), 0.1 * mean_down)
    return float(mean_down ** (1.0 - parameters[DOWN_MEMORY]) * seen ** parameters[DOWN_MEMORY])


@inner
def return_time(obs: ObservationArrays, job: int, cluster: int, parameters: Floats) -> float:
    """Seconds after which to count on an offer that cannot be had now: it is down, or its quota is in use."""
    if obs.clusters[cluster, col.AVAILABLE] == 0.0:
        return float(parameters[PATIENCE] * down_time(obs, cluster, parameters))
    missing = max(0.0, float(obs.pairs[job, cluster, col.REQUEST] - obs.pairs[job, cluster, col.FREE]))
    wait_s = parameters[FULL] * missing / max(1.0, float(obs.clusters[cluster, col.CAPACITY_NOW]))
    return float(wait_s + parameters[FULL_MEMORY] * obs.jobs[job, col.WAITED_S])


@inner
def late_batches(late_s: float, execution_s: float, period_s: float, left: float) -> float:
    """Number of `left` batches that miss their deadline when the next one ends `late_s` after its own.

    Batch i ends at start + (i + 1) executions and is allowed until slack + i periods, so each period makes
    up for period - execution seconds. With an execution longer than the period they fall ever further behind.

    Args:
        late_s: negative if the next one is early.
        execution_s: of a batch.
        period_s: between two batches.
        left: batches.
    """
    if execution_s > period_s:
        in_time = np.ceil(max(0.0, -late_s) / (execution_s - period_s))
        return float(max(0.0, left - in_time))
    if late_s <= 0.0:
        return 0.0
    return float(min(left, 1.0 + late_s / max(1e-3, period_s - execution_s)))


@inner
def free_s(rate: float, held_s: float, free_first_s: float) -> float:
    """Expected seconds of an instance that are not charged, as the provider interrupts it early.

    It is interrupted at `rate` per second, and costs nothing if that happens within `free_first_s`.
    """
    within = rate * min(held_s, free_first_s)
    if within <= 1e-6:
        return 0.0
    return float((1.0 - np.exp(-within) * (1.0 + within)) / rate)


@inner
def undone_s(obs: ObservationArrays, job: int, cluster: int, notice: float) -> float:
    """Seconds of work that an interruption undoes on average: half a checkpoint interval at most.

    A one-shot job saves its work within the notice if its checkpoint is written by then, at 1 GB/s.
    """
    undone = 0.5 * float(obs.pairs[job, cluster, col.EXECUTION_S])
    if obs.jobs[job, col.CHECKPOINT_INTERVAL_S] > 0.0:
        undone = min(undone, 0.5 * float(obs.jobs[job, col.CHECKPOINT_INTERVAL_S]))
    streaming = obs.jobs[job, col.CATEGORY] == Category.STREAMING.value
    if not streaming and obs.clusters[cluster, col.NOTICE_S] > obs.jobs[job, col.CHECKPOINT_GB] + 2.0:
        undone *= 1.0 - notice
    return float(undone)


@inner
def to_come(obs: ObservationArrays, cluster: int) -> float:
    """Executors by which an elastic cluster can still be extended; 0 for any other place."""
    if obs.clusters[cluster, col.QUEUES] == 0.0:
        return 0.0
    now = max(obs.clusters[cluster, col.CAPACITY_NOW], obs.clusters[cluster, col.CAPACITY_NORMAL])
    return float(obs.clusters[cluster, col.CAPACITY_MAX] - now)


@inner
def expected_parts(
    obs: ObservationArrays, job: int, cluster: int, wait_s: float, parameters: Floats
) -> tuple[float, float, float, float]:
    """What to expect of the job on the cluster if it gets there after `wait_s` seconds.

    Streaming jobs hold their executors until the last batch, which is due at a time of its own; what they
    can miss is every batch that an interruption, a late start or a slow cluster delays.

    Returns:
        USD for executors and egress, hours of delay, owned executor-hours, and deadlines missed (streaming:
        batches).
    """
    here = obs.pairs[job, cluster, col.HERE] != 0.0
    recovery = float(obs.clusters[cluster, col.LAUNCH_S] + obs.pairs[job, cluster, col.TRANSFER_S])
    start = wait_s if here else wait_s + recovery
    egress = 0.0 if here else float(obs.pairs[job, cluster, col.EGRESS_USD])
    if obs.clusters[cluster, col.QUEUES] != 0.0 and not here and obs.pairs[job, cluster, col.FITS] == 0.0:
        missing = obs.pairs[job, cluster, col.REQUEST] - obs.pairs[job, cluster, col.FREE]
        added = min(missing, to_come(obs, cluster))
        start += parameters[GROW] * added
        missing -= added
        queue_s = parameters[QUEUE]
        if obs.jobs[job, col.HAS_DEADLINE] != 0.0:
            queue_s *= parameters[QUEUE_RISK]
        start += queue_s * max(0.0, missing) / max(1.0, float(obs.clusters[cluster, col.CAPACITY_NOW]))
    rate = interruption_rate(obs, cluster, parameters)
    execution = float(obs.pairs[job, cluster, col.EXECUTION_S])
    streaming = obs.jobs[job, col.CATEGORY] == Category.STREAMING.value
    slack = float(obs.jobs[job, col.SLACK_S] - parameters[SAFETY])
    work = execution
    if streaming:
        # The last batch is complete at a time of its own: who starts later pays for less idle time.
        ahead = obs.jobs[job, col.SLACK_S] - parameters[ALLOWED] * obs.jobs[job, col.PERIOD_S] - start
        work = max(execution, ahead + obs.jobs[job, col.DURATION_S] - obs.jobs[job, col.PERIOD_S] + execution)
    undone = undone_s(obs, job, cluster, parameters[NOTICE])
    interruptions = rate * work
    rework = interruptions * (undone + recovery)

    paid_s = start - wait_s + work + rework
    if rate > 0.0 and obs.clusters[cluster, col.PROVIDER] == AWS:
        free = free_s(rate, work, parameters[FREE_FIRST])
        paid_s = max(0.0, paid_s - free * (1.0 + interruptions))
    executor_hours = obs.pairs[job, cluster, col.REQUEST] * paid_s / 3600.0
    usd = egress * (1.0 + interruptions) + obs.clusters[cluster, col.PRICE_USD_HOUR] * executor_hours
    owned_hours = executor_hours if obs.clusters[cluster, col.PROVIDER] == 0.0 else 0.0

    misses = 0.0
    if streaming:
        left = max(1.0, float(obs.jobs[job, col.EXECUTIONS]))
        period = max(1.0, float(obs.jobs[job, col.PERIOD_S]))
        if obs.jobs[job, col.HAS_DEADLINE] != 0.0:
            misses = late_batches(start + execution - slack, execution, period, left)
            lost = recovery + undone + execution - parameters[ALLOWED] * period
            misses = min(left, misses + interruptions * late_batches(lost, execution, period, left))
        return float(usd), float((start + rework) / (3600.0 * left)), float(owned_hours), float(misses)
    if obs.jobs[job, col.HAS_DEADLINE] != 0.0:
        each = max(1.0, undone + recovery)
        misses = poisson_tail(interruptions, np.floor((slack - start - execution) / each))
    return float(usd), float((start + work + rework) / 3600.0), float(owned_hours), float(misses)


@inner
def owned_price(obs: ObservationArrays, cluster: int, parameters: Floats) -> float:
    """USD that an executor-hour of a cluster is worth to other jobs."""
    busy = float(obs.clusters[cluster, col.MEAN_OCCUPATION])
    return float(parameters[OWNED] * busy ** parameters[OWNED_POWER])


@inner
def missed_at_once(obs: ObservationArrays, job: int, parameters: Floats) -> float:
    """Deadlines missed when the job misses one: a late step makes some that wait for it late too."""
    category = obs.jobs[job, col.CATEGORY]
    if category == Category.STREAMING.value or category == Category.FEDERATED.value:
        return 1.0
    return float(1.0 + parameters[STEPS] * max(0.0, obs.jobs[job, col.EXECUTIONS] - 1.0))


@inner
def miss_price(obs: ObservationArrays, job: int, parameters: Floats) -> float:
    """USD of a missed deadline of the job (streaming: of a batch)."""
    streaming = obs.jobs[job, col.CATEGORY] == Category.STREAMING.value
    each = parameters[BATCH_MISS] if streaming else parameters[MISS]
    return float(each * missed_at_once(obs, job, parameters))


@inner
def total_usd(
    obs: ObservationArrays,
    job: int,
    cluster: int,
    parts: tuple[float, float, float, float],
    parameters: Floats,
) -> float:
    """USD of what `expected_parts` gave."""
    usd = parts[0]
    if parts[2] > 0.0:
        usd += owned_price(obs, cluster, parameters) * parts[2]
    usd += parameters[DELAY] * parts[1]
    return float(usd + miss_price(obs, job, parameters) * parts[3])


@inner
def saved_usd_hour(obs: ObservationArrays, job: int, parameters: Floats) -> float:
    """USD of missed deadlines that an executor-hour saves at best, if the job starts at once somewhere.

    Of a task that trains in rounds, as if its application needed no other task.
    """
    if obs.jobs[job, col.CATEGORY] == Category.FEDERATED.value:
        left_s = max(60.0, float(obs.jobs[job, col.DURATION_S]))
        in_time = obs.jobs[job, col.SLACK_S] > 0.0
        return float(3600.0 / left_s * miss_price(obs, job, parameters)) if in_time else 0.0
    streaming = obs.jobs[job, col.CATEGORY] == Category.STREAMING.value
    left = max(1.0, float(obs.jobs[job, col.EXECUTIONS])) if streaming else 1.0
    best = 0.0
    for cluster in range(obs.clusters.shape[0]):
        request = obs.pairs[job, cluster, col.REQUEST]
        if 0.0 < request <= obs.clusters[cluster, col.CAPACITY_MAX]:
            held_s = obs.pairs[job, cluster, col.EXECUTION_S]
            if streaming:
                held_s = left * obs.jobs[job, col.PERIOD_S]
            saved = left - expected_parts(obs, job, cluster, 0.0, parameters)[3]
            best = max(best, 3600.0 * saved / (request * max(60.0, held_s)))
    return float(best * miss_price(obs, job, parameters))


@inner
def expected_usd(obs: ObservationArrays, job: int, cluster: int, wait_s: float, parameters: Floats) -> float:
    """Expected total in USD of the job on the cluster if it gets there after `wait_s` seconds."""
    return total_usd(obs, job, cluster, expected_parts(obs, job, cluster, wait_s, parameters), parameters)
