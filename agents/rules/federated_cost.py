"""Expected cost of the choices of a task of a federated application, for the rule "expected cost".

Keeping an idle instance costs its price until the next round, releasing it the set-up and the cold first
epoch of another one, to be started as late as is safe (FedCostAware, Sinha 2025, section III-B). Being late
costs what the whole application holds meanwhile.
"""

from __future__ import annotations

from numba import njit

from agents.rules.lateness import late_round_usd
from envs.simulation import columns as col
from envs.simulation.snapshot import FloatArray

_SOON_S = 15.0
"""A client without an instance that has delivered is asked again after this at the earliest."""


@njit(cache=True, error_model="numpy")
def needed_s(job: int, jobs: FloatArray) -> float:
    """Seconds until all others are expected to have delivered in the round that the client works for next."""
    left = float(jobs[job, col.ROUND_LEFT_S])
    return left if jobs[job, col.OWES] != 0.0 else left + float(jobs[job, col.ROUND_S])


@njit(cache=True, error_model="numpy")
def fresh_execution_s(job: int, cluster: int, jobs: FloatArray, pairs: FloatArray) -> float:
    """Seconds of the next epoch on an instance of the cluster that is yet to be launched."""
    execution = float(pairs[job, cluster, col.EXECUTION_S])
    return execution + float(jobs[job, col.COLD_S]) if pairs[job, cluster, col.HERE] != 0.0 else execution


@njit(cache=True, error_model="numpy")
def later_s(
    job: int,
    cluster: int,
    again_s: float,
    safety_s: float,
    clusters: FloatArray,
    jobs: FloatArray,
    pairs: FloatArray,
) -> float:
    """When a task that is told "none" would go to the cluster: as late as is safe.

    Args:
        job: row of the task.
        cluster: where.
        again_s: seconds until it is asked again if that is too late already.
        safety_s: seconds to be early.
        clusters: (C, N_CLUSTER_FIELDS).
        jobs: (J, N_JOB_FIELDS).
        pairs: (J, C, N_PAIR_FIELDS).
    """
    if jobs[job, col.IS_SERVER] != 0.0:
        return again_s
    start = float(clusters[cluster, col.LAUNCH_S] + pairs[job, cluster, col.TRANSFER_S])
    spare = needed_s(job, jobs) - safety_s - start - fresh_execution_s(job, cluster, jobs, pairs)
    if spare > 0.0:
        return max(_SOON_S, spare)
    return again_s if jobs[job, col.OWES] != 0.0 else _SOON_S


@njit(cache=True, error_model="numpy")
def task_usd(
    job: int,
    cluster: int,
    wait_s: float,
    price_usd_hour: float,
    queue_s: float,
    rate: float,
    miss_usd: float,
    delay_usd_hour: float,
    safety_s: float,
    clusters: FloatArray,
    jobs: FloatArray,
    pairs: FloatArray,
) -> float:
    """Expected USD of a client until it has delivered next, of a server until its application ends.

    Args:
        job: row of the task.
        cluster: where it goes.
        wait_s: after so many seconds without an instance; 0: now, which keeps one that it holds there.
        price_usd_hour: of an executor.
        queue_s: wait in the cluster's queue.
        rate: interruptions per second.
        miss_usd: price of a missed deadline.
        delay_usd_hour: price of an hour until the application ends.
        safety_s: seconds taken off its deadline.
        clusters: (C, N_CLUSTER_FIELDS).
        jobs: (J, N_JOB_FIELDS).
        pairs: (J, C, N_PAIR_FIELDS).
    """
    price = price_usd_hour * float(pairs[job, cluster, col.REQUEST]) / 3600.0
    stays = wait_s == 0.0 and pairs[job, cluster, col.HERE] != 0.0
    launch = float(clusters[cluster, col.LAUNCH_S]) + queue_s
    start = launch + float(pairs[job, cluster, col.TRANSFER_S])
    egress = 0.0 if stays else float(pairs[job, cluster, col.EGRESS_USD])
    if jobs[job, col.IS_SERVER] != 0.0:
        held = start - launch + float(jobs[job, col.DURATION_S])
        interruptions = rate * held
        late = wait_s + start + interruptions * (start + 0.5 * float(jobs[job, col.ROUND_S]))
        usd = egress * (1.0 + interruptions) + price * held
        return usd + late_round_usd(job, late, jobs, miss_usd, delay_usd_hour, safety_s)
    execution = float(pairs[job, cluster, col.EXECUTION_S])
    fresh = fresh_execution_s(job, cluster, jobs, pairs)
    opens = 0.0 if jobs[job, col.OWES] != 0.0 else float(jobs[job, col.ROUND_LEFT_S])
    begins = opens if stays else max(opens, wait_s + start)
    held = begins + (execution if stays else fresh - wait_s - launch)
    finish = begins + (execution if stays else fresh)
    interruptions = rate * held
    undone = start + 0.5 * fresh
    late = max(0.0, finish - needed_s(job, jobs)) + interruptions * undone
    usd = egress + price * (held + interruptions * undone)
    return usd + late_round_usd(job, late, jobs, miss_usd, delay_usd_hour, safety_s)
