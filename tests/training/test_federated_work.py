"""A policy for a world with federated applications sees how their rounds stand."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

from agents.networks.pairwise import PairwiseNetwork
from agents.settings import PairwiseSettings, RLLSFCSettings
from agents.value_policy import ValuePolicy
from envs.environments import ENVIRONMENTS
from envs.multicloud import MarketWorldConfig
from envs.simulation import columns as col
from envs.simulation.market.config import WorkloadConfig
from envs.simulation.snapshot import N_JOB_FIELDS
from envs.simulation.world import EpisodeKey
from training.checkpoint import load_policy, save_policy
from training.settings import CounterfactualSettings, TrainerSettings
from training.trainers.build import build_trainer, suited
from training.trainers.trainer import Task

ENTRY = ENVIRONMENTS["multicloud"]
TINY = TrainerSettings(
    episodes=2,
    lanes=2,
    gradient_steps=1,
    batch_size=16,
    guide="expected_cost",
    counterfactual=CounterfactualSettings(states_per_episode=4, copies=40, further_arrivals=2),
)


@pytest.mark.parametrize("federated", [False, True])
def test_the_world_decides_what_the_network_sees(federated: bool, tmp_path: Path) -> None:
    config = MarketWorldConfig(WorkloadConfig(jobs=6, federated=federated))
    world = ENTRY.build(config, 42)
    assert world.spec.federated == federated
    agent = suited(PairwiseSettings("pairwise", "pairwise", embedding_size=8, pair_size=8), ENTRY, world.spec)
    assert isinstance(agent, PairwiseSettings)
    assert agent.rounds == federated
    task = Task(ENTRY, config, agent, TINY, 1, torch.device("cpu"))
    trainer, scales, weights = build_trainer(task)
    assert trainer.round().episodes == 2
    policy = trainer.policy
    assert isinstance(policy, ValuePolicy)
    assert isinstance(policy.network, PairwiseNetwork)
    assert policy.network.n_job_columns == (N_JOB_FIELDS if federated else col.IDLE)
    save_policy(
        tmp_path / "policy.pt", policy, dataclasses.asdict(agent), world.spec, scales, weights, {"seed": 1}
    )
    world.reset([EpisodeKey(1, "validation", lane) for lane in range(world.n_lanes)])
    lanes = np.arange(world.n_lanes)
    # A checkpoint of either kind acts in either world.
    for other in (False, True):
        spec = ENTRY.build(MarketWorldConfig(WorkloadConfig(jobs=6, federated=other)), 1).spec
        loaded = load_policy(tmp_path / "policy.pt", spec)
        np.testing.assert_array_equal(
            loaded.act_batch(world.observation, lanes), policy.act_batch(world.observation, lanes)
        )


def test_other_networks_keep_their_input() -> None:
    spec = ENTRY.build(MarketWorldConfig(WorkloadConfig(jobs=6, federated=True)), 1).spec
    settings = RLLSFCSettings("rl_lsfc", "rl_lsfc")
    assert suited(settings, ENTRY, spec) == settings
