"""The world of Liu 2022, chapter 4: published means of its rules, its objective, and what it refuses."""

from __future__ import annotations

import functools
import math

import numpy as np
import pytest

from agents.rules import make_rule
from envs.simulation.slices.config import Chapter4Config, SliceWorldConfig, ValueConfig, chapter4
from envs.simulation.slices.workload import draw_workload
from envs.simulation.slices.world import SliceWorld
from envs.simulation.world import EpisodeKey, WorldError
from tests.envs.slice_cases import Job, small_config, start
from training.evaluation.episodes import EpisodeResult, Suite, run_suite

EPISODES = 100
PUBLISHED_EPISODES = 50
RULES = ("random", "sf_p", "lf_p", "sf_e", "lf_e")
# Tables 4.2 and 4.3: TMDL and AJDR of SF-E.
PUBLISHED = {
    ("bernoulli", "normal"): (189.34, 5.78),
    ("uniform", "normal"): (349.9, 10.80),
    ("beta", "normal"): (248.86, 6.07),
    ("uniform", "eased"): (140.52, 4.87),
    ("uniform", "stressed"): (1027.86, 19.96),
}


@functools.cache
def play(rule: str, pattern: str, load: str = "normal", episodes: int = EPISODES) -> list[EpisodeResult]:
    """Episodes that had no part in the calibration."""
    world = SliceWorld(chapter4(pattern, load), episodes)
    return run_suite(world, make_rule(rule), Suite("check", "validation", 5005, episodes))


def metric(results: list[EpisodeResult], name: str) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.array([result.metrics[name] for result in results])


@pytest.mark.real
@pytest.mark.parametrize(("pattern", "load"), PUBLISHED)
def test_sf_e_has_the_published_means(pattern: str, load: str) -> None:
    results = play("sf_e", pattern, load)
    for name, published in zip(("tmdl", "ajdr"), PUBLISHED[pattern, load], strict=True):
        values = metric(results, name)
        # The published means are of 50 episodes: their error adds to ours.
        error = values.std(ddof=1) * math.sqrt(1 / EPISODES + 1 / PUBLISHED_EPISODES)
        assert abs(values.mean() - published) < 3 * error, (name, values.mean(), error)


@pytest.mark.nightly
@pytest.mark.parametrize("pattern", ["bernoulli", "uniform", "beta"])
def test_the_rules_rank_as_in_figure_4_4(pattern: str) -> None:
    # Eval_app of the means: Random is worst, SF-P and LF-P are alike, SF-E and LF-E are alike and best.
    scores = {}
    for rule in RULES:
        results = play(rule, pattern)
        scores[rule] = 1.0 / (0.02 * metric(results, "tmdl").mean() + metric(results, "ajdr").mean())
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
    metrics = world.metrics(0)
    delay = (24 / 5 - 1) * 100 / 3
    assert metrics["tmdl"] == 1
    assert metrics["ajdr"] == pytest.approx(delay)
    assert metrics["weighted_cost"] == pytest.approx(0.02 + delay)
    assert metrics["eval_app"] == pytest.approx(1 / (0.02 + delay))
    assert total == pytest.approx(-(0.02 + delay))


def test_a_perfect_episode_has_a_finite_score() -> None:
    world = start(small_config(1, value=ValueConfig(kind="chapter4")), [Job(10, 5, deadline=5)])
    rewards, _ = world.step(np.array([0]))
    assert rewards[0] == 0.0
    assert world.metrics(0)["weighted_cost"] == 0.0
    assert world.metrics(0)["eval_app"] == 50.0


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


@pytest.mark.parametrize(
    ("pattern", "load", "message"),
    [
        ("weekly", "normal", "unknown arrival pattern 'weekly' of chapter 4: expected one of uniform, bern"),
        ("beta", "heavy", "unknown load 'heavy' of chapter 4: expected one of normal, eased, stressed"),
    ],
)
def test_unknown_choices_are_told_in_one_line(pattern: str, load: str, message: str) -> None:
    with pytest.raises(WorldError, match=message) as raised:
        chapter4(pattern, load)
    assert "\n" not in str(raised.value)
