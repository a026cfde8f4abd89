"""Stable-Baselines3 and sb3-contrib as trainers: what is exported acts as the library does, and learns."""

from __future__ import annotations

import dataclasses
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from sb3_contrib import MaskablePPO

from spotweave.agents.registry import LibrarySettings
from spotweave.agents.rules import make_rule
from spotweave.envs.simulation.slices.config import SliceWorldConfig
from spotweave.envs.simulation.slices.world import SliceWorld
from spotweave.envs.simulation.snapshot import Observation
from spotweave.envs.simulation.world import EpisodeKey
from spotweave.training.adapters.base import NEVER, FlatWorldEnv, LibraryTask, LibraryTrainer
from spotweave.training.adapters.sb3 import DQNTrainer
from spotweave.training.checkpoint import load_policy, load_state, save_policy, save_state
from spotweave.training.evaluation.episodes import Suite, run_suite
from spotweave.training.settings import ScheduleSettings, TrainerSettings
from spotweave.training.trainers.build import make_library_trainer
from tests.training.fake_world import Clairvoyant, FakeWorld
from tests.training.trainers.test_session import assert_same

NEEDS_EXTRA = pytest.mark.extra
pytestmark = NEEDS_EXTRA

KINDS: tuple[str, ...] = ("sb3_dqn", "maskable_ppo", "decima")
CONFIG = SliceWorldConfig(n_jobs=20, window=4)
SUITE = Suite("few", "validation", seed=1, episodes=3)
SMALL = LibrarySettings(
    jobs=2,
    hidden_sizes=[16],
    environments=2,
    rollout=32,
    epochs=2,
    embedding_size=8,
    learning_starts=40,
    target_every=64,
)


def trainer(kind: str, seed: int = 0, capacity: int = 500) -> LibraryTrainer:
    agent = replace(SMALL, name=kind, kind=kind)
    settings = TrainerSettings(episodes=20, batch_size=32, replay_capacity=capacity)
    build = partial(SliceWorld, CONFIG, 1)
    return make_library_trainer(
        LibraryTask(build, agent, settings, make_rule("maf"), seed, torch.device("cpu"))
    )


def rounds(kind: str, n: int, seed: int = 0, capacity: int = 500) -> LibraryTrainer:
    trained = trainer(kind, seed, capacity)
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
def test_a_round_reports_what_was_played_and_learned_and_leaves_no_folder(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
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
    assert not list(tmp_path.glob("SB3*"))


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


def test_the_exported_network_gives_the_values_of_the_library() -> None:
    dqn = rounds("sb3_dqn", 3)
    assert isinstance(dqn, DQNTrainer)
    seen, lanes = observations(6), np.arange(6)
    features = torch.from_numpy(dqn.calibration.flattening.features(seen))
    valid = torch.from_numpy(dqn.calibration.flattening.mask(seen))
    assert valid.any(dim=1).all()
    assert not valid.all()
    with torch.no_grad():
        values = dqn.model.q_net(features)
        targets = dqn.model.q_net_target(features)
    torch.testing.assert_close(dqn.policy.scores(seen, lanes)[valid], values[valid])
    for found in (values, targets):  # neither a greedy action nor a target is ever an invalid one
        assert (found[~valid] == NEVER).all()
        assert (found[valid] > NEVER / 2).all()


@pytest.mark.parametrize("kind", ["maskable_ppo", "decima"])
def test_the_exported_network_acts_as_the_librarys_masked_ppo(kind: str) -> None:
    trained = rounds(kind, 3)
    assert isinstance(trained.model, MaskablePPO)  # type: ignore[attr-defined]
    seen = observations(12)
    flattening = trained.calibration.flattening
    expected, _ = trained.model.predict(  # type: ignore[attr-defined]
        flattening.features(seen), action_masks=flattening.mask(seen), deterministic=True
    )
    np.testing.assert_array_equal(trained.policy.act_batch(seen, np.arange(12)), expected)


@pytest.mark.parametrize("kind", KINDS)
def test_no_invalid_action_is_ever_taken_or_learned_from(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = []
    step = FlatWorldEnv.step

    def watched(env: FlatWorldEnv, action: np.int64 | int) -> Any:
        taken.append(bool(env.action_masks()[int(action)]))
        return step(env, action)

    monkeypatch.setattr(FlatWorldEnv, "step", watched)
    trained = rounds(kind, 4)
    assert len(taken) >= 4 * CONFIG.n_jobs
    assert all(taken)
    if isinstance(trained, DQNTrainer):
        replay = trained.model.replay_buffer
        assert replay is not None
        mask = replay.observations[: replay.pos, 0, -trained.calibration.flattening.n_actions :] > 0
        assert mask[np.arange(replay.pos), replay.actions[: replay.pos, 0, 0]].all()


def test_the_network_over_sets_does_not_know_the_order_of_jobs_or_clusters() -> None:
    policy = rounds("decima", 2).policy
    seen = observations(5)
    turned: dict[str, Any] = {name: np.array(array) for name, array in seen.items()}
    n, clusters = 5, [3, 1, 4, 0, 2]
    for name, order in (("jobs", [1, 0]), ("pairs", [1, 0])):
        turned[name][:, :2] = turned[name][:, order]
    turned["clusters"] = turned["clusters"][:, clusters]
    turned["pairs"] = turned["pairs"][:, :, clusters]
    mask = turned["action_mask"][:, :12].reshape(n, 2, 6)
    turned["action_mask"][:, :12] = mask[:, [1, 0]][:, :, [*clusters, 5]].reshape(n, 12)
    scores = policy.scores(seen, np.arange(n)).view(n, 2, 6)
    expected = scores[:, [1, 0]][:, :, [*clusters, 5]]
    found = policy.scores(cast(Observation, turned), np.arange(n)).view(n, 2, 6)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    assert scores.std() > 1e-3


@pytest.mark.real
@pytest.mark.parametrize("kind", KINDS)
def test_the_same_seed_trains_the_same_policy(kind: str) -> None:
    first = weights(rounds(kind, 3))
    assert torch.equal(first, weights(rounds(kind, 3)))
    assert not torch.equal(first, weights(rounds(kind, 3, seed=1)))


@pytest.mark.real
@pytest.mark.parametrize(("kind", "capacity"), [*((kind, 500) for kind in KINDS), ("sb3_dqn", 64)])
def test_six_rounds_are_three_a_stop_and_three(kind: str, capacity: int, tmp_path: Path) -> None:
    whole = rounds(kind, 3, capacity=capacity)
    if isinstance(whole, DQNTrainer):
        assert whole.model.replay_buffer is not None
        assert whole.model.replay_buffer.full == (capacity == 64)  # three rounds are at least 96 decisions
    save_state(tmp_path / "state.pt", {"format": 1, **whole.state_dict()})
    reports = [whole.round() for _ in range(3)]
    expected = whole.state_dict()
    torch.manual_seed(99)
    np.random.seed(99)  # noqa: NPY002 - what the libraries draw from must come from the file
    resumed = trainer(kind, capacity=capacity)
    resumed.load_state_dict(load_state(tmp_path / "state.pt"))
    assert [resumed.round() for _ in range(3)] == reports
    assert_same(resumed.state_dict(), expected)
    assert torch.equal(weights(resumed), weights(whole))


@pytest.mark.nightly
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
