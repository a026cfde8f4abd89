"""Schedules by hand, and settings that cannot train are refused in one line that names them."""

from __future__ import annotations

import math
from typing import Any

import pytest

from envs.simulation.world import WorldError
from training.settings import (
    AgentSettings,
    CounterfactualSettings,
    ScheduleSettings,
    TrainerSettings,
    check_agent,
    check_trainer,
)

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


def test_the_defaults_can_train() -> None:
    check_trainer(TrainerSettings())
    check_agent(AgentSettings())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"episodes": 0}, r"trainer\.episodes is 0: expected at least 1"),
        ({"lanes": -2}, r"trainer\.lanes is -2"),
        ({"gradient_steps": 0}, r"trainer\.gradient_steps is 0"),
        ({"batch_size": 0}, r"trainer\.batch_size is 0"),
        ({"validation_every": 0}, r"trainer\.validation_every is 0"),
        ({"validation_episodes": 0}, r"trainer\.validation_episodes is 0"),
        ({"batch_size": 100, "replay_capacity": 50}, r"replay_capacity \(50\) is smaller than .*\(100\)"),
        ({"test_episodes": 1}, r"trainer\.test_episodes is 1: expected at least 2, or 0"),
        ({"test_episodes": -1}, r"trainer\.test_episodes is -1"),
        ({"epsilon_1": ScheduleSettings(1.2, 0.0)}, r"trainer\.epsilon_1 must stay within 0\.\.1"),
        ({"epsilon_1": ScheduleSettings(NAN, 0.0)}, r"trainer\.epsilon_1"),
        ({"epsilon_2": ScheduleSettings(0.5, -0.1)}, r"trainer\.epsilon_2 .* 0\.5 to -0\.1"),
        ({"learning_rate": ScheduleSettings(0.0, 0.0)}, r"trainer\.learning_rate must be positive"),
        ({"learning_rate": ScheduleSettings(1e-3, NAN)}, r"trainer\.learning_rate"),
        ({"target_clip": NAN}, r"trainer\.target_clip is nan"),
        (
            {"counterfactual": CounterfactualSettings(copies=8)},
            r"counterfactual\.copies is 8: .*candidates \(24\)",
        ),
        ({"counterfactual": CounterfactualSettings(candidates=1)}, r"counterfactual\.candidates is 1"),
        (
            {"counterfactual": CounterfactualSettings(states_per_episode=0)},
            r"counterfactual\.states_per_episode is 0: expected at least 1",
        ),
        ({"counterfactual": CounterfactualSettings(further_arrivals=-1)}, r"further_arrivals is -1"),
    ],
)
def test_trainers_that_cannot_train_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(WorldError, match=message) as caught:
        check_trainer(TrainerSettings(**changes))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lstm_size": 0}, r"agent\.lstm_size is 0: expected at least 1"),
        ({"pair_size": -3}, r"agent\.pair_size is -3"),
        ({"hidden_sizes": [10]}, r"agent\.hidden_sizes is \[10\]: expected two sizes"),
        ({"hidden_sizes": [10, 0]}, r"agent\.hidden_sizes"),
        ({"weights": [1.0, NAN, 1.0]}, r"agent\.weights is \[1\.0, nan, 1\.0\]: expected finite numbers"),
        ({"weights": [math.inf]}, r"agent\.weights"),
        ({"scales": [1.0, 0.0]}, r"agent\.scales is \[1\.0, 0\.0\]: expected positive numbers"),
        ({"scales": [NAN]}, r"agent\.scales"),
    ],
)
def test_agents_that_cannot_be_built_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(WorldError, match=message) as caught:
        check_agent(AgentSettings(**changes))
    assert "\n" not in str(caught.value)
