"""Arrival patterns and job parameters, what holds in every episode, and what is told about wrong ones."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from spotweave.agents.rules import make_rule
from spotweave.envs.simulation import columns as col
from spotweave.envs.simulation.arrivals import ArrivalConfig, draw_arrivals, draw_intervals
from spotweave.envs.simulation.series import StepSeries
from spotweave.envs.simulation.slices import columns as at
from spotweave.envs.simulation.slices.config import (
    Chapter4Config,
    SliceWorldConfig,
    ValueConfig,
    WorkloadConfig,
    chapter4,
)
from spotweave.envs.simulation.slices.workload import Workload, draw_jobs, draw_workload, longest_delay
from spotweave.envs.simulation.slices.world import SliceWorld
from spotweave.envs.simulation.snapshot import Category
from spotweave.envs.simulation.world import EpisodeKey, Timeline, WorldError
from spotweave.training.evaluation.episodes import Suite, run_suite
from tests.envs.checks import answer, check, valid
from tests.envs.test_slices_episodes import Job, make_workload, small_config, start

KEY = EpisodeKey(11, "train", 0)


def intervals(config: ArrivalConfig) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return draw_intervals(config, 20_000, np.random.default_rng(1))


def bounds(values: NDArray[Any]) -> tuple[float, float]:
    return float(values.min()), float(values.max())


def test_uniform_intervals() -> None:
    drawn = intervals(ArrivalConfig(pattern="uniform", a=1, b=33))
    assert bounds(drawn) == (1, 33)
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
    assert 1 <= drawn.min() <= drawn.max() <= 30
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


def test_an_episode_of_a_trace_plays_its_first_jobs() -> None:
    workload = WorkloadConfig(arrivals=ArrivalConfig(pattern="trace", times=[3, 3, 40, 50]))
    assert draw_workload(SliceWorldConfig(n_jobs=3, workload=workload), KEY).arrival.tolist() == [3, 3, 40]
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
    assert bounds(w.executions[streaming]) == (10, 34)
    assert bounds(w.standard[~streaming]) == (35, 140)
    assert bounds(w.standard[streaming]) == (20, 65)
    assert (w.period[~streaming] == 0).all()
    shortest, longest = bounds(w.period[streaming] / w.standard[streaming])
    assert 1.5 - 0.5 / 20 <= shortest <= longest <= 2.0 + 0.5 / 20
    # min(Binomial(10, 0.2), 4): mean 2 - sum over k > 4 of (k - 4) p_k = 1.9600.
    assert w.peak_slots[streaming].mean() == pytest.approx(1.960, abs=0.06)
    assert w.uses_peak[streaming].mean() == pytest.approx(0.196, abs=0.006)
    assert not w.uses_peak[~streaming].any()
    assert (w.deadline[general] == 0).all()
    shortest, longest = bounds(w.deadline[~general] / w.standard[~general, None])
    assert 1.10 - 0.01 - 1 / 20 < shortest <= longest <= 1.42
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


@pytest.mark.parametrize(
    ("action", "reason"),
    [(96, "outside 0..95"), (-1, "outside 0..95"), (5, "allow_none=True"), (90, "no job")],
)
def test_what_is_wrong_with_an_action_is_said(action: int, reason: str) -> None:
    world = SliceWorld(SliceWorldConfig(n_jobs=5))
    world.reset([KEY])
    with pytest.raises(ValueError, match=reason):
        world.step(np.array([action]))


def test_results_come_at_the_end_only() -> None:
    world = SliceWorld(SliceWorldConfig(n_jobs=1))
    world.reset([KEY])
    with pytest.raises(ValueError, match="has not ended"):
        world.metrics(0)
    world.step(np.array([0]))
    world.metrics(0)
    with pytest.raises(WorldError, match="record=True"):
        world.timeline()


worlds = st.builds(
    SliceWorldConfig,
    capacities=st.just([380, 420, 500]),
    hetero_factors=st.just([70.0, 60.0, 100.0]),
    elastic=st.lists(st.booleans(), min_size=3, max_size=3),
    elastic_step=st.integers(1, 60),
    elastic_max=st.integers(0, 130),
    elastic_window=st.integers(1, 120),
    elastic_threshold=st.floats(0.3, 1.0),
    n_jobs=st.integers(1, 40),
    window=st.integers(1, 5),
    allow_none=st.booleans(),
    strict_fifo=st.booleans(),
    workload=st.builds(
        WorkloadConfig, arrivals=st.builds(ArrivalConfig, b=st.integers(1, 40), jobs_mean=st.floats(1.0, 6.0))
    ),
)
quick = settings(max_examples=40)


def play(world: SliceWorld, seed: int) -> tuple[float, list[int]]:
    """Random valid decisions to the end: the return and the jobs in the order of their deployment."""
    rng = np.random.default_rng(seed)
    total, deployed, done = 0.0, [], False
    while not done:
        clusters = world.observation["clusters"][0]
        assert (clusters[:, col.USED] <= clusters[:, col.CAPACITY_NOW]).all()
        assert (clusters[:, col.CAPACITY_NOW] <= clusters[:, col.CAPACITY_MAX]).all()
        occupation = world.observation["occupation"][0]
        assert 0.0 <= occupation.min() <= occupation.max() <= 1.0
        action = int(rng.choice(valid(world)))
        reward, done = answer(world, action)
        total += reward
        if action % (world.spec.n_clusters + 1) < world.spec.n_clusters:
            deployed.append(int(world.decided_jobs()[0]))
    return total, deployed


def on_each_slice(series: StepSeries, end: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.array([series.at(time) for time in range(end)])


@pytest.mark.real
@quick
@given(config=worlds, seed=st.integers(0, 10_000))
def test_jobs_and_executors_are_conserved(config: SliceWorldConfig, seed: int) -> None:
    key = EpisodeKey(seed, "train", 0)
    workload = draw_workload(config, key)
    world = SliceWorld(config, record=True)
    world.reset([key])
    total, deployed = play(world, seed)

    assert sorted(deployed) == list(range(config.n_jobs))
    timeline = world.timeline()
    assert_executions_are_complete(timeline, workload)
    end = int(timeline.end)
    for cluster, normal in enumerate(config.capacities):
        capacity = on_each_slice(timeline.capacity[cluster], end)
        used = on_each_slice(timeline.used[cluster], end)
        assert ((used >= 0) & (used <= capacity)).all()
        most = normal + (config.elastic_max if config.elastic[cluster] else 0)
        assert normal <= capacity.min() <= capacity.max() <= most
        here = [segment for segment in timeline.segments if segment.cluster == cluster]
        assert used.sum() == sum(one.executors * (one.end - one.start) for one in here)
        # What was recorded slice by slice is used / capacity.
        latest = world.observation["occupation"][0, cluster][-min(end, 105) :]
        np.testing.assert_array_equal(latest, (used / capacity)[-105:].astype(np.float32))
    assert (world.lanes.cluster[0, :, [at.USED, at.HALTED]] == 0).all()

    metrics = world.metrics(0)
    assert np.isclose(total, metrics["s"], rtol=1e-9, atol=1e-6)
    assert len(timeline.misses) == metrics["tmdl"]
    assert world.observation["clusters"][0, :, col.MISSED].sum() == metrics["tmdl"]
    assert (world.values(0, np.array(deployed), world.marks())[:, :2] <= 0.0).all()


def assert_executions_are_complete(timeline: Timeline, workload: Workload) -> None:
    """Every job ran as often as it should, on one cluster, never twice at a time, as long as it takes."""
    runs: dict[int, list[tuple[float, float, int]]] = {}
    for segment in timeline.segments:
        runs.setdefault(segment.job, []).append((segment.start, segment.end, segment.cluster))
    assert sorted(runs) == list(range(workload.n_jobs))
    for job, times in runs.items():
        assert len(times) == workload.executions[job]
        assert len({cluster for _, _, cluster in times}) == 1
        assert times[0][0] >= workload.arrival[job]
        for before, after in itertools.pairwise(times):
            assert before[1] <= after[0]
        for first, last, cluster in times:
            assert last - first == workload.execution[job, cluster]


def test_arrivals_and_sizes_come_from_streams_of_their_own() -> None:
    key = EpisodeKey(9, "train", 0)
    config = SliceWorldConfig(n_jobs=50)
    rarer = dataclasses.replace(config, workload=WorkloadConfig(arrivals=ArrivalConfig(b=40)))
    one, two = draw_workload(config, key), draw_workload(rarer, key)
    assert (one.arrival != two.arrival).any()
    np.testing.assert_array_equal(one.request, two.request)
    np.testing.assert_array_equal(one.uses_peak, two.uses_peak)


# The published means of Liu 2022, of chapter 4's rules and of chapter 5's MAF, and chapter 4's objective.


PUBLISHED_EPISODES = 50
"""Published means are of so many: their error adds to ours."""


def metrics_of(config: SliceWorldConfig, rule: str, suite: Suite) -> dict[str, NDArray[np.float64]]:
    results = run_suite(SliceWorld(config, suite.episodes), make_rule(rule), suite)
    return {name: np.array([one.metrics[name] for one in results]) for name in results[0].metrics}


def assert_mean(values: NDArray[np.float64], expected: float, published: bool = True) -> None:
    error = values.std(ddof=1) * math.sqrt(1 / len(values) + published / PUBLISHED_EPISODES)
    assert abs(values.mean() - expected) < 3 * error, (values.mean(), error)


@functools.cache
def chapter5_play(
    rule: str, pattern: str, b: int = 33, episodes: int = 150
) -> dict[str, NDArray[np.float64]]:
    arrivals = ArrivalConfig(pattern=pattern, b=b)
    config = SliceWorldConfig(workload=WorkloadConfig(arrivals=arrivals))
    return metrics_of(config, rule, Suite("check", "test", 1, episodes))


@pytest.mark.real
@pytest.mark.parametrize(
    ("pattern", "b", "tmdl", "ajer"),
    [
        ("uniform", 33, 347.0, 93.22),
        ("uniform", 36, 317.4, 92.72),
        ("uniform", 40, 291.6, 92.29),
        ("bernoulli", 33, 263.0, 91.98),
        ("beta", 33, 289.1, 92.30),
    ],
)
def test_maf_has_the_calibrated_means(pattern: str, b: int, tmdl: float, ajer: float) -> None:
    metrics = chapter5_play("maf", pattern, b)
    assert_mean(metrics["tmdl"], tmdl, published=False)
    assert_mean(metrics["ajer"], ajer, published=False)


@pytest.mark.real
@pytest.mark.parametrize(("name", "mean"), [("tmdl", 343.84), ("ajer", 93.22), ("s_log", -0.28)])
def test_maf_has_the_published_means_of_table_5_3(name: str, mean: float) -> None:
    assert_mean(chapter5_play("maf", "uniform")[name], mean)


@pytest.mark.parametrize("rule", ["random", "rr"])
def test_blind_rules_are_far_worse(rule: str) -> None:
    metrics = chapter5_play(rule, "uniform", episodes=30)
    assert 1400 < metrics["tmdl"].mean() < 2200
    assert 128 < metrics["ajer"].mean() < 152


@functools.cache
def chapter4_play(rule: str, pattern: str, load: str = "normal") -> dict[str, NDArray[np.float64]]:
    """Episodes that had no part in the calibration."""
    return metrics_of(chapter4(pattern, load), rule, Suite("check", "validation", 5005, 100))


@pytest.mark.real
@pytest.mark.parametrize(
    ("pattern", "load", "tmdl", "ajdr"),
    [
        ("bernoulli", "normal", 189.34, 5.78),
        ("uniform", "normal", 349.9, 10.80),
        ("beta", "normal", 248.86, 6.07),
        ("uniform", "eased", 140.52, 4.87),
        ("uniform", "stressed", 1027.86, 19.96),
    ],
)
def test_sf_e_has_the_means_of_tables_4_2_and_4_3(pattern: str, load: str, tmdl: float, ajdr: float) -> None:
    metrics = chapter4_play("sf_e", pattern, load)
    assert_mean(metrics["tmdl"], tmdl)
    assert_mean(metrics["ajdr"], ajdr)


@pytest.mark.nightly
@pytest.mark.parametrize("pattern", ["bernoulli", "uniform", "beta"])
def test_the_rules_rank_as_in_figure_4_4(pattern: str) -> None:
    # Eval_app of the means: Random is worst, SF-P and LF-P are alike, SF-E and LF-E are alike and best.
    scores = {}
    for rule in ("random", "sf_p", "lf_p", "sf_e", "lf_e"):
        metrics = chapter4_play(rule, pattern)
        scores[rule] = 1.0 / (0.02 * metrics["tmdl"].mean() + metrics["ajdr"].mean())
    assert min(scores, key=lambda rule: scores[rule]) == "random"
    assert scores["random"] < 0.5 * min(scores["sf_p"], scores["lf_p"])
    assert min(scores["sf_e"], scores["lf_e"]) > max(scores["sf_p"], scores["lf_p"])
    assert scores["sf_p"] == pytest.approx(scores["lf_p"], rel=0.15)
    assert scores["sf_e"] == pytest.approx(scores["lf_e"], rel=0.15)


def test_the_rewards_are_the_weights_of_eq_4_9() -> None:
    # B waits 19 slices for A and misses; the ratios of the three jobs are 1, 24 / 5 and 1.
    jobs = [Job(100, 20), Job(50, 5, deadline=10), Job(10, 5)]
    world = start(small_config(3, capacities=(100, 100), value=ValueConfig(kind="chapter4")), jobs)
    total, done = answer(world, 0, 0, 1)
    assert done
    delay = (24 / 5 - 1) * 100 / 3
    cost = 0.02 + delay
    check(world.metrics(0), tmdl=1, ajdr=delay, weighted_cost=cost, eval_app=1 / cost)
    assert total == pytest.approx(-(0.02 + delay))


def test_a_perfect_episode_has_a_finite_score() -> None:
    world = start(small_config(1, value=ValueConfig(kind="chapter4")), [Job(10, 5, deadline=5)])
    assert answer(world, 0)[0] == 0.0
    check(world.metrics(0), weighted_cost=0.0, eval_app=50.0)


def test_jobs_are_the_same_on_every_cluster() -> None:
    w = draw_workload(chapter4(), EpisodeKey(1, "train", 0))
    assert w.n_jobs == 500
    for pairs in (w.request, w.peak_request, w.execution, w.deadline):
        assert (pairs == pairs[:, :1]).all()
    assert (w.execution[:, 0] == w.standard).all()


@pytest.mark.parametrize(("load", "factor"), [("eased", -1), ("normal", 0), ("stressed", 1)])
def test_only_streaming_jobs_differ_between_loads(load: str, factor: int) -> None:
    normal, other = chapter4().workload, chapter4(load=load).workload
    assert np.sign(np.array(other.streaming_request) - normal.streaming_request).tolist() == [factor] * 2
    other.streaming_request = normal.streaming_request
    assert other == normal


def test_what_can_be_chosen_reaches_the_world() -> None:
    chosen = Chapter4Config("beta", "stressed", n_jobs=7, window=3, allow_none=True, strict_fifo=True)
    expected = chapter4("beta", "stressed")
    expected.n_jobs, expected.window, expected.allow_none, expected.strict_fifo = 7, 3, True, True
    assert chosen.world() == expected
    assert Chapter4Config().world() == chapter4() != SliceWorldConfig()
    chosen.world().validate()
