"""Small trainers on the toy world and on the real slice world, for the tests of training."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from agents.policy import Policy
from agents.rules import make_rule
from envs.simulation.slices.config import SliceWorldConfig
from envs.simulation.slices.world import SliceWorld
from envs.simulation.world import BatchWorld, WorldSpec
from tests.agents.small import small_network
from tests.training.toy import Myopic, ToyWorld
from training.evaluation.episodes import Suite, run_suite
from training.settings import ScheduleSettings, TrainerSettings
from training.trainers.monte_carlo import MonteCarloTrainer
from training.trainers.trainer import Learner

CPU = torch.device("cpu")
SIZES: dict[str, Any] = {
    "features": "all",
    "lstm_size": 4,
    "shared_size": 32,
    "head_size": 16,
    "hidden_sizes": [32, 16],
}
TOY_SUITE = Suite("toy", "validation", seed=5, episodes=20)


def small_settings(**changes: Any) -> TrainerSettings:
    """Settings that learn the toy world within seconds."""
    settings = TrainerSettings(
        episodes=120,
        lanes=20,
        gradient_steps=3,
        batch_size=64,
        replay_capacity=4000,
        learning_rate=ScheduleSettings(3e-3, 3e-4),
    )
    for name, value in changes.items():
        setattr(settings, name, value)
    return settings


def small_learner(kind: str, spec: WorldSpec, weights: tuple[float, ...], seed: int = 0) -> Learner:
    torch.manual_seed(seed)
    network = small_network(kind, spec.n_clusters, spec.scales, weights, **SIZES)
    return Learner(network, weights, kind, CPU)


def monte_carlo(
    world: BatchWorld, settings: TrainerSettings, guide: Policy, kind: str = "rl_lsfc", seed: int = 0
) -> MonteCarloTrainer:
    learner = small_learner(kind, world.spec, world.spec.weights, seed)
    return MonteCarloTrainer(world, learner, settings, guide, seed)


def toy_monte_carlo(kind: str = "rl_lsfc", seed: int = 0, **changes: Any) -> MonteCarloTrainer:
    settings = small_settings(**changes)
    return monte_carlo(ToyWorld(settings.lanes), settings, Myopic(), kind, seed)


def slice_trainer(kind: str, seed: int = 0, guide: str = "maf", **changes: Any) -> MonteCarloTrainer:
    """A trainer on the chapter 5 world with few jobs."""
    settings = small_settings(
        **{"episodes": 12, "lanes": 3, "batch_size": 32, "replay_capacity": 100, **changes}
    )
    config = SliceWorldConfig(n_jobs=25, window=4)
    return monte_carlo(SliceWorld(config, settings.lanes), settings, make_rule(guide), kind, seed)


def toy_regret(policy: Policy) -> float:
    """Mean regret on episodes that no trainer has seen; the optimum has 0."""
    results = run_suite(ToyWorld(TOY_SUITE.episodes), policy, TOY_SUITE)
    return float(np.mean([result.metrics["regret"] for result in results]))
