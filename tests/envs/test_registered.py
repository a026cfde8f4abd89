"""What every registered Gymnasium environment keeps, and MultiCluster-v0 as a user meets it."""

from __future__ import annotations

import copy
import pickle
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import matplotlib as mpl
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode

from spotweave.envs.environments import ENVIRONMENTS, make, make_vector, register
from spotweave.envs.simulation.market.config import MarketWorldConfig, WorkloadConfig
from spotweave.envs.simulation.slices.config import SliceWorldConfig
from spotweave.envs.simulation.slices.world import SliceWorld
from spotweave.envs.simulation.world import WorldError
from spotweave.envs.single import WorldEnv

register()
ROOT = Path(__file__).resolve().parents[2]
REGISTERED = sorted(name for name in gym.registry if name.startswith("spotweave/"))


def test_everything_is_registered() -> None:
    assert sorted(one.gymnasium for one in ENVIRONMENTS.values() if one.gymnasium) == REGISTERED
    register()


@pytest.mark.real
@pytest.mark.parametrize(
    ("name", "settings"),
    [
        *((name, {}) for name in REGISTERED),
        ("spotweave/MultiCloud-v5", {"config": MarketWorldConfig(WorkloadConfig(federated=True))}),
    ],
)
def test_check_env_has_nothing_to_say(name: str, settings: dict[str, Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(gym.make(name, **settings).unwrapped)


@pytest.mark.parametrize("name", REGISTERED)
def test_the_vector_form_begins_like_single_environments(name: str) -> None:
    envs = gym.make_vec(name, num_envs=2)
    observation, _ = envs.reset(seed=6)
    for lane in range(2):
        single, _ = gym.make(name).reset(seed=6 + lane)
        assert_same(single, {key: array[lane] for key, array in observation.items()})
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
    sizes = {"n_steps": 32, "batch_size": 32, "n_epochs": 1}
    learner = sb3_contrib.MaskablePPO("MultiInputPolicy", env, **sizes, device="cpu")
    assert learner.learn(64).num_timesteps == 64


def begun(name: str, steps: int) -> gym.Env[Any, Any]:
    """An environment in the middle of an episode; samples of its actions are the same each time."""
    env = gym.make(name)
    env.reset(seed=3)
    env.action_space.seed(1)
    for _ in range(steps):
        assert env.step(env.action_space.sample())[0] in env.observation_space
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


def pickled(env: Any) -> Any:
    """A copy as another process gets it."""
    return pickle.loads(pickle.dumps(env))


@pytest.mark.parametrize("copied", [copy.deepcopy, pickled])
@pytest.mark.parametrize("steps", [0, 6])
@pytest.mark.parametrize("name", REGISTERED)
def test_a_copy_goes_on_alike_and_apart(name: str, steps: int, copied: Callable[[Any], Any]) -> None:
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
        assert_same(ours[0], theirs[0])
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
    # What was refused changes nothing.
    assert env.reset()[1]["index"] == 0


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
        for one, two in zip(mine[4].get("final_obs", ()), reference[4].get("final_obs", ()), strict=True):
            assert (one is None) == (two is None)
            assert_same(one or {}, two or {})
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
