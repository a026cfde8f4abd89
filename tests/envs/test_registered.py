"""Every registered environment passes Gymnasium's own checker without a warning."""

from __future__ import annotations

import warnings

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from envs.environments import ENVIRONMENTS
from envs.registration import register

register()
REGISTERED = sorted(name for name in gym.registry if name.startswith("spotweave/"))


def test_everything_is_registered() -> None:
    assert sorted(one.gymnasium[0] for one in ENVIRONMENTS.values() if one.gymnasium) == REGISTERED
    register()


@pytest.mark.real
@pytest.mark.parametrize("name", REGISTERED)
def test_check_env_has_nothing_to_say(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(gym.make(name).unwrapped)


@pytest.mark.parametrize("name", REGISTERED)
def test_the_class_docstring_is_a_page_of_documentation(name: str) -> None:
    page = gym.make(name).unwrapped.__doc__ or ""
    for heading in (
        "Action Space",
        "Observation Space",
        "Rewards",
        "Starting State",
        "Episode End",
        "Arguments",
    ):
        assert f"## {heading}" in page
    assert "## References" in page


@pytest.mark.parametrize("name", REGISTERED)
def test_the_vector_form_begins_like_single_environments(name: str) -> None:
    envs = gym.make_vec(name, num_envs=2)
    observation, _ = envs.reset(seed=6)
    for lane in range(2):
        single, _ = gym.make(name).reset(seed=6 + lane)
        for key, array in single.items():
            np.testing.assert_array_equal(observation[key][lane], array, err_msg=key)
    envs.close()
