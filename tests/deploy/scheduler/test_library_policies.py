"""Agents of libraries in the live scheduler: their checkpoints decide, those that remember are refused."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import torch

from agents.flat_policy import Flattening, n_features
from agents.library_policy import new_policy
from agents.settings import LibrarySettings
from deploy.scheduler.decide.decider import Decider
from deploy.scheduler.decide.policies import MARKET_COMPONENTS, load_market_policy
from deploy.scheduler.snapshot.occupancy import Occupancy
from deploy.scheduler.snapshot.writer import snapshot_of
from envs.simulation.world import WorldSpec
from tests.deploy.scheduler.cases import need, offer
from training.checkpoint import save_policy

OFFERS = [offer("cheap-spot", price_usd_hour=0.2), offer("dear-spot", price_usd_hour=0.6)]


def checkpoint(path: Path, agent: LibrarySettings) -> str:
    torch.manual_seed(0)
    size = n_features(agent.jobs, len(OFFERS))
    identity = np.zeros(size, np.float32), np.ones(size, np.float32)
    policy = new_policy(agent, Flattening(agent.jobs, len(OFFERS), *identity))
    ones = (1.0,) * len(MARKET_COMPONENTS)
    names, metrics = ("cheap-spot", "dear-spot"), ("cost_usd_eq",)
    spec = WorldSpec("multicloud", 8, 2, names, MARKET_COMPONENTS, ones, ones, metrics, (False,), "s")
    save_policy(path, policy, asdict(agent), spec, ones, ones, {})
    return str(path)


@pytest.mark.parametrize("kind", ["maskable_ppo", "decima"])
def test_a_checkpoint_of_a_library_decides(kind: str, tmp_path: Path) -> None:
    agent = LibrarySettings(kind, kind, jobs=4, hidden_sizes=[8], embedding_size=8)
    loaded = load_market_policy(checkpoint(tmp_path / "policy.pt", agent), len(OFFERS))
    needs = [need("first"), need("second")]
    decision = Decider(loaded.policy).decide(snapshot_of(OFFERS, needs, {}, Occupancy()), needs, OFFERS)
    assert decision is not None
    assert (decision.policy, decision.invalid) == (kind, None)
    assert decision.offer_id in {"cheap-spot", "dear-spot", None}
