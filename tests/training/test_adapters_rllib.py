"""RLlib as a trainer, in processes of its own: Ray leaves files open that would fail other tests."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from spotweave.agents.registry import LibrarySettings
from spotweave.agents.rules import make_rule
from spotweave.envs.simulation.slices.config import SliceWorldConfig
from spotweave.envs.simulation.slices.world import SliceWorld
from spotweave.envs.simulation.world import EpisodeKey
from spotweave.training.adapters.base import FlatWorldEnv, LibraryTask, LibraryTrainer
from spotweave.training.checkpoint import load_policy, load_state, save_state
from spotweave.training.evaluation.episodes import Suite, run_suite
from spotweave.training.settings import TrainerSettings
from spotweave.training.trainers.build import make_library_trainer
from tests.training.commands import python

NEEDS_EXTRA = pytest.mark.extra
pytestmark = [NEEDS_EXTRA, pytest.mark.nightly]

CONFIG = SliceWorldConfig(n_jobs=20, window=4)


def trainer() -> LibraryTrainer:
    agent = LibrarySettings(
        "rllib_dqn",
        "rllib_dqn",
        jobs=2,
        hidden_sizes=[16, 12],
        rollout=64,
        learning_starts=40,
        target_every=64,
    )
    settings = TrainerSettings(episodes=40, batch_size=32, replay_capacity=500)
    build = partial(SliceWorld, CONFIG, 1)
    return make_library_trainer(LibraryTask(build, agent, settings, make_rule("maf"), 0, torch.device("cpu")))


def check_trainer(directory: str) -> None:
    """Runs in its own process: rounds, masks, exported scores, the same seed twice, stop and go on."""
    from spotweave.training.adapters.rllib import RLlibDQNTrainer

    taken = []
    step = FlatWorldEnv.step

    def watched(env: FlatWorldEnv, action: np.int64 | int) -> Any:
        taken.append(bool(env.action_masks()[int(action)]))
        return step(env, action)

    FlatWorldEnv.step = watched  # type: ignore[method-assign, assignment]
    first = trainer()
    assert isinstance(first, RLlibDQNTrainer)
    reports = [first.round() for _ in range(3)]
    assert sum(report.decisions for report in reports) == len(taken) == 192
    assert all(taken)
    (env,) = first.environments()
    assert first.episodes_done == sum(report.episodes for report in reports) == 192 // CONFIG.n_jobs
    assert env._episode == first.episodes_done + 1
    assert set(reports[-1].losses) == {"value"}
    assert np.isfinite(list(reports[-1].losses.values())).all()

    world = SliceWorld(CONFIG, 3)
    world.reset([EpisodeKey(5, "validation", k) for k in range(3)])
    features = torch.from_numpy(first.calibration.flattening.features(world.observation))
    valid = torch.from_numpy(first.calibration.flattening.mask(world.observation))
    module = first.algorithm.get_module()
    with torch.no_grad():
        expected = module.compute_q_values({"obs": features})["qf_preds"]
    torch.testing.assert_close(first.policy.scores(world.observation, np.arange(3))[valid], expected[valid])
    assert (expected[~valid] == -torch.inf).all()

    second = trainer()
    for _ in range(3):
        second.round()
    for name, weight in first.weights().items():
        assert torch.equal(weight, second.weights()[name])

    path = Path(directory) / "state.pt"
    save_state(path, {"format": 1, **first.state_dict()})
    resumed = trainer()
    assert isinstance(resumed, type(first))
    resumed.load_state_dict(load_state(path))
    assert resumed.episodes_done == first.episodes_done
    assert resumed.epsilon_1 == first.epsilon_1
    assert first.epsilon_1 > 0
    for name, weight in first.weights().items():
        assert torch.equal(weight, resumed.weights()[name])
    resumed.round()
    assert resumed.decisions == 192 + 64
    for open_trainer in (resumed, second, first):
        open_trainer.close()
    print("checked")


def test_it_trains_exports_repeats_and_goes_on(tmp_path: Path) -> None:
    code = "import sys; from tests.training.test_adapters_rllib import *; check_trainer(*sys.argv[1:])"
    result = python("-c", code, str(tmp_path))
    assert result.stdout.splitlines()[-1:] == ["checked"], result.stderr[-2000:]
    assert result.stdout.count("resumed, though not bit for bit") == 1


@pytest.mark.nightly
def test_the_command_writes_a_run_whose_checkpoint_plays(tmp_path: Path) -> None:
    out = tmp_path / "run"
    result = python(
        "training/train.py",
        "+env=multicluster",
        "agent=rllib_dqn",
        "env.n_jobs=20",
        "trainer.episodes=10",
        "trainer.batch_size=32",
        "trainer.validation_episodes=2",
        "trainer.test_episodes=2",
        "agent.learning_starts=50",
        f"out={out}",
    )
    assert result.returncode == 0, result.stderr[-2000:]
    assert "rllib_dqn" in result.stdout
    for name in ("config.yaml", "policy.pt", "state.pt", "test/summary.json", "test/report.html"):
        assert (out / name).is_file()
    assert list((out / "tensorboard").iterdir())
    world = SliceWorld(SliceWorldConfig(n_jobs=20), 2)
    policy = load_policy(out, world.spec)
    results = run_suite(world, policy, Suite("few", "test", seed=9, episodes=2))
    assert [episode.decisions for episode in results] == [20, 20]
