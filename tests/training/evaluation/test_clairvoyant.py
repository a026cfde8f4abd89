"""The clairvoyant planner against brute force on tiny episodes, and the bound that nothing passes."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from agents.rules import make_rule
from envs.simulation.slices.config import Chapter4Config, SliceWorldConfig
from envs.simulation.slices.world import SliceWorld
from envs.simulation.world import EpisodeKey
from training.evaluation.clairvoyant import ClairvoyantPlanner, unhindered_score
from training.evaluation.episodes import Suite, run_suite

TINY = SliceWorldConfig(
    capacities=[320, 400], hetero_factors=[70.0, 95.0], elastic=[False, True], n_jobs=6, window=1
)
TINY.workload.arrivals.b = 5
SUITE = Suite("tiny", "validation", seed=4, episodes=6)


def planner(further: int, rule: str = "maf", config: SliceWorldConfig = TINY) -> ClairvoyantPlanner:
    lanes = ClairvoyantPlanner.lanes_needed(SUITE.episodes, len(config.capacities))
    return ClairvoyantPlanner(SliceWorld(config, lanes), make_rule(rule), further)


def best_return(key: EpisodeKey) -> float:
    """The best of all sequences of clusters; the window of one job leaves no other choice."""
    sequences = list(itertools.product(range(2), repeat=TINY.n_jobs))
    world = SliceWorld(TINY, len(sequences))
    world.reset([key] * len(sequences))
    returns = np.zeros(len(sequences))
    for step in range(TINY.n_jobs):
        rewards, _ = world.step(np.array([sequence[step] for sequence in sequences]))
        returns += rewards
    return float(returns.max())


def test_on_tiny_episodes_it_lies_between_its_base_and_the_best_of_all_sequences() -> None:
    base = run_suite(SliceWorld(TINY, 6), make_rule("maf"), SUITE)
    planned = planner(further=TINY.n_jobs).play(SUITE.episode_keys())
    best = [best_return(key) for key in SUITE.episode_keys()]
    gains = [p.episode_return - b.episode_return for p, b in zip(planned, base, strict=True)]
    assert min(gains) >= -1e-9
    assert max(gains) > 1.0
    for result, highest in zip(planned, best, strict=True):
        assert result.episode_return <= highest + 1e-9
    room = sum(best) - sum(result.episode_return for result in base)
    assert sum(gains) > 0.5 * room


def test_foresight_never_loses_to_its_base_on_whole_episodes() -> None:
    config = SliceWorldConfig(n_jobs=60)
    base = run_suite(SliceWorld(config, 6), make_rule("tuned"), SUITE)
    planned = planner(further=60, rule="tuned", config=config).play(SUITE.episode_keys())
    for ours, theirs in zip(planned, base, strict=True):
        assert ours.key == theirs.key
        assert ours.metrics["s"] >= theirs.metrics["s"] - 1e-9
        assert ours.metrics["s"] == pytest.approx(ours.episode_return)
        assert ours.decisions == 60


def test_nothing_passes_the_bound() -> None:
    for key in SUITE.episode_keys():
        assert best_return(key) - 1e-9 <= unhindered_score(SliceWorld(TINY, 1), key) < 5000.0


def test_a_job_alone_on_its_fastest_cluster_reaches_the_bound() -> None:
    config = SliceWorldConfig(**{**vars(TINY), "n_jobs": 1})
    world = SliceWorld(config, 3)
    for key in SUITE.episode_keys():
        world.reset([key] * 3)
        returns, _ = world.step(np.array([0, 1, 0]))
        # A deadline that even the fastest cluster misses is the only difference there can be.
        missed = np.array([world.metrics(lane)["tmdl"] for lane in range(3)])
        assert (returns + missed).max() == pytest.approx(unhindered_score(world, key))


def test_the_cost_of_chapter_4_is_bounded_by_nothing_at_all() -> None:
    # Executors are equal there, so without waits every job takes its standard time: cost 0.
    world = SliceWorld(Chapter4Config(n_jobs=20, window=4).world(), 1)
    assert world.spec.metrics[0] == "weighted_cost"
    for key in SUITE.episode_keys():
        assert unhindered_score(world, key) == 0.0


def test_too_few_lanes_or_a_negative_horizon_are_refused() -> None:
    with pytest.raises(ValueError, match="6 episodes need a world of 24 lanes, got 5"):
        ClairvoyantPlanner(SliceWorld(TINY, 5), make_rule("maf"), 3).play(SUITE.episode_keys())
    with pytest.raises(ValueError, match="further arrivals must be >= 0"):
        ClairvoyantPlanner(SliceWorld(TINY, 5), make_rule("maf"), -1)
