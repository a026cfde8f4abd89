"""Monte-Carlo training: what goes into the replay is what happened, and a toy world is learned."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from spotweave.envs.simulation import columns as col
from spotweave.envs.simulation.snapshot import Observation
from spotweave.envs.simulation.world import EpisodeKey
from spotweave.training import config
from spotweave.training.checkpoint import RunDirectory
from spotweave.training.config import UsageError
from spotweave.training.settings import ScheduleSettings
from spotweave.training.trainers.monte_carlo import MonteCarloTrainer
from spotweave.training.trainers.session import Curves
from tests.training.commands import TINY, Command
from tests.training.toy import (
    CPU,
    TOY_SUITE,
    Myopic,
    ToyWorld,
    monte_carlo,
    slice_trainer,
    small_settings,
    toy_monte_carlo,
    toy_regret,
)


def test_the_replay_holds_what_each_decision_was_worth() -> None:
    trainer = toy_monte_carlo(gradient_steps=1)
    trainer.round()
    trainer.round()
    assert trainer.replay.size == 2 * 20 * 8
    inputs, targets, values = trainer.replay.rows(np.arange(trainer.replay.size), CPU)
    rows = torch.arange(len(targets))
    cost = inputs.pairs[rows, 0, targets, col.EXECUTION_S]
    price = inputs.clusters[rows, targets, col.PRICE_USD_HOUR]
    assert torch.equal(values, torch.stack([-cost, -price], dim=1))


def test_a_replay_smaller_than_a_round_keeps_the_latest_decisions_whole() -> None:
    trainer = toy_monte_carlo(gradient_steps=1, replay_capacity=64)
    trainer.round()
    inputs, targets, values = trainer.replay.rows(np.arange(64), CPU)
    cost = inputs.pairs[torch.arange(64), 0, targets, col.EXECUTION_S]
    assert torch.equal(values[:, 0], -cost)


def test_rounds_play_the_training_episodes_one_after_the_other() -> None:
    world = ToyWorld(4)
    keys: list[EpisodeKey] = []
    reset = world.reset

    def record(given, lanes=None):  # type: ignore[no-untyped-def]
        keys.extend(given)
        reset(given, lanes)

    world.reset = record  # type: ignore[method-assign]
    trainer = monte_carlo(world, small_settings(lanes=4, episodes=8, gradient_steps=0), Myopic(), seed=7)
    trainer.round()
    trainer.round()
    assert keys == [EpisodeKey(7, "train", index) for index in range(8)]
    assert trainer.episodes_done == 8


def test_the_report_of_a_round() -> None:
    rate = ScheduleSettings(1e-3, 1e-4, 0.5, "step")
    trainer = toy_monte_carlo(episodes=40, epsilon_1=ScheduleSettings(0.6, 0.2), learning_rate=rate)
    first, second = trainer.round(), trainer.round()
    assert (first.episodes, first.decisions) == (20, 160)
    assert set(first.metrics) == {"objective", "regret"}
    assert set(first.losses) == {"own", "mutual"}
    # Before the input normalisation is fitted the network must not act.
    assert first.epsilon_1 == 1.0
    assert second.epsilon_1 == pytest.approx(0.4)
    assert (first.learning_rate, second.learning_rate) == (1e-3, 1e-4)
    assert trainer.policy.network.state_dict()["columns.pair_scaler.fitted"] == 1.0


def test_without_exploration_the_guide_plays_the_first_round_and_the_policy_the_second() -> None:
    guided = ScheduleSettings(0.0, 0.0)
    trainer = toy_monte_carlo(epsilon_1=guided, epsilon_2=guided)
    world = ToyWorld(20)
    world.reset([EpisodeKey(0, "train", index) for index in range(20)])
    while world.waiting(0):
        world.step(Myopic().act_batch(world.observation, np.arange(20)))
    expected = np.mean([world.metrics(lane)["objective"] for lane in range(20)])
    assert trainer.round().metrics["objective"] == pytest.approx(expected)

    def refuse(observations: Observation, lanes: NDArray[np.int64]) -> NDArray[np.int64]:
        raise AssertionError("greedy play asks no guide")

    trainer.exploration.guide.act_batch = refuse  # type: ignore[method-assign]
    trainer.round()


def trained(kind: str, **changes: Any) -> MonteCarloTrainer:
    trainer = toy_monte_carlo(kind, **changes)
    while trainer.episodes_done < trainer.settings.episodes:
        trainer.round()
    return trainer


@pytest.mark.real
@pytest.mark.parametrize("kind", ["rl_lsfc", "rl_fc"])
def test_it_learns_the_optimum_of_the_toy_world(kind: str) -> None:
    assert toy_regret(Myopic()) > 2.0
    assert toy_regret(trained(kind).policy) < 0.1


@pytest.mark.real
def test_other_weights_give_the_optimum_under_those_weights_without_retraining() -> None:
    # Twice the usual episodes: then six seeds of six choose at least 19 of the 20 right.
    trainer = trained("rl_lsfc", episodes=240)
    world = ToyWorld(TOY_SUITE.episodes)
    world.reset(TOY_SUITE.episode_keys())
    seen, lanes = world.observation, np.arange(world.n_lanes)
    costs = seen["pairs"][..., col.EXECUTION_S]
    prices = seen["clusters"][..., col.PRICE_USD_HOUR]
    for weights in ((1.0, 0.0), (0.0, 1.0), (1.0, 1.0)):
        trainer.policy.set_weights(weights)
        row, cluster = np.divmod(trainer.policy.act_batch(seen, lanes), world.spec.n_clusters + 1)
        total = weights[0] * costs[lanes, row] + weights[1] * prices
        assert np.mean(cluster == total.argmin(1)) >= 0.9, weights


def test_sgd_and_huber_learn_too() -> None:
    rate = ScheduleSettings(0.1, 0.02)
    assert toy_regret(trained("rl_fc", optimizer="sgd", loss="huber", learning_rate=rate).policy) < 0.3


def test_two_runs_with_one_seed_are_equal_and_other_seeds_differ() -> None:
    trainers = [slice_trainer("rl_lsfc", seed) for seed in (1, 1, 2)]
    for trainer in trainers:
        trainer.round()
    first, same, other = (trainer.policy.network.state_dict() for trainer in trainers)
    assert all(torch.equal(first[name], same[name]) for name in first)
    assert not all(torch.equal(first[name], other[name]) for name in first)


# Curves go to TensorBoard and, where it is asked for, to a tracker as well.


class Server:
    """What an MLflow server keeps, behind the calls of `mlflow.MlflowClient` that are made."""

    def __init__(self) -> None:
        self.runs: list[str] = []
        self.points: list[tuple[str, str, float, int]] = []
        self.status: dict[str, str] = {}
        self.down = False

    def get_experiment_by_name(self, name: str) -> None:
        if self.down:
            raise ConnectionError("nobody answers")

    def create_experiment(self, name: str) -> str:
        return name

    def create_run(self, experiment: str, run_name: str) -> Any:
        self.runs.append(f"{experiment}/{run_name}")
        return SimpleNamespace(info=SimpleNamespace(run_id=self.runs[-1]))

    def log_artifact(self, run_id: str, path: str) -> None:
        assert Path(path).is_file()

    def update_run(self, run_id: str, status: str) -> None:
        self.status[run_id] = status

    set_terminated = update_run

    def log_batch(self, run_id: str, metrics: list[tuple[str, float, int, int]]) -> None:
        if self.down:
            raise ConnectionError("nobody answers")
        self.points += [(run_id, name, value, step) for name, value, _, step in metrics]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    there = Server()
    entities = SimpleNamespace(Metric=lambda *fields: fields)
    monkeypatch.setitem(sys.modules, "mlflow", SimpleNamespace(MlflowClient=lambda: there, entities=entities))
    monkeypatch.delenv("MLFLOW_EXPERIMENT_NAME", raising=False)
    return there


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.yaml").write_text("seed: 1\n")
    return RunDirectory(tmp_path / "run")


def test_a_resumed_run_goes_on_where_it_began(server: Server, run: RunDirectory) -> None:
    for episode, finished in ((10, False), (20, True)):
        kept = Curves(run, "mlflow")
        assert server.status["spotweave/run"] == "RUNNING"
        kept.add({"validation/cost": episode / 4}, episode)
        kept.close(finished)
        assert server.status["spotweave/run"] == ("FINISHED" if finished else "KILLED")
    assert server.runs == ["spotweave/run"]
    assert server.points == [("spotweave/run", "validation/cost", e / 4, e) for e in (10, 20)]
    assert list((run.path / "tensorboard").iterdir())


def test_a_server_that_goes_away_ends_the_tracking_not_the_training(
    server: Server, run: RunDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = Curves(run, "mlflow")
    server.down = True
    for episode in (1, 2):
        kept.add({"validation/cost": 1.0}, episode)
    kept.close(finished=True)
    assert capsys.readouterr().err == "tracking stopped, TensorBoard's curves go on: nobody answers\n"


def test_a_server_that_is_not_there_is_one_line(server: Server, run: RunDirectory) -> None:
    server.down = True
    with pytest.raises(UsageError, match=r"^tracking=mlflow does not work: nobody answers$"):
        Curves(run, "mlflow")


def test_a_library_that_is_missing_is_named_with_its_extra_before_anything_is_written(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(config, "find_spec", lambda name: None)
    command = Command(monkeypatch, capsys)
    told = command(*TINY, "tracking=wandb", f"out={tmp_path / 'run'}").mistake
    assert told.endswith("needs a library that is not installed: pip install 'spotweave[wandb]'")
    assert "tracking is 'comet'" in command(*TINY, "tracking=comet").mistake
    assert list(tmp_path.iterdir()) == []
