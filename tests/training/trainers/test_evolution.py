"""The evolution trainer: pairs share an episode, it learns, it resumes, it is refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agents.learning.evolution_strategy import EvolutionStrategy
from agents.stored import CheckpointError
from envs.bags_episodes import BagsConfig, build_bags
from envs.simulation.slices.config import SliceWorldConfig
from envs.simulation.slices.world import SliceWorld
from envs.simulation.world import EpisodeKey
from tests.agents.small import PairScorer
from tests.training.commands import TINY_TRAINER, TINY_WORLD, Command
from training.checkpoint import load_policy
from training.engines.engine import Engine
from training.evaluation.episodes import run_suite
from training.evaluation.suite import Suite
from training.settings import EvolutionSettings, ScheduleSettings, TrainerSettings
from training.trainers.evolution import EvolutionTrainer

CONFIG = SliceWorldConfig(n_jobs=25, window=4)
EVOLVED = (
    "+env=bags",
    "agent=bag_scorer",
    *TINY_WORLD["bags"],
    *TINY_TRAINER,
    "agent.hidden_size=3",
    "trainer.episodes=8",
    "trainer.lanes=4",
    "device=cpu",
)


def make(
    seed: int = 0,
    lanes: int = 8,
    config: SliceWorldConfig = CONFIG,
) -> EvolutionTrainer:
    settings = TrainerSettings(
        episodes=10_000,
        lanes=lanes,
        learning_rate=ScheduleSettings(0.2, 0.2),
        evolution=EvolutionSettings(sigma=0.1, threads=2),
    )
    policy = PairScorer(4)
    return EvolutionTrainer(partial(SliceWorld, config), policy, settings, seed)


def test_the_two_of_a_pair_play_the_same_episode_and_no_other_pair_does() -> None:
    played: list[list[EpisodeKey]] = []

    class Recorded(SliceWorld):
        def reset(self, keys: Sequence[EpisodeKey], lanes: Sequence[int] | None = None) -> None:
            played.append(list(keys))
            super().reset(keys, lanes)

    trainer = make()
    trainer.player.build = partial(Recorded, CONFIG)
    trainer.round()
    trainer.round()
    keys = [key for call in sorted(played, key=lambda call: call[0].index) for key in call]
    assert [key.index for key in keys] == [k // 2 for k in range(16)]


class TwoWorkers(Engine):
    """Plays in this process, and remembers the sizes of its tasks."""

    workers = 2

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def map(self, work: Any, tasks: Sequence[Any], arrived: Callable[[int], None] | None = None) -> list[Any]:
        self.sizes += [len(task.variants) for task in tasks]
        return [work(task) for task in tasks]

    def _submit(self, pickled: bytes, task: bytes) -> Future[bytes]:
        raise NotImplementedError

    def close(self) -> None:
        pass


@pytest.mark.parametrize(("lanes", "sizes"), [(12, [4, 4, 2, 2]), (6, [2, 2, 2])])
def test_a_round_is_two_tasks_for_each_worker_and_ends_the_same(lanes: int, sizes: list[int]) -> None:
    alone, spread = (make(lanes=lanes) for _ in range(2))
    spread.engine = engine = TwoWorkers()
    assert alone.round() == spread.round()
    assert alone.strategy.theta.tobytes() == spread.strategy.theta.tobytes()
    assert engine.sizes == sizes


@pytest.mark.real
def test_it_improves_on_the_rule_it_starts_as() -> None:
    config = SliceWorldConfig(n_jobs=100)
    suite = Suite("held out", "validation", seed=7, episodes=60)
    world = SliceWorld(config, 20)

    def objective(trainer: EvolutionTrainer) -> np.ndarray:
        return np.array([result.metrics["s"] for result in run_suite(world, trainer.policy, suite)])

    trainer = make(lanes=64, config=config)
    before = objective(trainer)
    for _ in range(25):
        trainer.round()
    gain = objective(trainer) - before
    assert gain.mean() > 3 * gain.std(ddof=1) / np.sqrt(len(gain))


def test_resuming_is_exact() -> None:
    straight = make()
    for _ in range(4):
        straight.round()
    first = make()
    for _ in range(2):
        first.round()
    second = make(1)
    second.player.seed = first.player.seed
    second.load_state_dict(first.state_dict())
    reports = [second.round() for _ in range(2)]
    assert second.policy.network.vector.tolist() == straight.policy.network.vector.tolist()
    assert reports[-1].episodes == 8
    assert second.episodes_done == 32


def test_penalties_come_off_the_return_of_an_episode() -> None:
    plain, penalised = make(), make()
    penalised.settings.evolution.penalties = {"tmdl": 2.0, "makespan": 0.5}
    told: list[np.ndarray] = []

    def record(strategy: EvolutionStrategy) -> None:
        tell = strategy.tell

        def recorded(returns: np.ndarray, learning_rate: float) -> float:
            told.append(returns.copy())
            return tell(returns, learning_rate)

        strategy.tell = recorded  # type: ignore[method-assign]

    for trainer in (plain, penalised):
        record(trainer.strategy)
    reports = [trainer.round() for trainer in (plain, penalised)]
    assert reports[0].metrics == reports[1].metrics
    metrics = reports[0].metrics
    expected = 2.0 * metrics["tmdl"] + 0.5 * metrics["makespan"]
    assert (told[0] - told[1]).mean() == pytest.approx(expected)


def test_lanes_must_come_in_pairs() -> None:
    with pytest.raises(ValueError, match="lanes is 3: expected a multiple of 2, mirrored pairs"):
        make(lanes=3)


def test_the_command_trains_saves_and_resumes_a_scorer(command: Command, tmp_path: Path) -> None:
    out = tmp_path / "run"
    outcome = command(*EVOLVED, f"out={out}")
    assert outcome.code == 0, outcome.err
    spec = build_bags(BagsConfig(job="J60"), 1).spec
    assert load_policy(out, spec).name == "bag_scorer"
    with pytest.raises(CheckpointError, match="its weights cannot be changed without retraining"):
        load_policy(out, spec, [1.0] * len(spec.components))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("agent.learning=monte_carlo", "unknown key agent.learning"),
        ("trainer.lanes=3", "trainer.lanes is 3: expected a multiple of 2, mirrored pairs"),
        ("agent.weights=[1,1,1]", "unknown key agent.weights"),
        (
            "+trainer.evolution.penalties.tmld=1",
            "trainer.evolution.penalties names 'tmld': metrics are ",
        ),
        ("trainer.evolution.sigma=0", "trainer.evolution.sigma is 0"),
        ("trainer.evolution.threads=0", "trainer.evolution.threads is 0"),
    ],
)
def test_mistakes_are_told_in_one_line(command: Command, change: str, message: str, tmp_path: Path) -> None:
    outcome = command(*EVOLVED, change, f"out={tmp_path / 'run'}")
    assert message in outcome.mistake
    assert not (tmp_path / "run" / "state.pt").exists()
