"""The history of a recorded lane, rebuilt from the start of each execution."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from envs.simulation.series import StepSeries
from envs.simulation.slices import columns as at
from envs.simulation.slices.kernel import LONG_AGO, next_extension
from envs.simulation.slices.state import Lanes, Rules, Tables
from envs.simulation.timeline import Segment, Timeline
from envs.simulation.world import WorldSpec


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


def _held(segments: list[Segment], cluster: int, end: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
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


def _capacity(
    rules: Rules, cluster: int, held: NDArray[np.int64], held_before: NDArray[np.int64]
) -> NDArray[np.int64]:
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


def _series(values: NDArray[np.int64]) -> StepSeries:
    times = np.flatnonzero(np.diff(values, prepend=values[0] - 1))
    return StepSeries(times.astype(np.int64), values[times].astype(np.float64))
