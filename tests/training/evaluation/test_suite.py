"""Suites are frozen and hashed."""

import dataclasses

import pytest

from envs.simulation.world import EpisodeKey
from tests.training.fake_world import FakeWorld
from training.evaluation.episodes import SUITES, Suite, find_suite, suite_hash


def test_published_suites_have_the_promised_sizes_and_do_not_overlap() -> None:
    assert {name: suite.episodes for name, suite in SUITES.items()} == {
        "train": 30,
        "validation": 30,
        "test": 50,
    }
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


def test_unknown_suite_names_the_known_ones() -> None:
    with pytest.raises(ValueError, match="unknown suite 'tset': expected one of train, validation, test"):
        find_suite("tset")


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


def test_suite_is_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Suite("x", "test", 1, 1).seed = 2  # type: ignore[misc]
