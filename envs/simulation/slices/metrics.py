"""Metrics of a finished episode of the slice world (Liu 2022, sections 4.3 and 5.4)."""

from __future__ import annotations

import math

import numpy as np

from envs.simulation.slices import columns as at
from envs.simulation.slices.config import CHAPTER_4, CHAPTER_5
from envs.simulation.slices.state import Lanes, Tables

_COMMON = ("job_ratio_p95", "job_ratio_p99", "misses_unqueued", "misses_queued", "makespan")
METRICS = {
    CHAPTER_5: ("s", "tmdl", "ajer", "s_log", "ajdr", "eval_app", *_COMMON),
    CHAPTER_4: ("weighted_cost", "tmdl", "ajdr", "eval_app", *_COMMON),
}
"""Names in display order by `ValueConfig.kind`; the first is the objective."""
HIGHER_IS_BETTER = frozenset({"s", "s_log", "eval_app"})

LEAST_COST = 0.02
"""`eval_app` takes a weighted cost of 0 to this as this: one missed deadline. A perfect episode scores 50."""


def episode_metrics(lanes: Lanes, tables: Tables, lane: int) -> dict[str, float]:
    """Metrics of the episode that ended in a lane, those of both chapters.

    - s: S = -tmdl + 50 (100 - ajer), the objective of section 5.4.
    - tmdl: missed deadlines.
    - ajer: 100 * mean over jobs of the mean AR / SR.
    - s_log: sign(S) log10(max(|S|, 1)).
    - ajdr: eq. 4.8 with the standard execution time as OR.
    - weighted_cost: 0.02 tmdl + ajdr, the objective of chapter 4.
    - eval_app: eq. 4.9, 1 / weighted_cost, at most 50 (see `LEAST_COST`). Meant for chapter 4, where
      ajdr >= 0: on faster executors than expected it can be negative.
    - job_ratio_p95, job_ratio_p99: percentiles over jobs of the mean AR / SR.
    - misses_unqueued: misses whose execution started when requested (M of section 5.3).
    - misses_queued: misses whose execution had waited (W).
    - makespan: slice in which the last job ended.
    """
    n_jobs = int(lanes.lane[lane, at.LIMIT])
    job = lanes.job[lane, :n_jobs].astype(np.int64)
    data = tables.job[lanes.slot[lane], :n_jobs].astype(np.int64)
    ratios = job[:, at.ACTUAL] / (data[:, at.STANDARD] * data[:, at.EXECUTIONS])
    unqueued = int(job[:, at.MISSED_UNQUEUED].sum())
    queued = int(job[:, at.MISSED_QUEUED].sum())
    mean_ratio = math.fsum(ratios.tolist()) / len(ratios)
    return summarise(ratios.tolist(), mean_ratio, unqueued, queued, int(lanes.lane[lane, at.TIME]))


def summarise(
    ratios: list[float], mean_ratio: float, unqueued: int, queued: int, makespan: int
) -> dict[str, float]:
    """The metrics by name, from each job's mean AR / SR, the misses of both kinds and the makespan."""
    tmdl = unqueued + queued
    ajer = 100.0 * mean_ratio
    ajdr = ajer - 100.0
    score = -tmdl + 50.0 * (100.0 - ajer)
    cost = 0.02 * tmdl + ajdr
    p95, p99 = np.percentile(ratios, [95, 99])
    return {
        "s": score,
        "tmdl": float(tmdl),
        "ajer": ajer,
        "s_log": math.copysign(math.log10(max(abs(score), 1.0)), score),
        "ajdr": ajdr,
        "weighted_cost": cost,
        "eval_app": 1.0 / (max(cost, LEAST_COST) if cost >= 0.0 else cost),
        "job_ratio_p95": float(p95),
        "job_ratio_p99": float(p99),
        "misses_unqueued": float(unqueued),
        "misses_queued": float(queued),
        "makespan": float(makespan),
    }
