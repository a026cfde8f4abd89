"""What an episode of a market world is measured by."""

from __future__ import annotations

import numpy as np

from envs.simulation.market import columns as at
from envs.simulation.market.episodes import Episodes
from envs.simulation.market.ledger import objective
from envs.simulation.market.state import CHARGES_PER_USD, Lanes, Offers, Rules
from envs.simulation.snapshot import Category

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
FEDERATED_METRICS = (
    "rounds_per_application",  # rounds aggregated / applications
    "application_hours",  # mean time from an application's arrival to its end
    "applications_late",  # deadlines of applications missed, and applications that all clients left
    "clients_left",  # clients whose budget could not pay another round
    "idle_usd",  # paid for instances of clients while these waited for others
)
"""Besides METRICS, in a world with federated applications."""

_HIGHER = {"jobs_on_time", "owned_executor_hours", "rounds_per_application"}


def metrics_of(federated: bool) -> tuple[str, ...]:
    """Names of the metrics of a world, the objective first."""
    return METRICS + FEDERATED_METRICS if federated else METRICS


def higher_is_better(names: tuple[str, ...]) -> tuple[bool, ...]:
    """For each metric."""
    return tuple(name in _HIGHER for name in names)


def episode_metrics(
    lanes: Lanes, episodes: Episodes, offers: Offers, rules: Rules, lane: int
) -> dict[str, float]:
    """Metrics of an episode that has ended, keyed by `metrics_of`.

    An application counts as one job where jobs are counted: its server's row.
    """
    slot = lanes.episode_of_lane[lane]
    n = int(lanes.lane[lane, at.LIMIT])
    counters = lanes.counters[lane]
    usd = {
        name: counters[column] / CHARGES_PER_USD
        for name, column in (
            ("on_demand_usd", at.ON_DEMAND_CHARGES),
            ("spot_usd", at.SPOT_CHARGES),
            ("egress_usd", at.EGRESS_CHARGES),
            ("disk_usd", at.DISK_CHARGES),
        )
    }
    # Delay is response - standard time, of a streaming job the mean over its batches.
    own = episodes.job[slot, :n, at.SERVER] == np.arange(n)
    servers = np.flatnonzero(own & (episodes.job[slot, :n, at.CATEGORY] == Category.FEDERATED))
    standard = episodes.job[slot, :n, at.STANDARD_S].copy()
    standard[servers] = episodes.job[slot, servers, at.WHOLE_S]
    ratios = (1.0 + lanes.job_real[lane, :n, at.DELAY] * 3600.0 / standard)[own]
    complete = lanes.job[lane, :n, at.EXECUTED] == episodes.job[slot, :n, at.EXECUTIONS]
    complete = (complete | (lanes.job[lane, :n, at.LEFT] == 1))[own]
    response_p95, response_p99 = np.percentile(ratios, [95, 99])
    result = {
        "cost_usd_eq": objective(lanes, episodes, offers, rules, lane),
        "money_usd": sum(usd.values()),
        "misses": float(counters[at.MISSES_TC] + counters[at.MISSES_BATCHES]),
        "miss_tc": float(counters[at.MISSES_TC]),
        "miss_batches": float(counters[at.MISSES_BATCHES]),
        "delay_hours": float(lanes.lane_real[lane, at.DELAY_CLOSED]),
        "interruptions": float(counters[at.INTERRUPTIONS]),
        "launch_failures": float(counters[at.LAUNCH_FAILURES]),
        **usd,
        "owned_executor_hours": counters[at.OWNED_EXECUTOR_S] / 3600.0,
        "wasted_hours": counters[at.LOST_EXECUTOR_S] / 3600.0,
        "response_p95": float(response_p95),
        "response_p99": float(response_p99),
        "jobs_on_time": float((lanes.job[lane, :n, at.MISSES] == 0)[own].mean()),
        "unfinished": float((~complete).sum()),
        "decisions": float(lanes.lane[lane, at.DECISIONS]),
    }
    if rules.federated == 1:
        applications = max(1, len(servers))
        hours = lanes.job[lane, servers, at.FINISH_S] - episodes.job[slot, servers, at.ARRIVAL_S]
        result |= {
            "rounds_per_application": counters[at.ROUNDS] / applications,
            "application_hours": hours.sum() / 3600.0 / applications,
            "applications_late": lanes.job[lane, servers, at.MISSES].sum(),
            "clients_left": counters[at.CLIENTS_LEFT],
            "idle_usd": counters[at.IDLE_CHARGES] / CHARGES_PER_USD,
        }
    return {name: float(result[name]) for name in metrics_of(rules.federated == 1)}
