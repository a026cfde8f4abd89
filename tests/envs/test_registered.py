"""What every registered Gymnasium environment keeps, whatever it simulates."""

from __future__ import annotations

import copy
import pickle
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from envs.environments import ENVIRONMENTS, register

register()
ROOT = Path(__file__).resolve().parents[2]
REGISTERED = sorted(name for name in gym.registry if name.startswith("spotweave/"))


def test_everything_is_registered() -> None:
    assert sorted(one.gymnasium for one in ENVIRONMENTS.values() if one.gymnasium) == REGISTERED
    register()


@pytest.mark.real
@pytest.mark.parametrize("name", REGISTERED)
def test_check_env_has_nothing_to_say(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(gym.make(name).unwrapped)


@pytest.mark.parametrize("name", REGISTERED)
def test_the_vector_form_begins_like_single_environments(name: str) -> None:
    envs = gym.make_vec(name, num_envs=2)
    observation, _ = envs.reset(seed=6)
    for lane in range(2):
        single, _ = gym.make(name).reset(seed=6 + lane)
        for key, array in single.items():
            np.testing.assert_array_equal(observation[key][lane], array, err_msg=key)
    envs.close()


@pytest.mark.parametrize("name", REGISTERED)
def test_an_array_of_one_integer_is_that_action_and_anything_else_is_refused(name: str) -> None:
    env = gym.make(name, disable_env_checker=True).unwrapped
    observation, _ = env.reset(seed=1)
    valid = int(np.flatnonzero(env.action_masks())[0])  # type: ignore[attr-defined]
    before = {key: array.copy() for key, array in observation.items()}
    for wrong in (2.7, "3", None, True, 2**70, [], [valid, valid], [[1], [2, 3]], np.array([0.0]), -1, 10**6):
        with pytest.raises(ValueError) as refused:
            env.step(wrong)
        assert "\n" not in str(refused.value)
        assert all((env.world.observation[key][0] == before[key]).all() for key in before)  # type: ignore[attr-defined]
    twin = gym.make(name, disable_env_checker=True).unwrapped
    twin.reset(seed=1)
    for shape in ((), (1,), (1, 1)):
        valid = int(np.flatnonzero(env.action_masks())[0])  # type: ignore[attr-defined]
        again = env.step(np.full(shape, valid))
        assert again[1] == twin.step(valid)[1]
        if again[2] or again[3]:
            break


def test_a_vector_takes_a_column_of_integers_and_no_floats() -> None:
    envs = gym.make_vec("spotweave/Bags-v0", num_envs=2)
    observation, _ = envs.reset(seed=6)
    valid = observation["action_mask"].argmax(axis=1)
    with pytest.raises(ValueError, match="expected 2 integers"):
        envs.step(valid.astype(np.float64))
    envs.step(valid[:, None])
    envs.close()


@pytest.mark.real
def test_maskable_ppo_works_as_its_documentation_says() -> None:
    sb3_contrib = pytest.importorskip("sb3_contrib")
    env = gym.make("spotweave/MultiCluster-v0")
    learner = sb3_contrib.MaskablePPO(
        "MultiInputPolicy", env, n_steps=32, batch_size=32, n_epochs=1, device="cpu"
    )
    assert learner.learn(64).num_timesteps == 64


def begun(name: str, steps: int) -> gym.Env[Any, Any]:
    """An environment in the middle of an episode; samples of its actions are the same each time."""
    env = gym.make(name)
    env.reset(seed=3)
    env.action_space.seed(1)
    for _ in range(steps):
        env.step(env.action_space.sample())
    return env


def played(env: gym.Env[Any, Any], steps: int) -> list[Any]:
    """Rewards, ends and masks of the next steps at random."""
    found: list[Any] = []
    for _ in range(steps):
        observation, reward, terminated, truncated, _ = env.step(env.action_space.sample())
        found.append((reward, terminated, truncated, observation["action_mask"].tobytes()))
        if terminated or truncated:
            break
    return found


def pickled(env: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
    """A copy as another process gets it."""
    copied: gym.Env[Any, Any] = pickle.loads(pickle.dumps(env))
    return copied


@pytest.mark.parametrize("copied", [copy.deepcopy, pickled])
@pytest.mark.parametrize("steps", [0, 6])
@pytest.mark.parametrize("name", REGISTERED)
def test_a_copy_goes_on_alike_and_apart(
    name: str, steps: int, copied: Callable[[gym.Env[Any, Any]], gym.Env[Any, Any]]
) -> None:
    env = begun(name, steps)
    first = copied(env)
    ahead = played(first, 8)
    assert played(copied(env), 8) == ahead
    assert played(env, 8) == ahead


@pytest.mark.parametrize("copied", [copy.deepcopy, pickled])
@pytest.mark.parametrize("name", REGISTERED)
def test_a_copied_vector_goes_on_alike(name: str, copied: Callable[[Any], Any]) -> None:
    vector = gym.make_vec(name, num_envs=2)
    vector.reset(seed=5)
    vector.action_space.seed(2)
    other = copied(vector)
    for _ in range(4):
        ours = vector.step(vector.action_space.sample())
        theirs = other.step(other.action_space.sample())
        np.testing.assert_array_equal(ours[1], theirs[1])
        for column in ours[0]:
            np.testing.assert_array_equal(ours[0][column], theirs[0][column])
    vector.close()
    other.close()


@pytest.mark.parametrize("name", REGISTERED)
def test_documented_shapes_are_those_of_the_spaces(name: str) -> None:
    page = (ROOT / "docs" / "environments.md").read_text()
    [row] = re.findall(rf"^\| \[?`{name}`.*?\| `\w+` \| (\d+) \| (\d+) \|", page, re.MULTILINE)
    sizes = dict(zip("JC", map(int, row), strict=True))
    env = gym.make(name).unwrapped
    spaces: dict[str, Any] = env.observation_space.spaces  # type: ignore[attr-defined]
    for column, space in spaces.items():
        written = re.search(rf"^\| `{column}` \| (\(.*?\)) \|", page, re.MULTILINE)
        assert written is not None, column
        assert eval(written[1].replace("·", "*"), {}, sizes) == space.shape, column
    assert sizes["J"] * (sizes["C"] + 1) == env.action_space.n  # type: ignore[attr-defined]
