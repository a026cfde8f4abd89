"""The flattening wrapper and the exported policy: nothing here needs a library."""

from __future__ import annotations

import dataclasses
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.utils.env_checker import check_env
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from spotweave.agents.library_policy import (
    CLIP,
    FlatPolicy,
    Flattening,
    ScoreNetwork,
    n_features,
    new_policy,
    signed_log_features,
)
from spotweave.agents.registry import LibrarySettings
from spotweave.agents.rules import make_rule
from spotweave.agents.stored import CheckpointError
from spotweave.envs.simulation import columns as col
from spotweave.envs.simulation.slices.config import SliceWorldConfig
from spotweave.envs.simulation.slices.world import SliceWorld
from spotweave.envs.simulation.snapshot import N_CLUSTER_FIELDS, empty_observation
from spotweave.envs.simulation.world import EpisodeKey, WorldError
from spotweave.training.adapters.base import Calibration, FlatWorldEnv, calibrate, masked, nearest_valid
from spotweave.training.checkpoint import load_policy, save_policy
from spotweave.training.evaluation.episodes import Suite, run_suite
from spotweave.training.settings import MissingExtraError, require_library

CONFIG = SliceWorldConfig(n_jobs=25, window=6)
KEY = EpisodeKey(7, "train", 0)


def build() -> SliceWorld:
    return SliceWorld(CONFIG, 1)


def calibrated(n_jobs: int = 3) -> Calibration:
    return calibrate(build(), [make_rule("maf"), make_rule("random")], KEY, n_jobs)


def flat_env(n_jobs: int = 3, first: int = 0, stride: int = 1) -> FlatWorldEnv:
    calibration = calibrated(n_jobs)
    return FlatWorldEnv(build, calibration.flattening, calibration.reward_scale, KEY.seed, first, stride)


# ---- flattening


def test_the_length_of_a_flat_vector() -> None:
    # 5 clusters * 22 columns + 4 jobs * (32 columns + 5 * 14 pair columns + 6 mask entries)
    assert n_features(4, 5) == 110 + 4 * (32 + 70 + 6) == 542


def test_every_number_finds_its_place() -> None:
    observation = empty_observation(3, 2, (1,))
    observation["clusters"][0, 1, col.USED] = math.e - 1.0
    observation["jobs"][0, 1, col.SLACK_S] = -(math.e**2 - 1.0)
    observation["pairs"][0, 0, 1, col.FREE] = math.e**3 - 1.0
    observation["action_mask"][0, 4] = 1
    observation["jobs"][0, 2, col.AGE_S] = 99.0  # the third job is not shown
    flat = signed_log_features(observation, 2)[0]
    place = {
        1 * 22 + col.USED: 1.0,
        2 * 22 + 32 + col.SLACK_S: -2.0,
        2 * 22 + 2 * 32 + 14 + col.FREE: 3.0,
        2 * 22 + 2 * 32 + 2 * 2 * 14 + 4: math.log(2.0),
    }
    expected = np.zeros(n_features(2, 2))
    for index, value in place.items():
        expected[index] = value
    np.testing.assert_allclose(flat, expected, rtol=1e-6)


