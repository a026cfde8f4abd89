"""What an episode of a market world is measured by."""

from __future__ import annotations

import numpy as np

from envs.simulation.market import columns as at
from envs.simulation.market.episodes import Episodes
from envs.simulation.market.ledger import objective
from envs.simulation.market.state import CHARGES_PER_USD, Counter, Lanes, Offers, Rules

METRICS = (
    "cost_usd_eq",  # the objective: USD + misses, late batches and delay in USD
    "money_usd",
    "misses",
    "miss_tc",
    "miss_batches",
    "delay_hours",
    "interruptions",
    "launch_failures",
    "on_demand_usd",
    "spot_usd",
    "egress_usd",
    "disk_usd",
    "owned_executor_hours",
    "wasted_hours",  # executor-hours of work that was lost
    "response_p95",  # response / standard time; streaming: mean over batches
    "response_p99",
    "jobs_on_time",  # share of jobs without a missed deadline
    "unfinished",  # jobs cut off by a truncation
    "decisions",
)
_HIGHER = {"jobs_on_time", "owned_executor_hours"}
HIGHER_IS_BETTER = tuple(name in _HIGHER for name in METRICS)


def episode_metrics(
    lanes: Lanes, episodes: Episodes, offers: Offers, rules: Rules, lane: int
) -> dict[str, float]:
    """Metrics of an episode that has ended, keyed by METRICS."""
    slot = lanes.episode_of_lane[lane]
    n = int(lanes.lane[lane, at.LIMIT])
    counters = lanes.counters[lane]
    usd = {
        name: counters[column] / CHARGES_PER_USD
        for name, column in (
            ("on_demand_usd", Counter.ON_DEMAND),
            ("spot_usd", Counter.SPOT),
            ("egress_usd", Counter.EGRESS),
            ("disk_usd", Counter.DISK),
        )
    }
    # Delay is response - standard time, of a streaming job the mean over its batches.
    ratios = 1.0 + lanes.job_real[lane, :n, at.DELAY] * 3600.0 / episodes.job[slot, :n, at.STANDARD_S]
    complete = lanes.job[lane, :n, at.EXECUTED] == episodes.job[slot, :n, at.EXECUTIONS]
    response_p95, response_p99 = np.percentile(ratios, [95, 99])
    result = {
        "cost_usd_eq": objective(lanes, episodes, offers, rules, lane),
        "money_usd": sum(usd.values()),
        "misses": float(counters[Counter.MISSES_TC] + counters[Counter.MISSES_BATCHES]),
        "miss_tc": float(counters[Counter.MISSES_TC]),
        "miss_batches": float(counters[Counter.MISSES_BATCHES]),
        "delay_hours": float(lanes.lane_real[lane, at.DELAY_CLOSED]),
        "interruptions": float(counters[Counter.INTERRUPTIONS]),
        "launch_failures": float(counters[Counter.LAUNCH_FAILURES]),
        **usd,
        "owned_executor_hours": counters[Counter.OWNED_EXECUTOR_S] / 3600.0,
        "wasted_hours": counters[Counter.LOST_EXECUTOR_S] / 3600.0,
        "response_p95": float(response_p95),
        "response_p99": float(response_p99),
        "jobs_on_time": float((lanes.job[lane, :n, at.MISSES] == 0).mean()),
        "unfinished": float((~complete).sum()),
        "decisions": float(lanes.lane[lane, at.DECISIONS]),
    }
    return {name: float(result[name]) for name in METRICS}
