"""Metrics of a finished episode of the slice world (Liu 2022, sections 4.3 and 5.4)."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from envs.simulation.series import Ints, StepSeries
from envs.simulation.slices import columns as at
from envs.simulation.slices.config import CHAPTER_4, CHAPTER_5
from envs.simulation.slices.kernel import LONG_AGO, next_extension
from envs.simulation.slices.state import Lanes, Rules, Tables
from envs.simulation.timeline import Segment, Timeline
from envs.simulation.world import WorldSpec

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


# The history of a recorded lane, rebuilt from the start of each execution.


def lane_timeline(lanes: Lanes, tables: Tables, rules: Rules, spec: WorldSpec, lane: int) -> Timeline:
    """What happened in a lane before its present slice (made with `record`)."""
    end = int(lanes.lane[lane, at.TIME])
    segments = sorted(_segments(lanes, tables, lane, end), key=lambda segment: (segment.start, segment.job))
    capacity, used = [], []
    for cluster in range(spec.n_clusters):
        held, held_before = _held(segments, cluster, end)
        used.append(_series(held))
        capacity.append(_series(_capacity(rules, cluster, held, held_before)))
    free_of_charge = StepSeries(np.zeros(1, np.int64), np.zeros(1, np.float64))
    return Timeline(
        cluster_names=spec.cluster_names,
        time_unit=spec.time_unit,
        end=float(end),
        segments=tuple(segments),
        capacity=tuple(capacity),
        used=tuple(used),
        price_usd_hour=(free_of_charge,) * spec.n_clusters,
        misses=tuple(sorted((segment.end, segment.cluster) for segment in segments if segment.missed)),
    )


def _segments(lanes: Lanes, tables: Tables, lane: int, end: int) -> Iterable[Segment]:
    slot = int(lanes.slot[lane])
    for j in range(tables.job.shape[1]):
        job, data = lanes.job[lane, j], tables.job[slot, j]
        if job[at.PHASE] < at.BETWEEN:
            continue
        cluster = int(job[at.CLUSTER])
        pair = tables.pair[slot, j, cluster]
        done, running = int(job[at.DONE]), job[at.PHASE] == at.RUNNING
        previous_end = int(job[at.DEPLOYED_AT])
        for k in range(done + int(running)):
            start = int(lanes.starts[lane, j, k])
            requested = max(int(job[at.DEPLOYED_AT] + k * data[at.PERIOD]), previous_end)
            previous_end = start + int(pair[at.EXECUTION])
            deadline = int(pair[at.DEADLINE])
            column = at.PEAK_REQUEST if tables.uses_peak[slot, j, k] else at.REQUEST
            yield Segment(
                job=j,
                cluster=cluster,
                start=float(start),
                end=float(min(previous_end, end)),
                executors=int(pair[column]),
                category=int(data[at.CATEGORY]),
                missed=k < done and 0 < deadline < previous_end - requested,
            )


def _held(segments: list[Segment], cluster: int, end: int) -> tuple[Ints, Ints]:
    """Executors held on a cluster in each slice, and those of them held from before: two (max(end, 1),)."""
    started = np.zeros(end + 1, np.int64)
    ended = np.zeros(end + 1, np.int64)
    for segment in segments:
        if segment.cluster == cluster:
            started[int(segment.start)] += segment.executors
            ended[int(segment.end)] += segment.executors
    slices = max(end, 1)
    held = np.cumsum(started - ended)[:slices]
    return held, held - started[:slices]


def _capacity(rules: Rules, cluster: int, held: Ints, held_before: Ints) -> Ints:
    """Capacity in effect in each slice: the elasticity controller run over what was held."""
    normal = int(rules.normal[cluster])
    capacity = np.full(len(held), normal, np.int64)
    if not rules.extension_max[cluster]:
        return capacity
    extension, high_at = 0, LONG_AGO
    for time in range(len(held)):
        extension = next_extension(
            extension,
            int(rules.extension_max[cluster]),
            rules.elastic_step,
            int(held_before[time]),
            normal,
            time - high_at,
            rules.elastic_window,
        )
        capacity[time] = normal + extension
        if held[time] / capacity[time] >= rules.elastic_threshold:
            high_at = time
    return capacity


def _series(values: Ints) -> StepSeries:
    times = np.flatnonzero(np.diff(values, prepend=values[0] - 1))
    return StepSeries(times.astype(np.int64), values[times].astype(np.float64))
