"""What being late costs where one deadline is not all: batches of a stream, rounds of an application."""

from __future__ import annotations

from agents.rules.compiled import compiled
from envs.simulation import columns as col
from envs.simulation.snapshot import ObservationArrays


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
def late_round_usd(
    obs: ObservationArrays, job: int, late_s: float, miss_usd: float, delay_usd_hour: float, safety_s: float
) -> float:
    """What it costs that a task lets its application's round end `late_s` later.

    All that the application holds is paid for meanwhile. Of the time to spare until its deadline every second
    lost makes a miss likelier; once the deadline has passed nothing does.
    """
    if late_s <= 0.0:
        return 0.0
    usd = late_s * (obs.jobs[job, col.OTHERS_USD_HOUR] + delay_usd_hour) / 3600.0
    if obs.jobs[job, col.HAS_DEADLINE] != 0.0 and obs.jobs[job, col.SLACK_S] > 0.0:
        spare = max(1.0, float(obs.jobs[job, col.SLACK_S] - obs.jobs[job, col.DURATION_S] - safety_s))
        usd += miss_usd * min(1.0, late_s / spare)
    return float(usd)
