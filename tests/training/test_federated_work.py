"""A policy for Spark jobs and federated applications in one market: what it learns, and whom it follows."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

from agents.rules import make_rule
from agents.settings import MTDQNSettings
from envs.environments import ENVIRONMENTS
from envs.simulation import columns as col
from envs.simulation.market.config import MarketWorldConfig, WorkloadConfig
from envs.simulation.snapshot import Category
from envs.simulation.world import EpisodeKey
from training.checkpoint import load_policy, save_policy
from training.settings import TrainerSettings
from training.trainers.build import build_trainer
from training.trainers.trainer import Task

ENTRY = ENVIRONMENTS["multicloud"]
TINY = TrainerSettings(
    episodes=2, lanes=2, gradient_steps=1, batch_size=16, replay_capacity=2000, guide="expected_cost"
)


@pytest.mark.parametrize("federated", [False, True])
def test_a_checkpoint_of_either_world_acts_in_both(federated: bool, tmp_path: Path) -> None:
    config = MarketWorldConfig(WorkloadConfig(jobs=6, federated=federated))
    agent = MTDQNSettings("mtdqn", "mtdqn", guide="expected_cost", own_size=4)
    trainer, scales, weights = build_trainer(Task(ENTRY, config, agent, TINY, 1, torch.device("cpu")))
    assert trainer.round().episodes == 2
    spec = ENTRY.build(config, 1).spec
    file = tmp_path / "policy.pt"
    save_policy(file, trainer.policy, dataclasses.asdict(agent), spec, scales, weights, {"seed": 1})
    for other in (False, True):
        world = ENTRY.build(MarketWorldConfig(WorkloadConfig(jobs=6, federated=other)), 4)
        world.reset([EpisodeKey(1, "validation", lane) for lane in range(4)])
        lanes = np.arange(4)
        np.testing.assert_array_equal(
            load_policy(file, world.spec).act_batch(world.observation, lanes),
            trainer.policy.act_batch(world.observation, lanes),
        )


def test_tasks_that_train_in_rounds_go_where_their_rule_puts_them() -> None:
    config = MarketWorldConfig(WorkloadConfig(jobs=6, federated=True))
    agent = MTDQNSettings("mtdqn", "mtdqn", guide="expected_cost", own_size=4)
    trainer, _, _ = build_trainer(Task(ENTRY, config, agent, TINY, 1, torch.device("cpu")))
    trainer.round()
    world, rule = ENTRY.build(config, 4), make_rule("expected_cost")
    world.reset([EpisodeKey(2, "validation", lane) for lane in range(4)])
    lanes, active, asked = np.arange(4), np.ones(4, np.bool_), 0
    n_targets = world.spec.n_clusters + 1
    while active.any():
        expected = rule.act_lanes(world.observation, lanes[active])
        actions = np.zeros(4, np.int64)
        actions[active] = expected
        decided = world.observation["jobs"][lanes[active], expected // n_targets, col.CATEGORY]
        federated = decided == Category.FEDERATED
        chosen = trainer.policy.act_lanes(world.observation, lanes[active])
        np.testing.assert_array_equal(chosen[federated], expected[federated])
        asked += int(federated.sum())
        _, done = world.step(actions, active)
        active &= ~done
    assert asked > 0
