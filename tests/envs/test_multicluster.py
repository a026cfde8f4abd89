"""`spotweave/MultiCluster-v0`, single and vectorised, as a user of Gymnasium meets it."""

from __future__ import annotations

import copy
from typing import Any

import gymnasium as gym
import matplotlib as mpl
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from envs.environments import make, make_vector, register
from envs.simulation.slices.config import SliceWorldConfig
from envs.simulation.slices.world import SliceWorld
from envs.simulation.world import WorldError
from envs.single import WorldEnv

register()
SHORT = SliceWorldConfig(n_jobs=8)


def short_env(**kwargs: Any) -> WorldEnv:
    return make("multicluster", SliceWorldConfig(n_jobs=8), **kwargs)


def finish(env: WorldEnv) -> tuple[float, dict[str, Any]]:
    """Oldest job to cluster 3 until the end: the return and the last info."""
    total, terminated = 0.0, False
    info: dict[str, Any] = {}
    while not terminated:
        _, reward, terminated, truncated, info = env.step(2)
        assert not truncated
        total += reward
    return total, info


def assert_same(one: Any, two: Any) -> None:
    for name in one:
        np.testing.assert_array_equal(one[name], two[name], err_msg=name)


def test_the_loop_of_every_tutorial_runs() -> None:
    env = gym.make("spotweave/MultiCluster-v0", config=SHORT)
    env.action_space.seed(0)
    observation, _ = env.reset(seed=42)
    total, ended = 0.0, False
    while not ended:
        observation, reward, terminated, truncated, info = env.step(env.action_space.sample())
        assert observation in env.observation_space
        total += float(reward)
        ended = terminated or truncated
    assert total == pytest.approx(info["metrics"]["s"])


def test_resets_count_the_episodes_of_a_seed() -> None:
    env, other = short_env(), short_env()
    first, info = env.reset(seed=5)
    assert (info["seed"], info["split"], info["index"]) == (5, "train", 0)
    second, info = env.reset()
    assert info["index"] == 1
    assert (first["pairs"] != second["pairs"]).any()
    chosen, info = other.reset(seed=5, options={"split": "train", "index": 1})
    assert_same(chosen, second)
    held_out, info = other.reset(options={"split": "test"})
    assert (info["split"], info["index"]) == ("test", 0)
    assert (held_out["pairs"] != first["pairs"]).any()
    again, _ = env.reset(seed=5)
    assert_same(again, first)


def test_without_a_seed_episodes_differ() -> None:
    seeds = {short_env().reset()[1]["seed"] for _ in range(3)}
    assert len(seeds) == 3


def test_wrong_options_are_named() -> None:
    env = short_env()
    with pytest.raises(ValueError, match="unknown reset option 'splits'"):
        env.reset(options={"splits": "test"})
    with pytest.raises(ValueError, match="unknown split 'tset'"):
        env.reset(options={"split": "tset"})
    with pytest.raises(ValueError, match="must be >= 0, got -2"):
        env.reset(options={"index": -2})


def test_observations_belong_to_the_user() -> None:
    env = short_env()
    observation, _ = env.reset(seed=1)
    kept = copy.deepcopy(observation)
    env.step(0)
    assert_same(observation, kept)


def test_misuse_is_answered_clearly() -> None:
    env = short_env()
    with pytest.raises(gym.error.ResetNeeded, match="call reset"):
        env.step(0)
    env.reset(seed=1)
    with pytest.raises(ValueError, match="needs allow_none=True"):
        env.step(5)
    finish(env)
    with pytest.raises(gym.error.ResetNeeded, match="call reset"):
        env.step(0)
    with pytest.raises(ValueError, match="unknown render_mode 'ansi'"):
        short_env(render_mode="ansi")
    with pytest.raises(WorldError, match="the workload is empty"):
        make("multicluster", SliceWorldConfig(n_jobs=0))


def test_samples_are_valid_now() -> None:
    env = short_env()
    env.reset(seed=3)
    env.action_space.seed(1)
    mask = env.world.observation["action_mask"][0]
    drawn = {int(env.action_space.sample()) for _ in range(300)}
    assert drawn == set(np.flatnonzero(mask).tolist())
    only = np.zeros(len(mask), np.int8)
    only[7] = 1
    assert env.action_space.sample(mask=only) == 7


def test_the_picture_is_an_image() -> None:
    env = short_env(render_mode="rgb_array")
    env.reset(seed=2)
    blank = env.render()
    finish(env)
    picture = env.render()
    assert isinstance(blank, np.ndarray)
    assert isinstance(picture, np.ndarray)
    assert picture.dtype == np.uint8
    assert picture.ndim == 3
    assert (picture != blank).any()


@pytest.mark.real
def test_human_mode_shows_the_same_picture() -> None:
    mpl.use("Agg")
    env = short_env(render_mode="human")
    env.reset(seed=2)
    finish(env)
    assert env.render() is None
    shown = env._window.get_array()
    env.close()
    env.close()
    recorded = short_env(render_mode="rgb_array")
    recorded.reset(seed=2)
    finish(recorded)
    np.testing.assert_array_equal(shown, recorded.render())


