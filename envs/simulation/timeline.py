"""What happened in an episode, for drawing: who ran where and when, on how much capacity, at what price."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from spotweave.envs.simulation.series import StepSeries


@dataclass(frozen=True)
class Segment:
    """One execution (or one stretch of work) of a job on a cluster, [start, end)."""

    job: int  # job number
    cluster: int  # 0-based cluster
    start: float  # first time it held its executors
    end: float  # when it released them (or now, if it still runs)
    executors: int  # how many
    category: int  # `Category` of the job
    missed: bool  # whether it ended after its deadline


@dataclass(frozen=True)
class Timeline:
    """An episode up to `end`. Times in `time_unit`."""

    cluster_names: tuple[str, ...]  # C names
    time_unit: str  # "slice" or "s"
    end: float  # time up to which everything is known
    segments: tuple[Segment, ...]  # by start
    capacity: tuple[StepSeries, ...]  # per cluster, executors in effect over time
    used: tuple[StepSeries, ...]  # per cluster, executors held over time
    # per cluster, price per executor over time (constant 0 on owned clusters)
    price_usd_hour: tuple[StepSeries, ...]
    misses: tuple[tuple[float, int], ...] = field(default=())  # (time, cluster) of each missed deadline
    # (time, cluster) of each interruption by the provider
    interruptions: tuple[tuple[float, int], ...] = field(default=())


def constant(value: float) -> StepSeries:
    """A series that never changes."""
    return StepSeries(np.zeros(1, np.int64), np.full(1, float(value)))


def held(spans: Iterable[tuple[float, float, int]]) -> StepSeries:
    """How many are held over time, whole units of it, from (start, end, how many)."""
    changes: dict[int, int] = {0: 0}
    for start, end, number in spans:
        for time, change in ((int(start), number), (int(end), -number)):
            changes[time] = changes.get(time, 0) + change
    times = sorted(changes)
    return StepSeries(np.array(times, np.int64), np.cumsum([changes[time] for time in times]).astype(float))


def used(segments: Iterable[Segment], clusters: int) -> tuple[StepSeries, ...]:
    """Per cluster, executors that the segments hold over time."""
    spans: list[list[tuple[float, float, int]]] = [[] for _ in range(clusters)]
    for one in segments:
        spans[one.cluster].append((one.start, one.end, one.executors))
    return tuple(map(held, spans))
