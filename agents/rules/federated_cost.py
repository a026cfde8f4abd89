"""Expected cost of the choices of a task of a federated application, for the rule "expected cost".

Keeping an idle instance costs its price until the next round, releasing it the set-up and the cold first
epoch of another one, to be started as late as is safe (FedCostAware, Sinha 2025, section III-B). Being late
costs what the whole application holds meanwhile.
"""

from __future__ import annotations

from agents.rules.compiled import compiled
from agents.rules.lateness import late_round_usd
from envs.simulation import columns as col
from envs.simulation.snapshot import ObservationArrays

_SOON_S = 15.0
"""A client without an instance that has delivered is asked again after this at the earliest."""


@compiled
def needed_s(obs: ObservationArrays, job: int) -> float:
    """Seconds until all others are expected to have delivered in the round that the client works for next."""
    left = float(obs.jobs[job, col.ROUND_LEFT_S])
    return left if obs.jobs[job, col.OWES] != 0.0 else left + float(obs.jobs[job, col.ROUND_S])


@compiled
def fresh_execution_s(obs: ObservationArrays, job: int, cluster: int) -> float:
    """Seconds of the next epoch on an instance of the cluster that is yet to be launched."""
    execution = float(obs.pairs[job, cluster, col.EXECUTION_S])
    return (
        execution + float(obs.jobs[job, col.COLD_S])
        if obs.pairs[job, cluster, col.HERE] != 0.0
        else execution
    )


@compiled
def later_s(obs: ObservationArrays, job: int, cluster: int, again_s: float, safety_s: float) -> float:
    """When a task that is told "none" would go to the cluster: as late as is safe.

    Args:
        obs: one observation.
        job: row of the task.
        cluster: where.
        again_s: seconds until it is asked again if that is too late already.
        safety_s: seconds to be early.
    """
    if obs.jobs[job, col.IS_SERVER] != 0.0:
        return again_s
    start = float(obs.clusters[cluster, col.LAUNCH_S] + obs.pairs[job, cluster, col.TRANSFER_S])
    spare = needed_s(obs, job) - safety_s - start - fresh_execution_s(obs, job, cluster)
    if spare > 0.0:
        return max(_SOON_S, spare)
    return again_s if obs.jobs[job, col.OWES] != 0.0 else _SOON_S


@compiled
def task_usd(
    obs: ObservationArrays,
    job: int,
    cluster: int,
    wait_s: float,
    price_usd_hour: float,
    queue_s: float,
    rate: float,
    miss_usd: float,
    delay_usd_hour: float,
    safety_s: float,
) -> float:
    """Expected USD of a client until it has delivered next, of a server until its application ends.

    Args:
        obs: one observation.
        job: row of the task.
        cluster: where it goes.
        wait_s: after so many seconds without an instance; 0: now, which keeps one that it holds there.
        price_usd_hour: of an executor.
        queue_s: wait in the cluster's queue.
        rate: interruptions per second.
        miss_usd: price of a missed deadline.
        delay_usd_hour: price of an hour until the application ends.
        safety_s: seconds taken off its deadline.
    """
    price = price_usd_hour * float(obs.pairs[job, cluster, col.REQUEST]) / 3600.0
    stays = wait_s == 0.0 and obs.pairs[job, cluster, col.HERE] != 0.0
    launch = float(obs.clusters[cluster, col.LAUNCH_S]) + queue_s
    start = launch + float(obs.pairs[job, cluster, col.TRANSFER_S])
    egress = 0.0 if stays else float(obs.pairs[job, cluster, col.EGRESS_USD])
    if obs.jobs[job, col.IS_SERVER] != 0.0:
        held = start - launch + float(obs.jobs[job, col.DURATION_S])
        interruptions = rate * held
        late = wait_s + start + interruptions * (start + 0.5 * float(obs.jobs[job, col.ROUND_S]))
        usd = egress * (1.0 + interruptions) + price * held
        return usd + late_round_usd(obs, job, late, miss_usd, delay_usd_hour, safety_s)
    execution = float(obs.pairs[job, cluster, col.EXECUTION_S])
    fresh = fresh_execution_s(obs, job, cluster)
    opens = 0.0 if obs.jobs[job, col.OWES] != 0.0 else float(obs.jobs[job, col.ROUND_LEFT_S])
    begins = opens if stays else max(opens, wait_s + start)
    held = begins + (execution if stays else fresh - wait_s - launch)
    finish = begins + (execution if stays else fresh)
    interruptions = rate * held
    undone = start + 0.5 * fresh
    late = max(0.0, finish - needed_s(obs, job)) + interruptions * undone
    usd = egress + price * (held + interruptions * undone)
    return usd + late_round_usd(obs, job, late, miss_usd, delay_usd_hour, safety_s)
