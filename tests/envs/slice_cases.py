"""Small slice worlds with jobs written by hand, for tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from spotweave.envs.simulation.slices.config import SliceWorldConfig, ValueConfig, WorkloadConfig
from spotweave.envs.simulation.slices.workload import Workload
from spotweave.envs.simulation.slices.world import SliceWorld
from spotweave.envs.simulation.snapshot import Category
from tests.envs.checks import answer, valid


@dataclass(frozen=True)
class Job:
    """One job; `execution` and `deadline` are the same on every cluster."""

    request: int
    execution: int
    deadline: int = 0
    arrival: int = 0
    standard: int = 0  # 0: as long as the execution
    executions: int = 1
    period: int = 0
    peak: int = 0
    peaks: tuple[bool, ...] = ()
    hetero: int = 100


def small_config(
    n_jobs: int,
    capacities: Sequence[int] = (100,),
    elastic: bool = False,
    factor: float = 100.0,
    allow_none: bool = False,
    strict_fifo: bool = False,
    value: ValueConfig | None = None,
) -> SliceWorldConfig:
    """Clusters of about 100 executors for jobs written by hand."""
    n = len(capacities)
    return SliceWorldConfig(
        capacities=list(capacities),
        hetero_factors=[factor] * n,
        elastic=[elastic] * n,
        elastic_step=20,
        elastic_max=40,
        elastic_window=5,
        n_jobs=n_jobs,
        window=4,
        allow_none=allow_none,
        strict_fifo=strict_fifo,
        workload=WorkloadConfig(request=[1, 50], streaming_request=[1, 40], executions=[1, 4]),
        value=value or ValueConfig(),
    )


def make_workload(jobs: Sequence[Job], n_clusters: int = 1) -> Workload:
    """The workload of jobs sorted by arrival."""

    def column(values: Sequence[int]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        return np.array(values, np.int64)

    def pairs(values: Sequence[int]) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
        return np.repeat(np.array(values, np.int64)[:, None], n_clusters, axis=1)

    def category(job: Job) -> Category:
        if job.period:
            return Category.STREAMING
        return Category.TIME_CRITICAL if job.deadline else Category.GENERAL

    uses_peak = np.zeros((len(jobs), 4), np.bool_)
    for row, job in enumerate(jobs):
        uses_peak[row, : len(job.peaks)] = job.peaks
    return Workload(
        arrival=column([job.arrival for job in jobs]),
        category=column([category(job) for job in jobs]),
        standard=column([job.standard or job.execution for job in jobs]),
        executions=column([job.executions for job in jobs]),
        period=column([job.period for job in jobs]),
        peak_slots=column([2 if any(job.peaks) else 0 for job in jobs]),
        sensitivity=column([1] * len(jobs)),
        expected_hetero=column([job.hetero for job in jobs]),
        request=pairs([job.request for job in jobs]),
        peak_request=pairs([job.peak or job.request for job in jobs]),
        execution=pairs([job.execution for job in jobs]),
        deadline=pairs([job.deadline for job in jobs]),
        uses_peak=uses_peak,
    )


def start(config: SliceWorldConfig, jobs: Sequence[Job]) -> SliceWorld:
    """A recording world at the first decision of these jobs."""
    world = SliceWorld(config, record=True)
    world.load(make_workload(jobs, len(config.capacities)))
    return world


def play_first(world: SliceWorld) -> list[float]:
    """Put the oldest job on the first cluster until the end: the rewards."""
    rewards = []
    while valid(world):
        rewards.append(answer(world, 0)[0])
    return rewards


def played(*jobs: Job, **options: Any) -> SliceWorld:
    """A world in which every job went to the first cluster, to the end."""
    world = start(small_config(len(jobs), **options), jobs)
    play_first(world)
    return world


def executions(world: SliceWorld) -> list[tuple[int, int, int]]:
    """(job, start, end) of every execution so far, by start."""
    return [(segment.job, int(segment.start), int(segment.end)) for segment in world.timeline().segments]