def test_features_are_standardised_and_cut_off() -> None:
    rows = np.tile([[0.0, 1.0], [2.0, 1.0]], n_features(1, 1) // 2).astype(np.float32)
    assert rows.shape == (2, 22 + 32 + 14 + 2)
    flattening = Flattening.fit(rows, n_jobs=1, n_clusters=1)
    np.testing.assert_allclose(flattening.mean[:68], [1.0] * 68)
    np.testing.assert_allclose(flattening.std, [1.0] * 70)  # a constant column is only centred
    np.testing.assert_allclose(flattening.mean[68:], [0.0, 0.0])  # the mask stays as it is
    world = build()
    world.reset([KEY])
    features = calibrated().flattening.features(world.observation)
    assert features.dtype == np.float32
    assert np.abs(features).max() <= CLIP


def test_pooled_statistics_are_one_for_all_clusters_jobs_and_pairs() -> None:
    # Two clusters, one job, one row: the first column of the clusters is 1 and 3, mean 2, deviation 1;
    # the first column of the pairs is 5 and 5.
    row = np.zeros((1, n_features(1, 2)), np.float32)
    row[0, [0, 22]] = 1.0, 3.0
    row[0, [44 + 32, 44 + 32 + 14]] = 5.0
    apart, pooled = (Flattening.fit(row, 1, 2, pooled=pooled) for pooled in (False, True))
    assert apart.mean[[0, 22]].tolist() == [1.0, 3.0]
    assert pooled.mean[[0, 22]].tolist() == [2.0, 2.0]
    assert pooled.std[[0, 22]].tolist() == [1.0, 1.0]
    assert pooled.mean[[76, 90]].tolist() == [5.0, 5.0]
    assert pooled.mean.sum() == 2 * 2.0 + 2 * 5.0


def test_a_positive_number_at_the_end_of_the_vector_is_a_valid_action() -> None:
    world = build()
    world.reset([KEY])
    for pooled in (False, True):
        flattening = calibrate(build(), [make_rule("maf"), make_rule("random")], KEY, 3, pooled).flattening
        features = flattening.features(world.observation)
        np.testing.assert_array_equal(
            features[:, -flattening.n_actions :] > 0, flattening.mask(world.observation)
        )


def test_the_calibration_episode_has_mean_0_and_deviation_1() -> None:
    calibration = calibrate(build(), [make_rule("maf")], KEY, 3)
    assert calibration.decisions == CONFIG.n_jobs
    world, guide = build(), make_rule("maf")
    world.reset([KEY])
    guide.begin(0, 0)
    rows: list[NDArray[np.float32]] = []
    done = False
    while not done:
        rows.append(calibration.flattening.features(world.observation)[0])
        _, ended = world.step(guide.act_batch(world.observation, np.zeros(1, np.int64)))
        done = bool(ended[0])
    fastest = 2 * N_CLUSTER_FIELDS  # under MAF the slower clusters stay empty here
    column = np.stack(rows)[:, fastest + col.USED]
    assert abs(column.mean()) < 1e-5
    assert abs(column.std() - 1.0) < 1e-4


# ---- the environment


def test_gymnasium_accepts_the_environment() -> None:
    check_env(flat_env(), skip_render_check=True)


def test_masks_are_those_of_the_first_jobs() -> None:
    env = flat_env()
    env.reset()
    n_targets = len(CONFIG.capacities) + 1
    expected = env.world.observation["action_mask"][0, : 3 * n_targets]
    np.testing.assert_array_equal(env.action_masks(), expected == 1)
    assert env.action_masks().any()
    assert env.action_space.n == 3 * n_targets  # type: ignore[attr-defined]


def test_a_window_smaller_than_asked_for_shows_all_of_its_jobs() -> None:
    assert calibrated(n_jobs=99).flattening.n_jobs == CONFIG.window


@given(st.lists(st.booleans(), min_size=1, max_size=30).filter(any), st.data())
def test_an_invalid_action_stands_for_the_next_valid_one(mask: list[bool], data: st.DataObject) -> None:
    action = data.draw(st.integers(0, len(mask) - 1))
    in_turn = [*range(action, len(mask)), *range(action)]
    assert nearest_valid(action, np.array(mask)) == next(one for one in in_turn if mask[one])


def test_an_action_without_meaning_is_refused() -> None:
    with pytest.raises(ValueError, match=r"outside 0\.\.1"):
        nearest_valid(2, np.ones(2, np.bool_))
    with pytest.raises(ValueError, match="call reset"):
        nearest_valid(0, np.zeros(2, np.bool_))


def test_any_actions_play_an_episode_whose_scaled_rewards_sum_to_the_objective() -> None:
    env = flat_env()
    env.reset()
    env.action_space.seed(0)
    total, done = 0.0, False
    info: dict[str, Any] = {}
    while not done:
        _, reward, done, truncated, info = env.step(env.action_space.sample())
        total += reward
        assert not truncated
    assert total / env.reward_scale == pytest.approx(info["metrics"]["s"], rel=1e-9)
    assert env.finished == [info["metrics"]]


def test_episodes_are_numbered_by_the_run() -> None:
    def shown(env: FlatWorldEnv, seed: int | None = None) -> NDArray[np.float32]:
        return env.reset(seed=seed)[0]

    plain = flat_env()
    episodes = [shown(plain) for _ in range(6)]
    assert not np.array_equal(episodes[0], episodes[1])
    second_of_two = flat_env(first=1, stride=2)
    np.testing.assert_array_equal(shown(second_of_two), episodes[1])
    np.testing.assert_array_equal(shown(second_of_two), episodes[3])
    resumed = flat_env()
    resumed.play_every(2, first=5)
    np.testing.assert_array_equal(shown(resumed), episodes[5])
    assert resumed._episode == 7
    np.testing.assert_array_equal(shown(resumed, seed=KEY.seed), episodes[5])


# ---- the policy and its checkpoint


def untrained(n_jobs: int = 3) -> FlatPolicy:
    torch.manual_seed(0)
    agent = LibrarySettings("sb3_dqn", "sb3_dqn", hidden_sizes=[8])
    return new_policy(agent, calibrated(n_jobs).flattening)


def test_the_policy_takes_the_best_valid_action() -> None:
    policy = untrained()
    observation = empty_observation(CONFIG.window, 5, (2,))
    with torch.no_grad():
        for parameter in policy.network.parameters():
            parameter.zero_()
        assert isinstance(policy.network, ScoreNetwork)
        last = policy.network.linears[-1]
        assert isinstance(last, torch.nn.Linear)
        last.bias.copy_(torch.arange(18.0))
    observation["action_mask"][0, [2, 7, 20]] = 1  # 20 belongs to the fourth job, which is not shown
    observation["action_mask"][1, [17, 3]] = 1
    np.testing.assert_array_equal(policy.act_batch(observation, np.arange(2)), [7, 17])


def save(path: Path, policy: FlatPolicy) -> None:
    spec = build().spec
    agent = dataclasses.asdict(LibrarySettings("sb3_dqn", "sb3_dqn", hidden_sizes=[8]))
    save_policy(path, policy, agent, spec, spec.scales, spec.weights, {})


def test_a_checkpoint_plays_the_same_actions_without_any_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("stable_baselines3", "sb3_contrib", "ray"):
        monkeypatch.setitem(sys.modules, module, None)
    policy = untrained()
    save(tmp_path / "policy.pt", policy)
    world = SliceWorld(CONFIG, 3)
    loaded = load_policy(tmp_path, world.spec)
    suite = Suite("few", "validation", seed=1, episodes=4)
    assert run_suite(world, loaded, suite) == run_suite(world, policy, suite)


def test_a_checkpoint_that_does_not_fit_is_refused_in_one_line(tmp_path: Path) -> None:
    save(tmp_path / "policy.pt", untrained(n_jobs=4))
    narrow = SliceWorld(dataclasses.replace(CONFIG, window=2)).spec
    with pytest.raises(WorldError, match="looks at 4 jobs, this world shows 2"):
        load_policy(tmp_path, narrow)
    with pytest.raises(WorldError, match="cannot be changed without retraining"):
        load_policy(tmp_path, build().spec, [1.0, 2.0, 3.0])
    fewer = SliceWorldConfig(capacities=[800, 900], hetero_factors=[70.0, 80.0], elastic=[False, False])
    with pytest.raises(CheckpointError, match="trained for 5 clusters, this world has 2"):
        load_policy(tmp_path, SliceWorld(fewer).spec)


def test_scores_of_invalid_actions_are_replaced_except_where_nothing_is_valid() -> None:
    scores = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], requires_grad=True)
    features = torch.tensor([[9.0, 1.0, 0.0, 1.0], [9.0, 0.0, 0.0, 0.0]])  # the last three are the mask
    found = masked(scores, features, -7.0)
    assert found.tolist() == [[1.0, -7.0, 3.0], [4.0, 5.0, 6.0]]
    (gradient,) = torch.autograd.grad(found.sum(), scores)
    assert gradient.tolist() == [[1.0, 0.0, 1.0], [1.0, 1.0, 1.0]]


# ---- settings and extras


@pytest.mark.parametrize(
    ("kind", "module", "extra"),
    [
        ("sb3_dqn", "stable_baselines3", "sb3"),
        ("maskable_ppo", "sb3_contrib", "sb3"),
        ("decima", "sb3_contrib", "sb3"),
        ("rllib_dqn", "ray", "rllib"),
    ],
)
def test_a_missing_extra_is_named_with_the_command_that_installs_it(
    kind: str, module: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtraError) as caught:
        require_library(kind)
    assert str(caught.value) == (
        f"agent={kind} is trained by {module}, which is not installed: pip install 'spotweave[{extra}]'"
    )
