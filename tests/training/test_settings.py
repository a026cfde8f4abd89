"""Schedules by hand, and settings that cannot train are refused in one line that names them."""

from __future__ import annotations

import math
from typing import Any

import pytest

from agents.registry import OURS
from training.config import UsageError, agent_settings, plain, typed
from training.settings import ScheduleSettings, TrainerSettings

NAN = math.nan


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        # Linear over the first half, then constant.
        (ScheduleSettings(0.8, 0.0, 0.5), {0.0: 0.8, 0.25: 0.4, 0.5: 0.0, 1.0: 0.0}),
        (ScheduleSettings(1e-4, 1e-5, 2 / 3, "step"), {0.0: 1e-4, 0.66: 1e-4, 0.67: 1e-5, 1.0: 1e-5}),
        (ScheduleSettings(0.5, 0.5), {0.0: 0.5, 0.7: 0.5}),
        (ScheduleSettings(0.3, 0.1, 0.0), {0.0: 0.1, 1.0: 0.1}),
        (ScheduleSettings(0.0, 1.0), {0.0: 0.0, 1.5: 1.0}),  # a last round may overshoot the episodes
    ],
)
def test_schedules(schedule: ScheduleSettings, expected: dict[float, float]) -> None:
    for progress, value in expected.items():
        assert schedule.at(progress) == pytest.approx(value), progress


def trainer(**changes: Any) -> TrainerSettings:
    return typed(TrainerSettings, {**plain(TrainerSettings()), **changes}, "trainer")


def test_the_defaults_can_train() -> None:
    assert trainer() == TrainerSettings()


@pytest.mark.parametrize("kind", OURS)
def test_the_defaults_of_every_agent_are_allowed(kind: str) -> None:
    defaults = OURS[kind].defaults(kind)
    assert agent_settings(plain(defaults)) == defaults


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"episodes": 0}, r"trainer\.episodes is 0: input should be greater than or equal to 1"),
        ({"lanes": -2}, r"trainer\.lanes is -2"),
        ({"gradient_steps": 0}, r"trainer\.gradient_steps is 0"),
        ({"batch_size": 0}, r"trainer\.batch_size is 0"),
        ({"validation_every": 0}, r"trainer\.validation_every is 0"),
        ({"validation_episodes": 0}, r"trainer\.validation_episodes is 0"),
        ({"batch_size": 100, "replay_capacity": 50}, r"replay_capacity \(50\) is smaller than .*\(100\)"),
        ({"test_episodes": 1}, r"trainer: test_episodes is 1: expected at least 2, or 0"),
        ({"test_episodes": -1}, r"trainer\.test_episodes is -1"),
        ({"epsilon_1": {"start": 1.2}}, r"trainer\.epsilon_1: expected numbers in 0\.\.1, got 1\.2 to 0\.0"),
        ({"epsilon_1": {"start": NAN}}, r"trainer\.epsilon_1"),
        ({"epsilon_2": {"start": 0.5, "end": -0.1}}, r"trainer\.epsilon_2.* 0\.5 to -0\.1"),
        ({"learning_rate": {"start": 0.0}}, r"trainer\.learning_rate: expected positive numbers"),
        ({"learning_rate": {"start": 1e-3, "end": NAN}}, r"trainer\.learning_rate"),
        ({"target_clip": NAN}, r"trainer\.target_clip is nan"),
        ({"multi_target": {"follow_share": 1.5}}, r"trainer\.multi_target\.follow_share is 1\.5"),
        ({"multi_target": {"kept_per_episode": -1}}, r"trainer\.multi_target\.kept_per_episode is -1"),
        ({"multi_target": {"taste": 0.0}}, r"trainer\.multi_target\.taste is 0\.0"),
    ],
)
def test_trainers_that_cannot_train_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        trainer(**changes)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "changes", "message"),
    [
        ("rl_lsfc", {"lstm_size": 0}, r"agent\.lstm_size is 0: input should be greater than or equal to 1"),
        ("mtdqn", {"own_size": -1}, r"agent\.own_size is -1"),
        ("mtdqn", {"margin": -0.1}, r"agent\.margin is -0\.1"),
        (
            "rl_fc",
            {"hidden_sizes": [10]},
            r"agent\.hidden_sizes is \[10\]: list should",
        ),
        ("rl_fc", {"hidden_sizes": [10, 0]}, r"agent\.hidden_sizes\.1 is 0"),
        ("rl_fc", {"weights": [1.0, NAN, 1.0]}, r"agent\.weights\.1 is nan: input should be a finite number"),
        ("rl_lsfc", {"scales": [1.0, 0.0]}, r"agent\.scales\.1 is 0\.0: input should be greater than 0"),
        ("mtdqn", {"shared_size": 64}, r"unknown key agent\.shared_size"),
        ("sb3_dqn", {"jobs": 0}, r"agent\.jobs is 0"),
        ("sb3_dqn", {"learning_starts": -1}, r"agent\.learning_starts is -1"),
        ("sb3_dqn", {"discount": 1.5}, r"agent\.discount is 1\.5"),
        ("sb3_dqn", {"hidden_sizes": []}, r"agent\.hidden_sizes is \[\]"),
    ],
)
def test_agents_that_cannot_be_built_are_refused(kind: str, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        agent_settings({"name": kind, "kind": kind, **changes})
    assert "\n" not in str(caught.value)
