"""Training from outcomes: exact resume, what is kept, and that it learns where the rule is wrong."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from agents.outcomes.features import N_FEATURES
from agents.outcomes.forward import Sizes
from agents.outcomes.network import OutcomeNetwork
from agents.outcomes.policy import Ensemble, OutcomePolicy
from envs.multicloud import build_market
from envs.simulation.market.config import MarketWorldConfig, WorkloadConfig
from envs.simulation.market.world import MarketWorld
from tests.training.trainers.test_resume import assert_same, resumed
from training.settings import OutcomeSettings, ScheduleSettings, TrainerSettings
from training.trainers.outcomes import OutcomeTrainer

JOBS = 8


def small_world(number: int) -> MarketWorld:
    return build_market(MarketWorldConfig(WorkloadConfig(jobs=JOBS)), 3)


def untrained(lstm: int = 0) -> OutcomePolicy:
    return OutcomePolicy(Ensemble(2, Sizes(4, lstm)), (25.0, 5.0, 0.25, 1.0, 0.36), "outcomes")


def a_trainer(seed: int = 0, lstm: int = 0, **changes: Any) -> OutcomeTrainer:
    settings = TrainerSettings(
        episodes=12,
        lanes=3,
        gradient_steps=2,
        batch_size=32,
        replay_capacity=400,
        learning_rate=ScheduleSettings(3e-3, 3e-4),
        epsilon_1=ScheduleSettings(0.3, 0.3),
        outcomes=OutcomeSettings(self_play_share=0.5, kept_per_episode=20),
    )
    for name, value in changes.items():
        setattr(settings, name, value)
    return OutcomeTrainer(small_world, untrained(lstm), settings, seed, torch.device("cpu"))


@pytest.mark.parametrize("lstm", [0, 3])
def test_resume_is_exact(tmp_path: Path, lstm: int) -> None:
    straight = a_trainer(lstm=lstm)
    reports = [straight.round() for _ in range(4)]
    other, other_reports = resumed(partial(a_trainer, lstm=lstm), tmp_path / "state.pt")
    assert_same(straight.state_dict(), other.state_dict())
    assert reports == other_reports


def test_a_round_is_played_before_the_first_is_learned_from() -> None:
    trainer = a_trainer()
    losses, trained, kept = [], [], []
    for _ in range(2):
        losses.append(trainer.round().losses)
        trained.append(trainer.policy.network.trained)
        kept.append(trainer.replay.size)
    assert losses[0] == {}
    assert losses[1]["usd"] > 0.0
    assert trained == [False, True]
    assert kept[0] < kept[1]


def test_a_part_of_each_episode_is_kept_and_what_was_tried_comes_first() -> None:
    trainer = a_trainer()
    trainer.round()
    assert 3 * JOBS < trainer.replay.size <= 3 * 20
    assert np.isfinite(trainer.replay.features[: trainer.replay.size]).all()
    targets = trainer.replay.targets[: trainer.replay.size]
    assert np.isfinite(targets[:, :3]).all()
    assert ((targets[:, 3] >= 0) | np.isnan(targets[:, 3])).all()


@pytest.mark.real
def test_what_is_regular_is_learned() -> None:
    """Targets that follow from one feature: the error falls to a small part of their variance."""
    trainer = a_trainer(gradient_steps=200)
    trainer.round()
    features = trainer.replay.features
    trainer.replay.targets[:, 0] = np.where(features[:, 1] > 0, 1.0, -1.0)
    trainer.replay.targets[:, 1:3] = 0.0
    trainer._learn(3e-3)
    # Predicting nothing has a loss of 1 for the sum and half of that for the part.
    assert trainer._learn(3e-3)["usd"] < 0.15 * 1.5


def trained_before(seed: int = 0) -> OutcomeTrainer:
    """A trainer whose policy is trained already, by two rounds of another one."""
    source = a_trainer()
    source.round()
    source.round()
    policy = untrained()
    policy.network.set_vectors(source.policy.network.vectors)
    settings = source.settings
    settings.outcomes = OutcomeSettings(self_play_share=0.0, kept_per_episode=20)
    return OutcomeTrainer(small_world, policy, settings, seed, torch.device("cpu"))


def test_a_vector_is_put_back_as_it_was() -> None:
    vectors = trained_before().policy.network.vectors
    for vector in vectors:
        network = OutcomeNetwork(Sizes(4, 0))
        network.set_vector(vector)
        assert np.array_equal(network.vector(), vector)
    with pytest.raises(ValueError, match=rf"expected {len(vectors[0])} weights, got 3"):
        OutcomeNetwork(Sizes(4, 0)).set_vector(vectors[0][:3])


def test_a_trained_policy_goes_on_from_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = trained_before()
    before = trainer.policy.network.vectors.copy()
    rules: list[bool] = []
    real = OutcomePolicy.explore

    def explore(self: OutcomePolicy, *arguments: Any) -> Any:
        rules.append(len(arguments) > 4 and arguments[4])
        return real(self, *arguments)

    monkeypatch.setattr(OutcomePolicy, "explore", explore)
    trainer.round()
    trainer.round()
    after = trainer.policy.network.vectors
    # It plays itself from the first decision on, and its scaler is not fitted again.
    assert rules
    assert not any(rules)
    assert np.array_equal(after[:, : 2 * N_FEATURES], before[:, : 2 * N_FEATURES])
    assert 0.0 < np.abs(after - before).max() < 0.1


@pytest.mark.real
def test_resume_after_such_a_start_is_exact(tmp_path: Path) -> None:
    straight = trained_before()
    reports = [straight.round() for _ in range(4)]
    other, other_reports = resumed(trained_before, tmp_path / "state.pt")
    assert_same(straight.state_dict(), other.state_dict())
    assert reports == other_reports
