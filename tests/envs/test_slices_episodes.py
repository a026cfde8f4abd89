"""Episodes of the slice world and its forecast worked out by hand, one per mechanism."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from spotweave.envs.simulation import columns as col
from spotweave.envs.simulation.slices.config import SliceWorldConfig, ValueConfig, WorkloadConfig
from spotweave.envs.simulation.slices.observe import RESERVE, SOON
from spotweave.envs.simulation.slices.workload import Workload
from spotweave.envs.simulation.slices.world import SliceWorld
from spotweave.envs.simulation.snapshot import Category
from tests.envs.checks import answer, check, valid


@dataclasses.dataclass(frozen=True)
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


def values(world: SliceWorld, job: int) -> list[float]:
    return [float(v) for v in world.values(0, np.array([job]), world.marks())[0]]


def test_waiting_causes_a_queued_miss() -> None:
    # Slice 0: A starts (0-10). Slice 1: B is requested, 60 + 60 > 100, so it runs 10-20: AR = 19 > 14.
    world = start(small_config(2), [Job(60, 10), Job(60, 10, deadline=14)])
    rewards = play_first(world)
    assert executions(world) == [(0, 0, 10), (1, 10, 20)]
    # S = -1 + 50 (100 - 145): the ratios are 1.0 and 1.9; both jobs end after the second decision.
    assert rewards == pytest.approx([0.0, -2251.0])
    check(world.metrics(0), tmdl=1, misses_queued=1, misses_unqueued=0, ajer=145.0, ajdr=45.0, makespan=20)
    check(world.metrics(0), s=-2251.0, s_log=-3.3523755, eval_app=1 / 45.02)
    # B: initial competition, so 1.5; one miss of its own, nobody came later; R = 0.9.
    assert values(world, 1) == pytest.approx([-1.5, -1.5, -1.35])
    # A left in slice 10, before the miss.
    assert values(world, 0) == pytest.approx([0.0, 0.0, 0.0])
    assert world.timeline().misses == ((20.0, 0),)


def test_improper_heterogeneity_is_a_miss_without_waiting() -> None:
    # 12 slices there against a deadline of 11; standard 10. Factor 80 for an expected 100.
    world = start(small_config(1, factor=80.0), [Job(60, 12, deadline=11, standard=10)])
    assert play_first(world) == pytest.approx([-1.0 + 5000 * (1 - 1.2)])
    assert world.metrics(0)["misses_unqueued"] == 1
    # v1 = -80/100 * 1.5 * M; v3 = -1.5 * 0.2.
    assert values(world, 0) == pytest.approx([-1.2, 0.0, -0.3])


def test_improper_heterogeneity_of_a_fast_execution_shrinks_the_gain() -> None:
    # R = -0.1 <= 0 with an event: psi = 1 / 1.5.
    world = played(Job(60, 9, deadline=8, standard=10))
    assert values(world, 0) == pytest.approx([-1.5, 0.0, 0.1 / 1.5])


def test_misses_decay_with_every_job_deployed_later() -> None:
    # X fills the cluster (0-20). A (slice 1), B (2), C (3) wait and start together in 20, end in 25.
    # A's AR = 24 > 10: one queued miss, seen by A after two later jobs, by B after one, by C after none.
    world = played(Job(100, 20), Job(50, 5, deadline=10), Job(10, 5), Job(10, 5))
    assert executions(world)[1:] == [(1, 20, 25), (2, 20, 25), (3, 20, 25)]
    assert values(world, 0) == pytest.approx([0.0, 0.0, 0.0])
    assert values(world, 1) == pytest.approx([-1.5 * 0.9025, -1.5 * 0.9025, -1.5 * 3.8])
    assert values(world, 2) == pytest.approx([0.0, -1.5 * 0.95, -1.5 * (23 / 5 - 1)])
    assert values(world, 3) == pytest.approx([0.0, -1.5, -1.5 * (22 / 5 - 1)])


def test_chapter_4_values_count_misses_anywhere() -> None:
    jobs = [Job(100, 20), Job(50, 5, deadline=10), Job(10, 5), Job(10, 40)]
    value = ValueConfig(kind="chapter4", lam=1.0, gamma=0.02, eta=0.1)
    world = start(small_config(4, capacities=(100, 100), value=value), jobs)
    answer(world, 0, 0, 0, 1)
    # Eq. 4.1: the one miss is A's own and also one after its deployment; AR / OR = 24 / 5.
    assert values(world, 1) == pytest.approx([-1.0, -0.02, -0.48])
    # Eq. 4.2: B ended in the slice of the miss, D on the other cluster later; X before it.
    assert values(world, 2) == pytest.approx([0.0, -0.02, -0.1 * 23 / 5])
    assert values(world, 3) == pytest.approx([0.0, -0.02, -0.1])
    assert values(world, 0) == pytest.approx([0.0, 0.0, -0.1])
    assert world.spec.weights == (1.0, 1.0, 1.0)


def test_elasticity_goes_up_at_once_and_down_after_the_window() -> None:
    # Occupation 0.95 in slice 0 only: +20 in slices 1 and 2, kept while slice 0 lies within the latest 5
    # slices (through slice 5), then -20 in slices 6 and 7.
    world = played(Job(95, 3), Job(1, 1, arrival=12), elastic=True)
    capacity = world.timeline().capacity[0]
    assert capacity.times_s.tolist() == [0, 1, 2, 6, 7]
    assert capacity.values.tolist() == [100.0, 120.0, 140.0, 120.0, 100.0]


def test_waiting_by_choice_lets_one_slice_pass() -> None:
    world = start(small_config(1, allow_none=True), [Job(10, 5, deadline=5)])
    assert world.observation["action_mask"][0].tolist() == [1, 1, 0, 0, 0, 0, 0, 0]
    assert (answer(world, 1), world.decided_jobs()[0]) == ((0.0, False), 0)
    assert world.observation["jobs"][0, 0, col.WAITED_S] == 1.0
    play_first(world)
    assert executions(world) == [(0, 1, 6)]


def test_an_episode_without_further_arrivals_ends_earlier() -> None:
    jobs = [Job(60, 10), Job(60, 10, deadline=14), Job(20, 5, arrival=4)]
    world = start(small_config(3), jobs)
    answer(world, 0)
    world.limit_arrivals(np.array([0]), 0)
    # There is no third job, so the episode ends with B in slice 20.
    reward, done = answer(world, 0)
    assert done
    assert (world.metrics(0)["makespan"], world.metrics(0)["tmdl"]) == (20, 1)
    assert reward == pytest.approx(-1 + 5000 / 3 * (0.0 - 0.9))


STREAM = Job(
    request=20, execution=4, deadline=6, executions=3, period=10, peak=40, peaks=(False, True, False)
)
"""Of ten slots two hold the peak: a coming batch counts 20 + 0.2 * (40 - 20) = 24 executors."""


def after_the_first(first: Job, second: Job) -> SliceWorld:
    """The decision about the second of two jobs; the first runs on cluster 0 of two equal ones."""
    config = dataclasses.replace(small_config(2, (100, 100)), forecast=True)
    world = SliceWorld(config)
    world.load(make_workload([first, second], 2))
    world.step(np.array([0]))
    return world


def ahead(world: SliceWorld) -> list[float]:
    return [float(value) for value in world.observation["clusters"][0, :, col.FREE_AHEAD]]


def short(world: SliceWorld) -> list[float]:
    return [float(value) for value in world.observation["pairs"][0, 0, :, col.SHORTAGE]]


def test_batches_that_are_due_count_with_their_mean_request() -> None:
    # In slice 1: 3 slices of the first batch (20), then 4 from slice 10 and 4 from slice 20 on (24 each).
    world = after_the_first(STREAM, Job(10, 5, arrival=1))
    assert ahead(world) == pytest.approx([100 - (3 * 20 + 8 * 24) / SOON, 100])


def test_a_job_lacks_what_is_held_above_what_is_not_kept_for_others() -> None:
    # Of 100 executors some are kept. The first job holds 60 for 10 slices more, the second wants 50 for 20.
    lacking = 60 + 50 - 100 * (1 - RESERVE)
    world = after_the_first(Job(60, 11), Job(50, 20, arrival=1))
    assert short(world) == pytest.approx([lacking * 10 / 20, 0])
    # No more than the request lacks.
    assert short(after_the_first(Job(99, 21), Job(10, 20, arrival=1))) == pytest.approx([10, 0])


def test_a_stream_lacks_executors_only_in_its_batches() -> None:
    # The first job holds 90 for 30 slices more: all three batches of 4 slices, which start in 1, 11 and 21.
    lacking = min(90 + 24 - 100 * (1 - RESERVE), 24)
    world = after_the_first(Job(90, 31), dataclasses.replace(STREAM, arrival=1))
    assert short(world) == pytest.approx([lacking, 0])
    # For 10 slices more: the first batch of three.
    world = after_the_first(Job(90, 11), dataclasses.replace(STREAM, arrival=1))
    assert short(world) == pytest.approx([lacking / 3, 0])
