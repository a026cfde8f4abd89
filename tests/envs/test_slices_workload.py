"""Arrival patterns, job parameters, and what a user is told about wrong ones."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from envs.simulation.arrivals import ArrivalConfig, draw_arrivals, draw_intervals
from envs.simulation.slices.config import SliceWorldConfig, ValueConfig, WorkloadConfig, chapter4
from envs.simulation.slices.workload import draw_jobs, draw_workload, longest_delay
from envs.simulation.slices.world import SliceWorld
from envs.simulation.snapshot import Category
from envs.simulation.world import EpisodeKey, WorldError
from tests.envs.slice_cases import Job, make_workload, small_config

KEY = EpisodeKey(11, "train", 0)


def intervals(config: ArrivalConfig, n: int = 20_000) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return draw_intervals(config, n, np.random.default_rng(1))


def test_uniform_intervals() -> None:
    drawn = intervals(ArrivalConfig(pattern="uniform", a=1, b=33))
    assert (drawn.min(), drawn.max()) == (1, 33)
    # Mean 17, variance (33^2 - 1) / 12 = 90.67: standard error 0.067.
    assert drawn.mean() == pytest.approx(17.0, abs=0.27)


def test_bernoulli_intervals_are_geometric() -> None:
    drawn = intervals(ArrivalConfig(pattern="bernoulli", p=0.08))
    assert drawn.min() == 1
    # P(1) = 0.08, mean 12.5.
    assert (drawn == 1).mean() == pytest.approx(0.08, abs=0.008)
    assert drawn.mean() == pytest.approx(12.5, abs=0.35)


def test_beta_intervals_follow_eq_4_5() -> None:
    drawn = intervals(ArrivalConfig(pattern="beta"))
    assert drawn.min() >= 1
    assert drawn.max() <= 30
    # The distribution function of Beta(4, 2) is 5 x^4 - 4 x^5: P(i <= 15) = 0.1875, P(i <= 24) = 0.73728.
    assert (drawn <= 15).mean() == pytest.approx(0.1875, abs=0.012)
    assert (drawn <= 24).mean() == pytest.approx(0.73728, abs=0.013)


def test_poisson_arrivals_keep_their_rate() -> None:
    drawn = intervals(ArrivalConfig(pattern="poisson", rate=0.5))
    assert drawn.min() == 0
    assert drawn.mean() == pytest.approx(2.0, abs=0.06)


def test_groups_have_the_rounded_normal_size() -> None:
    arrival = draw_arrivals(ArrivalConfig(), 30_000, np.random.default_rng(2))
    _, sizes = np.unique(arrival, return_counts=True)
    sizes = sizes[:-1]
    assert sizes.min() == 1
    # max(round(N(3, 1)), 1): P(1) = Phi(-1.5) = 0.0668, P(3) = 0.3829.
    assert (sizes == 1).mean() == pytest.approx(0.0668, abs=0.01)
    assert (sizes == 3).mean() == pytest.approx(0.3829, abs=0.016)


def test_a_trace_gives_every_job_its_time() -> None:
    config = ArrivalConfig(pattern="trace", times=[0, 0, 5, 9])
    assert draw_arrivals(config, 3, np.random.default_rng(0)).tolist() == [0, 0, 5]


@pytest.mark.parametrize(("pattern", "most"), [("uniform", 11), ("bernoulli", 10), ("beta", 7)])
def test_every_job_that_waits_is_among_the_16_that_are_shown(pattern: str, most: int) -> None:
    longest = 0
    for seed in range(300):
        arrival = draw_arrivals(ArrivalConfig(pattern=pattern), 1000, np.random.default_rng(seed))
        # One decision a slice, whoever decides, and none may let a slice pass.
        decided = np.maximum.accumulate(arrival - np.arange(1000)) + np.arange(1000)
        waiting = np.searchsorted(arrival, decided, side="right") - np.arange(1000)
        longest = max(longest, int(waiting.max()))
    assert longest == most < SliceWorldConfig().window


def test_an_episode_of_a_trace_runs() -> None:
    workload = WorkloadConfig(arrivals=ArrivalConfig(pattern="trace", times=[3, 3, 40]))
    world = SliceWorld(SliceWorldConfig(n_jobs=3, workload=workload))
    world.reset([KEY])
    assert world.observation["jobs"][0, :3, 0].tolist() == [1.0, 1.0, 0.0]


def test_jobs_have_the_documented_distributions() -> None:
    config = SliceWorldConfig(n_jobs=20_000)
    w = draw_jobs(config, np.arange(20_000), np.random.default_rng(3))
    streaming, general = w.category == Category.STREAMING, w.category == Category.GENERAL
    assert general.mean() == pytest.approx(0.5, abs=0.012)
    assert streaming.mean() == pytest.approx(0.25, abs=0.011)
    assert (w.executions[~streaming] == 1).all()
    assert (w.executions[streaming].min(), w.executions[streaming].max()) == (10, 34)
    assert (w.standard[~streaming].min(), w.standard[~streaming].max()) == (35, 140)
    assert (w.standard[streaming].min(), w.standard[streaming].max()) == (20, 65)
    assert (w.period[~streaming] == 0).all()
    ratio = w.period[streaming] / w.standard[streaming]
    assert ratio.min() >= 1.5 - 0.5 / 20
    assert ratio.max() <= 2.0 + 0.5 / 20
    # min(Binomial(10, 0.2), 4): mean 2 - sum over k > 4 of (k - 4) p_k = 1.9600.
    assert w.peak_slots[streaming].mean() == pytest.approx(1.960, abs=0.06)
    assert w.uses_peak[streaming].mean() == pytest.approx(0.196, abs=0.006)
    assert not w.uses_peak[~streaming].any()
    assert (w.deadline[general] == 0).all()
    allowed = w.deadline[~general] / w.standard[~general, None]
    assert allowed.min() > 1.10 - 0.01 - 1 / 20
    assert allowed.max() <= 1.42
    assert (w.peak_request >= w.request).all()
    assert max(w.execution.max(), w.period.max()) <= longest_delay(config)


def test_execution_time_follows_the_sensitivity() -> None:
    # h = 80, sen = 1: factors count within [70, 90]. 100 slices: 100 * 80 / (70, 70, 90, 80, 90), rounded up.
    workload = WorkloadConfig(
        streaming=0.0,
        time_critical=0.5,
        standard=[100.0, 100.0],
        expected_hetero=[80, 80],
        sensitivity=[1, 1],
    )
    w = draw_jobs(SliceWorldConfig(workload=workload), np.zeros(1, np.int64), np.random.default_rng(0))
    assert w.execution[0].tolist() == [115, 115, 89, 100, 89]


def test_chapter_4_takes_the_standard_time_everywhere() -> None:
    config = chapter4()
    w = draw_workload(config, KEY)
    assert w.n_jobs == 500
    np.testing.assert_array_equal(w.execution, np.repeat(w.standard[:, None], 5, axis=1))


MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"n_jobs": 0}, "the workload is empty"),
    ({"capacities": [800]}, "one entry per cluster"),
    ({"hetero_factors": [0.0, 60.0, 100.0, 80.0, 90.0]}, "hetero_factors > 0"),
    ({"capacities": [200, 1200, 1500, 1800, 2300]}, "never fit on a cluster of 200"),
    ({"elastic_window": 0}, "elastic_window >= 1"),
    ({"elastic_threshold": float("nan")}, "elastic_threshold must be > 0"),
    ({"window": 0}, "window must be >= 1"),
    ({"value": ValueConfig(kind="chapter6")}, "unknown value.kind 'chapter6'"),
    ({"value": ValueConfig(beta=1.5)}, "value.beta must lie in"),
    ({"value": ValueConfig(p_m=0.5)}, "must be >= 1"),
    ({"workload": WorkloadConfig(general=0.6)}, "sum to 1"),
    ({"workload": WorkloadConfig(slack=[0.4, 0.1])}, "workload.slack needs two bounds"),
    ({"workload": WorkloadConfig(executions=[1])}, "workload.executions needs two bounds"),
    ({"workload": WorkloadConfig(max_peaks=5)}, "max_peaks"),
    ({"workload": WorkloadConfig(arrivals=ArrivalConfig(pattern="weibull"))}, "unknown arrival pattern"),
    ({"workload": WorkloadConfig(arrivals=ArrivalConfig(a=5, b=4))}, "1 <= a <= b"),
    ({"workload": WorkloadConfig(arrivals=ArrivalConfig(pattern="bernoulli", p=0.0))}, "0 < p <= 1"),
    ({"workload": WorkloadConfig(arrivals=ArrivalConfig(pattern="beta", alpha=0.0))}, "alpha > 0"),
    ({"workload": WorkloadConfig(arrivals=ArrivalConfig(pattern="poisson", rate=0.0))}, "rate > 0"),
    ({"workload": WorkloadConfig(arrivals=ArrivalConfig(pattern="trace"))}, "the list is empty"),
    ({"workload": WorkloadConfig(arrivals=ArrivalConfig(pattern="trace", times=[4, 3]))}, "sorted times"),
    ({"workload": WorkloadConfig(arrivals=ArrivalConfig(jobs_std=-1.0))}, "jobs_std >= 0"),
]


@pytest.mark.parametrize(("changes", "message"), MISTAKES)
def test_a_mistaken_configuration_is_named_in_one_line(changes: dict[str, Any], message: str) -> None:
    config = dataclasses.replace(SliceWorldConfig(), **changes)
    with pytest.raises(WorldError, match=message.replace("(", r"\(")) as caught:
        SliceWorld(config)
    assert "\n" not in str(caught.value)


def test_a_short_trace_is_refused() -> None:
    workload = WorkloadConfig(arrivals=ArrivalConfig(pattern="trace", times=[1, 2]))
    world = SliceWorld(SliceWorldConfig(n_jobs=3, workload=workload))
    with pytest.raises(WorldError, match="names 2 jobs, the episode needs 3"):
        world.reset([KEY])


@pytest.mark.parametrize(
    ("jobs", "message"),
    [
        ([], "the workload is empty"),
        ([Job(10, 5), Job(10, 5)], "has 2 jobs for 1 clusters, the world expects 1"),
        ([Job(101, 5)], "asks for 101 executors on cluster 1, which has 100"),
        ([Job(10, 5, executions=3, period=5, peak=102)], "asks for 102 executors"),
        ([Job(10, 9999)], "lasts 9999 slices"),
        ([Job(10, 5, executions=5, period=5)], "a job has 5 executions"),
        ([Job(10, 5, arrival=-1)], "sorted and >= 0"),
        ([Job(0, 5)], "request >= 1"),
    ],
)
def test_a_workload_that_cannot_run_is_refused(jobs: list[Job], message: str) -> None:
    with pytest.raises(WorldError, match=message):
        SliceWorld(small_config(1)).load(make_workload(jobs))


def test_a_wrong_action_changes_nothing() -> None:
    world = SliceWorld(SliceWorldConfig(n_jobs=5), 2)
    world.reset([KEY, EpisodeKey(11, "train", 1)])
    before = [np.array(array) for array in world.lanes]
    for action, reason in [
        (96, "outside 0..95"),
        (-1, "outside 0..95"),
        (5, "allow_none=True"),
        (90, "no job"),
    ]:
        with pytest.raises(ValueError, match=reason):
            world.step(np.array([0, action]))
    for array, same in zip(world.lanes, before, strict=True):
        np.testing.assert_array_equal(array, same)


def test_results_come_at_the_end_only() -> None:
    world = SliceWorld(SliceWorldConfig(n_jobs=1))
    world.reset([KEY])
    with pytest.raises(ValueError, match="has not ended"):
        world.metrics(0)
    world.step(np.array([0]))
    world.metrics(0)
    with pytest.raises(ValueError, match="has ended"):
        world.step(np.array([0]))
    with pytest.raises(WorldError, match="record=True"):
        world.timeline()
