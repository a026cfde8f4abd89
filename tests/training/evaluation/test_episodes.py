"""Episodes in lockstep: masks, lanes, seeds, latency."""

import numpy as np
import pytest

from tests.training.fake_world import Clairvoyant, FakeWorld, Fixed, Wanderer
from training.evaluation.episodes import Suite, find_suite, measure_latency, policy_seed, run_suite

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


def test_every_episode_is_played_once_and_lanes_are_refilled() -> None:
    world = FakeWorld(2)
    run_suite(world, Clairvoyant(), SUITE)
    assert sorted(key.index for _, key in world.resets) == list(range(7))
    assert {lane for lane, _ in world.resets} == {0, 1}


def test_the_policys_seed_differs_between_episodes() -> None:
    assert len({policy_seed(key) for key in find_suite("test").episode_keys()}) == 50


def test_progress_counts_up() -> None:
    seen: list[tuple[int, int]] = []
    run_suite(FakeWorld(3), Clairvoyant(), SUITE, lambda done, total: seen.append((done, total)))
    assert seen == [(count, 7) for count in range(1, 8)]


@pytest.mark.parametrize("action", [3, -1, 4])
def test_an_invalid_action_is_named(action: int) -> None:
    with pytest.raises(ValueError, match=f"policy 'fixed' chose action {action} in lane 0"):
        run_suite(FakeWorld(2), Fixed(action), SUITE)


def test_actions_that_are_no_integers_are_refused() -> None:
    policy = Clairvoyant()
    policy.act_batch = lambda observations, lanes: np.zeros(len(lanes))  # type: ignore[method-assign, assignment, return-value]
    with pytest.raises(ValueError, match="returned float64 actions"):
        run_suite(FakeWorld(2), policy, SUITE)


def test_a_metric_that_is_not_finite_is_named() -> None:
    with pytest.raises(ValueError, match="metric 'score' of policy 'fixed' is nan"):
        run_suite(FakeWorld(2, broken_metric=True), Fixed(0), SUITE)


def test_latency_is_measured_one_observation_at_a_time() -> None:
    world = FakeWorld(3)
    rows: list[int] = []
    policy = Fixed(0)
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
