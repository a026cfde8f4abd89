"""The published means of Liu 2022, of chapter 4's rules and of chapter 5's MAF, and chapter 4's objective."""

from __future__ import annotations

import functools
import math

import numpy as np
import pytest
from numpy.typing import NDArray

from agents.rules import make_rule
from envs.simulation.arrivals import ArrivalConfig
from envs.simulation.slices.config import (
    Chapter4Config,
    SliceWorldConfig,
    ValueConfig,
    WorkloadConfig,
    chapter4,
)
from envs.simulation.slices.workload import draw_workload
from envs.simulation.slices.world import SliceWorld
from envs.simulation.world import EpisodeKey
from tests.envs.checks import check
from tests.envs.slice_cases import Job, small_config, start
from training.evaluation.episodes import Suite, run_suite

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
    total = 0.0
    for cluster in (0, 0, 1):
        rewards, dones = world.step(np.array([cluster]))
        total += float(rewards[0])
    assert dones[0]
    delay = (24 / 5 - 1) * 100 / 3
    cost = 0.02 + delay
    check(world.metrics(0), tmdl=1, ajdr=delay, weighted_cost=cost, eval_app=1 / cost)
    assert total == pytest.approx(-(0.02 + delay))


def test_a_perfect_episode_has_a_finite_score() -> None:
    world = start(small_config(1, value=ValueConfig(kind="chapter4")), [Job(10, 5, deadline=5)])
    rewards, _ = world.step(np.array([0]))
    assert rewards[0] == 0.0
    check(world.metrics(0), weighted_cost=0.0, eval_app=50.0)


def test_an_episodes_rewards_sum_to_minus_the_objective() -> None:
    world = SliceWorld(chapter4("beta"), 3)
    assert (world.spec.name, world.spec.metrics[0]) == ("chapter4", "weighted_cost")
    assert dict(zip(world.spec.metrics, world.spec.higher_is_better, strict=True)) == {
        "weighted_cost": False,
        "tmdl": False,
        "ajdr": False,
        "eval_app": True,
        "job_ratio_p95": False,
        "job_ratio_p99": False,
        "misses_unqueued": False,
        "misses_queued": False,
        "makespan": False,
    }
    for result in run_suite(world, make_rule("random"), Suite("check", "train", 7, 3)):
        cost = result.metrics["weighted_cost"]
        assert cost == pytest.approx(0.02 * result.metrics["tmdl"] + result.metrics["ajdr"])
        assert cost > 1.0
        assert result.episode_return == pytest.approx(-cost)


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
