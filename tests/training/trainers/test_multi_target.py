"""The trainer of `mtdqn`: its bookkeeping against the world's own, what it learns, and exact resume."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from spotweave.agents.mtdqn.decide import n_columns
from spotweave.agents.mtdqn.markets import MarketView
from spotweave.agents.mtdqn.policy import MTDQNPolicy
from spotweave.agents.mtdqn.questions import QuestionView
from spotweave.agents.mtdqn.slices import SliceView
from spotweave.agents.stored import load_policy_state
from spotweave.envs.bags_episodes import BagsConfig, build_bags
from spotweave.envs.market_data import build_market
from spotweave.envs.simulation.bags.world import BagWorld
from spotweave.envs.simulation.market.config import MarketWorldConfig, WorkloadConfig
from spotweave.envs.simulation.slices.config import SliceWorldConfig
from spotweave.envs.simulation.slices.world import SliceWorld
from spotweave.envs.simulation.world import EpisodeKey
from spotweave.training.checkpoint import load_policy
from spotweave.training.evaluation.episodes import find_suite, run_episodes, run_suite
from spotweave.training.settings import MultiTargetSettings, ScheduleSettings, TrainerSettings
from spotweave.training.trainers.multi_target import Comparison, MultiTargetTrainer
from tests.training.commands import TINY_AGENT, TINY_TRAINER, TINY_WORLD, Command
from tests.training.toy import small_settings
from tests.training.trainers.test_session import assert_resumed_exactly

LANES = 4
CPU = torch.device("cpu")


def trainer(seed: int = 0, epsilon_1: float = 0.4) -> MultiTargetTrainer:
    """A small trainer in a world of 120 jobs."""
    policy = MTDQNPolicy(SliceView(False, 3, 8, 2, 4), (1.0, 1.0, 5.0), "mtdqn")
    chosen = TrainerSettings(
        episodes=400,
        lanes=LANES,
        gradient_steps=2,
        batch_size=32,
        replay_capacity=500,
        learning_rate=ScheduleSettings(1e-3, 1e-3),
        epsilon_1=ScheduleSettings(epsilon_1, epsilon_1),
        multi_target=MultiTargetSettings(follow_share=0.0, workloads=3),
    )
    world = SliceWorld(SliceWorldConfig(n_jobs=120), LANES)
    return MultiTargetTrainer(lambda number: (world, False), policy, chosen, seed, CPU)


def test_all_lanes_play_one_workload_and_nothing_of_its_return_is_lost() -> None:
    learner = trainer()
    learner.round()
    world, comparison = learner.world_of(0)[0], learner.comparisons[0]
    assert isinstance(world, SliceWorld)
    arrivals = [world.stays(lane)[:, 0].tolist() for lane in range(LANES)]
    assert arrivals.count(arrivals[0]) == LANES
    scores = [world.metrics(lane)["s"] for lane in range(LANES)]
    assert len(set(scores)) > 1
    assert comparison.returns.sum(1).tolist() == pytest.approx(scores, abs=0.01)
    for lane in range(LANES):
        misses, delay = world.outcomes(lane, np.arange(120), np.zeros(0)).T
        assert misses.sum() == world.metrics(lane)["tmdl"]
        assert 100 * (1 + delay.mean()) == pytest.approx(world.metrics(lane)["ajer"])


@pytest.mark.parametrize(("epsilon_1", "values"), [(0.4, (-0.5, 0.5)), (0.9, (-0.9, 0.1))])
def test_the_effect_of_a_choice_counts_with_the_surprise_of_its_coin(
    epsilon_1: float, values: tuple[float, float]
) -> None:
    learner = trainer(epsilon_1=epsilon_1)
    learner.round()
    sums = learner.comparisons[0].spread.sum(1).numpy()
    assert sorted({round(float(x), 4) for x in sums}) == pytest.approx(values)


def test_without_exploration_there_is_nothing_to_compare() -> None:
    learner = trainer(epsilon_1=0.0)
    learner.round()
    learner.round()
    assert [len(comparison.lane) for comparison in learner.comparisons] == [0, 0]
    assert learner.comparisons[0].returns.std(0).max() == 0.0


def _compared(learner: MultiTargetTrainer, effect: float, seed: int) -> Comparison:
    """A workload whose returns follow from its choices, `effect` per unit of need, and from luck."""
    rng, sizes = np.random.default_rng(seed), learner.view.sizes
    n = 60
    columns = rng.random((LANES * n, 2, n_columns(sizes)), np.float32)
    needs = rng.uniform(0.5, 1.5, (LANES * n, 2)).astype(np.float32)
    surprise = rng.choice([-0.5, 0.5], LANES * n)
    told = surprise * effect * (needs[:, 0] - needs[:, 1])
    returns = told.reshape(LANES, n).sum(1) + rng.normal(0.0, 5.0, LANES)
    return Comparison(
        torch.from_numpy(columns),
        torch.zeros(LANES * n, 2, 2),
        torch.zeros(LANES * n, 3),
        torch.from_numpy(needs),
        torch.from_numpy(np.repeat(np.arange(LANES), n)),
        torch.from_numpy(surprise[:, None].astype(np.float32)),
        torch.from_numpy(returns[:, None].astype(np.float32)),
    )


def test_the_mutual_value_is_found_from_returns_of_whole_lanes_alone() -> None:
    learner = trainer()
    for group in learner.optimizer.param_groups:
        group["lr"] = 0.02
    workloads = [_compared(learner, -6.0, seed) for seed in range(60)]
    for step in range(60):
        learner._mutual_step(workloads[step % 15 * 4 : step % 15 * 4 + 4])
    columns = torch.full((2, n_columns(learner.view.sizes)), 0.5)
    low, high = learner.network.mutual_values(columns, torch.tensor([0.5, 1.5])).tolist()
    assert high - low == pytest.approx(-6.0, abs=2.0)


def test_own_values_are_learned_beyond_what_is_known() -> None:
    learner = trainer(epsilon_1=0.2)
    for _ in range(3):
        learner.round()
    assert learner.replay.size == 500
    targets = learner.replay.targets
    assert (targets[:, 0] <= 0.0).all()  # a job misses at least what it must miss there
    assert (targets[:, 1] <= 1e-6).all()  # and is not faster than alone
    assert np.abs(targets[:, 0]).max() <= 8.0


def questions(seed: int = 0) -> MultiTargetTrainer:
    """A small trainer of bags: two bags in a round, each played by two lanes."""
    policy = MTDQNPolicy(QuestionView("bag_cost", 0, 0, 4), (50.0, 50.0), "mtdqn")
    settings = TrainerSettings(
        episodes=400,
        lanes=LANES,
        epsilon_1=ScheduleSettings(0.5, 0.5),
        epsilon_2=ScheduleSettings(1.0, 1.0),
        multi_target=MultiTargetSettings(copies=2, follow_share=0.0, workloads=6, taste=1.0),
    )
    world = build_bags(BagsConfig(job="J60", deadline_s=2100), LANES)
    return MultiTargetTrainer(lambda number: (world, False), policy, settings, seed, CPU)


def test_lanes_of_a_bag_are_compared_as_wholes_by_what_each_took_of_its_taste() -> None:
    learner = questions()
    learner.round()
    world = learner.world_of(0)[0]
    assert isinstance(world, BagWorld)
    assert [world.reward_of_usd(lane) for lane in (0, 2)] == [world.reward_of_usd(lane) for lane in (1, 3)]
    assert len(learner.comparisons) == 2
    assert learner.replay.size == 0
    for first, comparison in zip((0, 2), learner.comparisons, strict=True):
        objectives = [world.metrics(first + k)["objective"] for k in range(2)]
        size = np.sqrt(1.0 + np.var(objectives))
        returns = (comparison.returns[:, 0] * size).tolist()
        assert returns == pytest.approx([-one for one in objectives], rel=1e-4)
        assert set(comparison.lane.tolist()) == {0, 1}
        of_usd = comparison.spread[:, 0].numpy() * size
        np.testing.assert_allclose(of_usd, world.reward_of_usd(first), rtol=1e-4)
        assert (comparison.columns[:, 0] != comparison.columns[:, 1]).any(1).all()


@pytest.mark.parametrize(
    ("lanes", "copies", "message"),
    [
        (1, 0, r"agent\.mutual_size is positive, but every lane"),
        (4, 1, r"agent\.mutual_size is positive, but every lane"),
        (4, 3, r"trainer\.multi_target\.copies is 3: expected a divisor of trainer\.lanes \(4\)"),
    ],
)
def test_lanes_that_cannot_be_compared_are_refused(lanes: int, copies: int, message: str) -> None:
    settings = TrainerSettings(lanes=lanes, multi_target=MultiTargetSettings(copies=copies))
    with pytest.raises(ValueError, match=message):
        MultiTargetTrainer(trainer().world_of, trainer().policy, settings, 0, CPU)


TRAINED = ("+env=multicluster", "agent=mtdqn", *TINY_WORLD["multicluster"], *TINY_TRAINER, "device=cpu")


def test_loads_share_the_episodes_and_the_validation(command: Command, tmp_path: Path) -> None:
    out = tmp_path / "run"
    command(*TRAINED, *TINY_AGENT["mtdqn"], "env.loads=[4,40]", f"out={out}").printed()
    suite = find_suite("validation", 2)
    s = []
    for load in (4, 40):
        config = SliceWorldConfig(n_jobs=20, window=4)
        config.workload.arrivals.b = load
        world = SliceWorld(config, 1)
        s += [result.metrics["s"] for result in run_suite(world, load_policy(out, world.spec), suite)]
    assert len(set(s)) == 4
    assert load_policy_state(out / "policy.pt")["training"]["validation"]["s"] == pytest.approx(np.mean(s))
    wider = SliceWorldConfig(capacities=[1500] * 7, hetero_factors=[80.0] * 7, elastic=[False] * 7)
    assert load_policy(out, SliceWorld(wider, 1).spec, [1.0, 2.0, 3.0]).name == "mtdqn"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("trainer.lanes=1",), "every lane plays a workload of its own"),
        (("agent.weights=[1,1]",), "agent.weights has 2 numbers, expected one for each of own_misses"),
        (("agent.guide=committed",), "rule 'committed' needs env.forecast=true"),
        (("agent.own_size=0", "agent.networks=2"), "agent.networks is 2: expected 1"),
        (("env.loads=[]",), "loads must name at least one b >= 1 (workload.arrivals.a), each once, got []"),
        (("env.loads=[25,-1]",), "each once, got [25, -1]"),
        (("+env=spot",), "agent=mtdqn does not know the tasks of this environment"),
    ],
)
def test_mistakes_are_told_in_one_line(
    command: Command, words: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    given = ("agent=mtdqn", *TINY_TRAINER) if words[0].startswith("+env") else TRAINED
    outcome = command(*given, *words, f"out={tmp_path / 'run'}")
    assert message in outcome.mistake
    assert not (tmp_path / "run" / "state.pt").exists()


def in_markets(seed: int = 0, mutual: int = 0) -> MultiTargetTrainer:
    """A small trainer in markets, where a job is decided many times."""
    policy = MTDQNPolicy(MarketView(2, 4, 2, mutual), (25.0, 25.0, 0.25, 1.0, 0.36), "mtdqn")
    settings = small_settings(
        episodes=12,
        lanes=4,
        gradient_steps=2,
        batch_size=32,
        replay_capacity=400,
        epsilon_1=ScheduleSettings(0.3, 0.3),
        multi_target=MultiTargetSettings(2 if mutual else 1, follow_share=0.5, kept_per_episode=20),
    )
    config = MarketWorldConfig(WorkloadConfig(jobs=8))
    return MultiTargetTrainer(lambda number: (build_market(config, 4), False), policy, settings, seed, CPU)


@pytest.mark.parametrize(
    "make",
    [trainer, questions, in_markets, partial(in_markets, mutual=3)],
    ids=["slices", "questions", "markets without mutual values", "markets with mutual values"],
)
def test_it_is_resumed_exactly(make: Callable[[int], MultiTargetTrainer], tmp_path: Path) -> None:
    straight = assert_resumed_exactly(make, tmp_path / "state.pt")
    assert straight.policy.network.vector.any()


def test_in_markets_a_part_of_each_episode_is_kept_and_rewards_are_what_it_cost() -> None:
    learner = in_markets(mutual=3)
    report = learner.round()
    assert 4 * 8 < learner.replay.size <= 4 * 20
    targets = learner.replay.targets[: learner.replay.size]
    assert np.isfinite(targets[:, 1:]).all()
    assert ((targets[:, 0] >= 0) | np.isnan(targets[:, 0])).all()
    assert [len(one.returns) for one in learner.comparisons] == [2, 2]
    paid = -torch.cat([one.returns.sum(1) for one in learner.comparisons]).numpy()
    assert paid.mean() == pytest.approx(report.metrics["cost_usd_eq"], rel=1e-4)


def test_each_network_plays_its_share_of_the_lanes() -> None:
    learner = in_markets()
    vector = np.random.default_rng(0).normal(0.0, 1.0, learner.policy.network.size).astype(np.float32)
    learner.policy.network.set_vector(vector)
    played = learner._play(learner.world_of(0)[0], 0.0, 1.0, False)
    paid = -np.bincount(played.lane, played.reward)
    keys = [EpisodeKey(0, "train", lane) for lane in range(LANES)]
    alone = [
        [result.metrics["cost_usd_eq"] for result in run_episodes(learner.world_of(0)[0], member, keys)]
        for member in learner.policy.members()
    ]
    assert np.ptp(alone, axis=0).min() > 1.0
    assert paid == pytest.approx([*alone[0][:2], *alone[1][2:]], rel=1e-4)


@pytest.mark.parametrize("mutual", [0, 3])
def test_in_markets_it_learns_from_the_second_round_on(mutual: int) -> None:
    learner = in_markets(mutual=mutual)
    assert learner.round().losses == {}
    assert learner.round().losses["usd"] > 0.0
