"""Stable-Baselines3 and sb3-contrib as trainers: what is exported acts as the library does, and learns."""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from agents.rules import make_rule
from agents.settings import LibrarySettings
from envs.simulation.slices.config import SliceWorldConfig
from envs.simulation.slices.world import SliceWorld
from envs.simulation.snapshot import Observation
from envs.simulation.world import EpisodeKey
from tests.training.fake_world import Clairvoyant, FakeWorld
from training.adapters.build import make_library_trainer
from training.adapters.sb3 import DQNTrainer, MaskablePPOTrainer
from training.adapters.trainer import LibraryTask, LibraryTrainer
from training.checkpoint import load_policy, load_state, save_policy, save_state
from training.evaluation.episodes import run_suite
from training.evaluation.suite import Suite
from training.settings import ScheduleSettings, TrainerSettings

NEEDS_EXTRA = pytest.mark.extra
pytestmark = NEEDS_EXTRA

KINDS: tuple[str, ...] = ("sb3_dqn", "maskable_ppo")
CONFIG = SliceWorldConfig(n_jobs=20, window=4)
SUITE = Suite("few", "validation", seed=1, episodes=3)
SMALL = LibrarySettings(
    jobs=2, hidden_sizes=[16], environments=2, rollout=32, epochs=2, learning_starts=40, target_every=64
)


def trainer(kind: str, seed: int = 0) -> LibraryTrainer:
    agent = replace(SMALL, name=kind, kind=kind)
    settings = TrainerSettings(episodes=20, batch_size=32, replay_capacity=500)
    build = partial(SliceWorld, CONFIG, 1)
    return make_library_trainer(
        LibraryTask(build, agent, settings, make_rule("maf"), seed, torch.device("cpu"))
    )


def rounds(kind: str, n: int, seed: int = 0) -> LibraryTrainer:
    trained = trainer(kind, seed)
    for _ in range(n):
        trained.round()
    return trained


def observations(n: int) -> Observation:
    """Decisions of n lanes, some steps into their episodes."""
    world = SliceWorld(CONFIG, n)
    world.reset([EpisodeKey(5, "validation", k) for k in range(n)])
    rule = make_rule("random")
    for lane in range(n):
        rule.begin(lane, lane)
    for _ in range(8):
        world.step(rule.act_batch(world.observation, np.arange(n)))
    return world.observation


def weights(trained: LibraryTrainer) -> torch.Tensor:
    return torch.cat([tensor.flatten() for tensor in trained.policy.network.state_dict().values()])


@pytest.mark.parametrize("kind", KINDS)
def test_a_round_reports_what_was_played_and_learned(kind: str) -> None:
    trained = trainer(kind)
    before = weights(trained)
    reports = [trained.round() for _ in range(4)]
    assert trained.episodes_done == sum(report.episodes for report in reports)
    assert all(report.episodes >= 1 for report in reports)
    assert sum(report.decisions for report in reports) >= CONFIG.n_jobs * trained.episodes_done
    assert set(reports[0].metrics) == set(SliceWorld(CONFIG).spec.metrics)
    assert np.isfinite(list(reports[-1].losses.values())).all()
    assert reports[-1].losses
    assert not torch.equal(before, weights(trained))


@pytest.mark.parametrize("kind", KINDS)
def test_the_checkpoint_plays_valid_actions(kind: str, tmp_path: Path) -> None:
    trained = rounds(kind, 3)
    world = SliceWorld(CONFIG, 2)
    agent = dataclasses.asdict(trained.task.agent)
    spec = world.spec
    save_policy(tmp_path / "policy.pt", trained.policy, agent, spec, spec.scales, spec.weights, {})
    loaded = load_policy(tmp_path, spec)
    results = run_suite(world, loaded, SUITE)  # raises for an action outside the mask
    assert [result.decisions for result in results] == [CONFIG.n_jobs] * 3
    assert loaded.name == kind
    assert results == run_suite(world, trained.policy, SUITE)


def test_the_exported_network_gives_the_values_of_the_librarys_dqn() -> None:
    trained = rounds("sb3_dqn", 3)
    assert isinstance(trained, DQNTrainer)
    seen = observations(6)
    features = torch.from_numpy(trained.calibration.flattening.features(seen))
    with torch.no_grad():
        expected = trained.model.q_net(features)
    torch.testing.assert_close(trained.policy.scores(seen), expected)


def test_the_exported_network_acts_as_the_librarys_masked_ppo() -> None:
    trained = rounds("maskable_ppo", 3)
    assert isinstance(trained, MaskablePPOTrainer)
    seen = observations(12)
    flattening = trained.calibration.flattening
    expected, _ = trained.model.predict(
        flattening.features(seen), action_masks=flattening.mask(seen), deterministic=True
    )
    np.testing.assert_array_equal(trained.policy.act_batch(seen, np.arange(12)), expected)


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_seed_trains_the_same_policy(kind: str) -> None:
    first = weights(rounds(kind, 3))
    assert torch.equal(first, weights(rounds(kind, 3)))
    assert not torch.equal(first, weights(rounds(kind, 3, seed=1)))


@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_run_goes_on_with_its_weights_and_episodes(kind: str, tmp_path: Path) -> None:
    stopped = rounds(kind, 3)
    save_state(tmp_path / "state.pt", {"format": 1, **stopped.state_dict()})
    resumed = trainer(kind)
    resumed.load_state_dict(load_state(tmp_path / "state.pt"))
    assert torch.equal(weights(stopped), weights(resumed))
    assert resumed.episodes_done == stopped.episodes_done
    assert resumed.epsilon_1 == stopped.epsilon_1
    for _ in range(3):  # the replay fills up again first
        resumed.round()
    assert resumed.episodes_done > stopped.episodes_done
    assert not torch.equal(weights(stopped), weights(resumed))


@pytest.mark.parametrize("kind", KINDS)
def test_it_learns_a_choice_that_the_observation_shows(kind: str) -> None:
    library = LibrarySettings(
        jobs=1,
        hidden_sizes=[32],
        discount=0.0,
        environments=2,
        rollout=128,
        train_every=1,
        learning_starts=100,
        target_every=100,
    )
    settings = TrainerSettings(
        episodes=1_000_000,
        batch_size=64,
        replay_capacity=2000,
        guide="maf",
        learning_rate=ScheduleSettings(3e-3, 3e-3),
        epsilon_1=ScheduleSettings(0.3, 0.3),
    )
    library = replace(library, name=kind, kind=kind)
    task = LibraryTask(partial(FakeWorld, 1), library, settings, make_rule("random"), 0, torch.device("cpu"))
    trained = make_library_trainer(task)
    decisions = 0
    while decisions < 3000:
        decisions += trained.round().decisions
    suite = Suite("toy", "validation", seed=1, episodes=40)

    def score(policy: object) -> float:
        return float(np.mean([r.metrics["score"] for r in run_suite(FakeWorld(4), policy, suite)]))  # type: ignore[arg-type]

    best, chance = score(Clairvoyant()), score(make_rule("random"))
    assert score(trained.policy) > chance + 0.8 * (best - chance)
