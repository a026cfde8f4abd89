"""Episodes in lockstep: masks, lanes, seeds, latency; suites are frozen and hashed."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import numpy as np
import pytest

from spotweave.agents.rules import make_rule
from spotweave.envs.simulation.slices.config import Chapter4Config, SliceWorldConfig
from spotweave.envs.simulation.slices.world import SliceWorld
from spotweave.envs.simulation.world import EpisodeKey
from spotweave.training.evaluation.clairvoyant import ClairvoyantPlanner, unhindered_score
from spotweave.training.evaluation.episodes import (
    SUITES,
    EpisodeResult,
    Suite,
    SuitePlayer,
    find_suite,
    measure_latency,
    policy_seed,
    run_suite,
    suite_hash,
)
from tests.training.fake_world import N_CLUSTERS, Clairvoyant, FakeWorld, Fixed, Wanderer

SUITE = Suite("small", "test", seed=7, episodes=7)


def test_results_come_in_order_with_hand_computed_metrics() -> None:
    results = run_suite(FakeWorld(3), Fixed(1), SUITE)
    assert [result.key for result in results] == SUITE.episode_keys()
    for result in results:
        gains = FakeWorld.draw(result.key)[:, 1]
        assert result.decisions == 5 + result.key.index % 4 == len(gains)
        assert result.metrics["score"] == result.episode_return == sum(gains.tolist())
        assert result.metrics["tmdl"] == (gains < 5.0).sum()
        assert list(result.metrics) == ["score", "tmdl", "ajer"]
        assert result.policy == "fixed"


@pytest.mark.parametrize("n_lanes", [1, 2, 3, 7, 20])
def test_results_do_not_depend_on_the_number_of_lanes(n_lanes: int) -> None:
    # The wanderer draws from its own stream, so this also proves that the stream belongs to the episode.
    assert run_suite(FakeWorld(n_lanes), Wanderer(), SUITE) == run_suite(FakeWorld(4), Wanderer(), SUITE)


def test_threads_share_neither_worlds_nor_policies() -> None:
    player, wanderer = SuitePlayer([FakeWorld, FakeWorld], 3), Wanderer()
    alone = run_suite(FakeWorld(3), Wanderer(), SUITE)
    assert player.play(None, [(0, wanderer), (1, wanderer), (0, wanderer)], SUITE) == [alone] * 3
    assert player.world(0, copy=2) is not player.world(0)
    with pytest.raises(ValueError, match="chose action"):
        player.play(None, [(0, wanderer), (0, Fixed(N_CLUSTERS))], SUITE)


def test_every_episode_is_played_once_lanes_are_refilled_and_progress_counts_up() -> None:
    world = FakeWorld(2)
    seen: list[tuple[int, int]] = []
    run_suite(world, Clairvoyant(), SUITE, lambda done, total: seen.append((done, total)))
    assert sorted(key.index for _, key in world.resets) == list(range(7))
    assert {lane for lane, _ in world.resets} == {0, 1}
    assert seen == [(count, 7) for count in range(1, 8)]


def test_the_policys_seed_differs_between_episodes() -> None:
    assert len({policy_seed(key) for key in find_suite("test").episode_keys()}) == 50


@pytest.mark.parametrize(
    ("world", "action", "message"),
    [
        *((FakeWorld(2), action, f"policy 'fixed' chose action {action} in lane 0") for action in (3, -1, 4)),
        (FakeWorld(2), 0.5, "policy 'fixed' returned float64 actions"),
        (FakeWorld(2, broken_metric=True), 0, "metric 'score' of policy 'fixed' is nan"),
    ],
)
def test_an_invalid_action_and_a_metric_that_is_no_number_are_named(
    world: FakeWorld, action: Any, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        run_suite(world, Fixed(action), SUITE)


def test_latency_is_measured_one_observation_at_a_time() -> None:
    world, policy, rows = FakeWorld(3), Fixed(0), []
    act = policy.act_batch

    def record(observations, lanes):  # type: ignore[no-untyped-def]
        rows.append(len(lanes))
        assert observations["jobs"].shape[0] == 1
        return act(observations, lanes)

    policy.act_batch = record  # type: ignore[method-assign]
    latency = measure_latency(world, policy, SUITE.episode_keys()[0], decisions=12, warm_up=3)
    assert rows == [1] * 15
    assert latency.decisions == 12
    assert 0.0 < latency.p50_ms <= latency.p99_ms
    # 15 decisions of episodes of 5 decisions: begun three times, always in lane 0.
    assert [lane for lane, _ in world.resets] == [0, 0, 0]


# Suites.


def test_published_suites_have_the_promised_sizes_and_do_not_overlap() -> None:
    sizes = {name: suite.episodes for name, suite in SUITES.items()}
    assert sizes == {"train": 30, "validation": 30, "test": 50}
    keys = [key for suite in SUITES.values() for key in suite.episode_keys()]
    assert len(set(keys)) == len(keys) == 110
    assert len({suite.seed for suite in SUITES.values()}) == 3
    assert all(suite.split == name for name, suite in SUITES.items())


def test_a_shorter_suite_is_a_prefix_of_the_published_one() -> None:
    assert find_suite("test", 3).episode_keys() == SUITES["test"].episode_keys()[:3]
    assert find_suite("test") is SUITES["test"]
    assert find_suite("test", 2).episode_keys()[1] == EpisodeKey(SUITES["test"].seed, "test", 1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"episodes": 0}, "at least 1 episode"),
        ({"seed": -1}, "must be >= 0"),
        ({"split": "holdout"}, "unknown split 'holdout'"),
    ],
)
def test_wrong_suites_are_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(SUITES["test"], **change)  # type: ignore[arg-type]


def test_hash_depends_on_episodes_and_world_but_not_on_lanes_or_the_name() -> None:
    suite = find_suite("validation", 4)
    known = suite_hash(FakeWorld(2), suite)
    assert known == suite_hash(FakeWorld(5), suite)
    assert known == suite_hash(FakeWorld(2), dataclasses.replace(suite, name="other"))
    assert known != suite_hash(FakeWorld(2), find_suite("validation", 5))
    assert known != suite_hash(FakeWorld(2), find_suite("test", 4))
    other_world = FakeWorld(2)
    other_world.spec = dataclasses.replace(other_world.spec, weights=(2.0,))
    assert known != suite_hash(other_world, suite)
    assert len(known) == 64


# The clairvoyant planner against brute force on tiny episodes, and the bound that nothing passes.


TINY = SliceWorldConfig(
    capacities=[320, 400], hetero_factors=[70.0, 95.0], elastic=[False, True], n_jobs=6, window=1
)
TINY.workload.arrivals.b = 5
TINY_SUITE = Suite("tiny", "validation", seed=4, episodes=6)


def planned_episodes(further: int, rule: str = "maf", config: SliceWorldConfig = TINY) -> list[EpisodeResult]:
    world = SliceWorld(config, ClairvoyantPlanner.lanes_needed(len(config.capacities)))
    planner = ClairvoyantPlanner(world, make_rule(rule), further)
    return [planner.play(key) for key in TINY_SUITE.episode_keys()]


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
    base = run_suite(SliceWorld(TINY, 6), make_rule("maf"), TINY_SUITE)
    planned = planned_episodes(further=TINY.n_jobs)
    best = [best_return(key) for key in TINY_SUITE.episode_keys()]
    gains = [p.episode_return - b.episode_return for p, b in zip(planned, base, strict=True)]
    assert min(gains) >= -1e-9
    assert max(gains) > 1.0
    for result, highest in zip(planned, best, strict=True):
        assert result.episode_return <= highest + 1e-9
    room = sum(best) - sum(result.episode_return for result in base)
    assert sum(gains) > 0.5 * room


def test_foresight_never_loses_to_its_base_on_whole_episodes() -> None:
    config = SliceWorldConfig(n_jobs=60)
    base = run_suite(SliceWorld(config, 6), make_rule("tuned"), TINY_SUITE)
    planned = planned_episodes(further=60, rule="tuned", config=config)
    for ours, theirs in zip(planned, base, strict=True):
        assert ours.key == theirs.key
        assert ours.metrics["s"] >= theirs.metrics["s"] - 1e-9
        assert ours.metrics["s"] == pytest.approx(ours.episode_return)
        assert ours.decisions == 60


def test_nothing_passes_the_bound() -> None:
    for key in TINY_SUITE.episode_keys():
        assert best_return(key) - 1e-9 <= unhindered_score(SliceWorld(TINY, 1), key) < 5000.0


def test_a_job_alone_on_its_fastest_cluster_reaches_the_bound() -> None:
    config = SliceWorldConfig(**{**vars(TINY), "n_jobs": 1})
    world = SliceWorld(config, 3)
    for key in TINY_SUITE.episode_keys():
        world.reset([key] * 3)
        returns, _ = world.step(np.array([0, 1, 0]))
        # A deadline that even the fastest cluster misses is the only difference there can be.
        missed = np.array([world.metrics(lane)["tmdl"] for lane in range(3)])
        assert (returns + missed).max() == pytest.approx(unhindered_score(world, key))


def test_the_cost_of_chapter_4_is_bounded_by_nothing_at_all() -> None:
    # Executors are equal there, so without waits every job takes its standard time: cost 0.
    world = SliceWorld(Chapter4Config(n_jobs=20, window=4).world(), 1)
    assert world.spec.metrics[0] == "weighted_cost"
    for key in TINY_SUITE.episode_keys():
        assert unhindered_score(world, key) == 0.0


def test_too_few_lanes_or_a_negative_horizon_are_refused() -> None:
    with pytest.raises(ValueError, match="an episode needs a world of 4 lanes, got 3"):
        ClairvoyantPlanner(SliceWorld(TINY, 3), make_rule("maf"), 3).play(TINY_SUITE.episode_keys()[0])
    with pytest.raises(ValueError, match="further arrivals must be >= 0"):
        ClairvoyantPlanner(SliceWorld(TINY, 5), make_rule("maf"), -1)