@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP])
def test_the_vector_form_equals_single_environments(mode: AutoresetMode) -> None:
    """Compared with Gymnasium's own SyncVectorEnv over single environments, infos included."""
    ours = make_vector("multicluster", 3, SHORT, autoreset_mode=mode)
    theirs = gym.vector.SyncVectorEnv([short_env] * 3, autoreset_mode=mode)
    assert ours.observation_space == theirs.observation_space
    assert_same(ours.reset(seed=9)[0], theirs.reset(seed=9)[0])
    rng = np.random.default_rng(0)
    endings = 0
    for _ in range(40):
        actions = rng.integers(0, 5, 3)
        mine: Any = ours.step(actions)
        reference: Any = theirs.step(actions)
        assert_same(mine[0], reference[0])
        for k in (1, 2, 3):
            np.testing.assert_array_equal(mine[k], reference[k])
        np.testing.assert_array_equal(mine[4]["action_mask"], reference[4]["action_mask"])
        assert ("final_info" in mine[4]) == ("final_info" in reference[4])
        holder, expected = mine[4].get("final_info", mine[4]), reference[4].get("final_info", reference[4])
        if "metrics" in expected:
            endings += 1
            assert_same(holder["metrics"], expected["metrics"])
            np.testing.assert_array_equal(holder["_metrics"], expected["_metrics"])
        if "final_obs" in reference[4]:
            for one, two in zip(mine[4]["final_obs"], reference[4]["final_obs"], strict=True):
                assert (one is None) == (two is None)
                if one is not None:
                    assert_same(one, two)
    assert endings >= 3


def test_make_vec_uses_the_vector_form() -> None:
    envs = gym.make_vec("spotweave/MultiCluster-v0", num_envs=4, config=SHORT, autoreset_mode="SameStep")
    assert type(envs.unwrapped).__name__ == "WorldVectorEnv"
    assert envs.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    observation, infos = envs.unwrapped.reset(seed=[1, 2, 1, 2])
    np.testing.assert_array_equal(observation["jobs"][0], observation["jobs"][2])
    assert observation in envs.observation_space
    assert infos["action_mask"].shape == (4, 96)
    for _ in range(20):
        observation, _, _, _, infos = envs.step(envs.action_space.sample())
        assert observation in envs.observation_space
    envs.close()


def test_single_lanes_can_be_reset_alone() -> None:
    envs = make_vector("multicluster", 2, SHORT, AutoresetMode.SAME_STEP)
    before, _ = envs.reset(seed=4)
    after, infos = envs.reset(options={"reset_mask": np.array([False, True])})
    np.testing.assert_array_equal(before["jobs"][0], after["jobs"][0])
    assert (before["jobs"][1] != after["jobs"][1]).any()
    assert infos["_action_mask"].tolist() == [False, True]


def test_vector_misuse_is_answered_clearly() -> None:
    envs = make_vector("multicluster", 2, SHORT, AutoresetMode.SAME_STEP)
    with pytest.raises(gym.error.ResetNeeded):
        envs.step(np.zeros(2, np.int64))
    with pytest.raises(ValueError, match="3 seeds for 2 environments"):
        envs.reset(seed=[1, 2, 3])
    with pytest.raises(ValueError, match="reset_mask must be bool"):
        envs.reset(options={"reset_mask": np.array([1, 0])})
    envs.reset(seed=1)
    with pytest.raises(ValueError, match="action 5 of lane 1 is invalid"):
        envs.step(np.array([0, 5]))
    with pytest.raises(ValueError, match="expected 2 integers"):
        envs.step(np.zeros(3, np.int64))
    with pytest.raises(ValueError, match="is not supported"):
        make_vector("multicluster", 2, SHORT, autoreset_mode=AutoresetMode.DISABLED)


def test_a_single_environment_needs_one_lane() -> None:
    with pytest.raises(ValueError, match="one lane, got 2"):
        WorldEnv(SliceWorld(SHORT, 2))


def test_loads_are_worlds_that_differ_in_nothing_else() -> None:
    config = SliceWorldConfig(n_jobs=8, strict_fifo=True, loads=[45, 22])
    for split in ("train", "validation"):
        members = config.members_of(split)
        assert [member.workload.arrivals.b for member in members] == [45, 22]
        for member in members:
            member.workload.arrivals.b = 33
            assert member == SliceWorldConfig(n_jobs=8, strict_fifo=True)
    alone = SliceWorldConfig()
    assert alone.members_of("train") == [alone]


@pytest.mark.parametrize(
    ("loads", "pattern", "message"),
    [
        ([], "uniform", r"loads must name at least one b >= 1 .*, each once, got \[\]"),
        ([33, -5], "uniform", r"b >= 1 .* got \[33, -5\]"),
        ([33, 33], "uniform", r"each once, got \[33, 33\]"),
        ([33], "poisson", "loads need uniform arrivals, got 'poisson'"),
    ],
)
def test_loads_that_make_no_sense_are_refused(loads: list[int], pattern: str, message: str) -> None:
    config = SliceWorldConfig(loads=loads)
    config.workload.arrivals.pattern = pattern
    with pytest.raises(WorldError, match=message):
        config.members_of("train")


def test_several_loads_are_no_world_to_play_in() -> None:
    with pytest.raises(WorldError, match=r"loads \[22, 33\] stand for several worlds .* leave loads out"):
        SliceWorld(SliceWorldConfig(loads=[22, 33]))
