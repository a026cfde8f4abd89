"""Played episodes are kept by everything they depend on."""

from __future__ import annotations

from pathlib import Path

import pytest

from agents.policy import Policy
from tests.training.fake_world import Clairvoyant, FakeWorld, Fixed
from training.evaluation.episodes import Suite, run_suite
from training.studies.evaluations import EvaluationCache, Played

SUITE = Suite("small", "validation", seed=5, episodes=6)
FACTS = {"name": "fake"}


def not_again() -> Policy:
    raise AssertionError("played again")


def play(cache: EvaluationCache, make: object = Clairvoyant, **changes: object) -> Played:
    given = {"world_facts": FACTS, "suite": SUITE, "identity": "clairvoyant", **changes}
    return cache.play(FakeWorld(3), make_policy=make, **given)  # type: ignore[arg-type]


def test_what_was_played_is_the_suite_exactly_and_is_not_played_again(tmp_path: Path) -> None:
    cache = EvaluationCache(tmp_path, "v1")
    first = play(cache)
    expected = run_suite(FakeWorld(1), Clairvoyant(), SUITE)
    assert first.values("score").tolist() == [result.metrics["score"] for result in expected]
    assert list(first.decisions) == [result.decisions for result in expected]
    again = play(EvaluationCache(tmp_path, "v1"), not_again)
    assert again.metrics == first.metrics


@pytest.mark.parametrize(
    "changes",
    [
        {"identity": "fixed"},
        {"suite": Suite("small", "validation", seed=5, episodes=7)},
        {"suite": Suite("small", "test", seed=5, episodes=6)},
        {"world_facts": {"name": "fake", "n_jobs": 3}},
    ],
)
def test_anything_else_is_played(changes: dict[str, object], tmp_path: Path) -> None:
    cache = EvaluationCache(tmp_path, "v1")
    play(cache)
    with pytest.raises(AssertionError, match="played again"):
        play(cache, not_again, **changes)


def test_another_version_of_the_code_is_played(tmp_path: Path) -> None:
    play(EvaluationCache(tmp_path, "v1"))
    with pytest.raises(AssertionError, match="played again"):
        play(EvaluationCache(tmp_path, "v2"), not_again)


def test_a_failed_evaluation_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="action mask"):
        play(EvaluationCache(tmp_path, "v1"), lambda: Fixed(3))
    assert list(tmp_path.iterdir()) == []
