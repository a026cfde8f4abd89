"""Federated applications on the command line: trained, resumed, compared, and refused in one line."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from spotweave.agents.mtdqn.policy import MTDQNPolicy
from spotweave.agents.named import RULE_NAMES, named_rule, question_rules, rules_of
from spotweave.agents.registry import MTDQNSettings
from spotweave.agents.rules import make_rule
from spotweave.agents.stored import CheckpointError
from spotweave.envs.environments import ENVIRONMENTS
from spotweave.envs.federated_episodes import FederatedConfig, build_federated
from spotweave.envs.simulation import columns as col
from spotweave.envs.simulation.market.config import MarketWorldConfig, WorkloadConfig
from spotweave.envs.simulation.snapshot import Category
from spotweave.envs.simulation.world import EpisodeKey
from spotweave.training.checkpoint import load_policy, save_policy
from spotweave.training.settings import TrainerSettings
from spotweave.training.trainers.build import build_trainer
from spotweave.training.trainers.trainer import Task
from tests.envs.federated_cases import play_policy
from tests.training.commands import TINY_TRAINER, TINY_WORLD, Command, tiny_agent

SMALL: dict[str, Any] = {"clients_most": 3, "rounds_least": 2, "rounds_most": 4}
TINY = (
    "+env=federated",
    *TINY_WORLD["federated"],
    *tiny_agent("federated", "mtdqn"),
    *TINY_TRAINER,
    "trainer.episodes=8",
    "trainer.lanes=4",
    "device=cpu",
)
ZONES = FederatedConfig(market="zones", **SMALL)


@pytest.mark.real
def test_the_command_trains_a_policy_that_serves_other_offers(command: Command, tmp_path: Path) -> None:
    out = tmp_path / "run"
    command(*TINY, "trainer=quick", "trainer.guide=round_cost", f"out={out}").printed()
    policy = load_policy(out, build_federated(ZONES).spec)
    assert isinstance(policy, MTDQNPolicy)
    for config in (ZONES, FederatedConfig(scenario="mnist"), FederatedConfig(scenario="til", measured=True)):
        world = build_federated(config)
        play_policy(world, policy, EpisodeKey(0, "test", 0))
        assert world.metrics(0)["rounds_lost"] == 0
    with pytest.raises(CheckpointError, match="its weights cannot be changed without retraining"):
        load_policy(out, build_federated(ZONES).spec, [1.0, 2.0])


def test_rules_have_one_name_each() -> None:
    assert len(set(RULE_NAMES)) == len(RULE_NAMES)
    for name in RULE_NAMES:
        assert named_rule(name).name == name
    assert rules_of("federated") == question_rules("federated")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            ("env.scenario=nope",),
            "nope: no such file, and no bundled scenario: expected a JSON file or one of",
        ),
        (("env.market=moon",), "env.market is 'moon': input should be 'one_zone', 'zones' or 'mixed'"),
        (("env.clients_least=9",), "env.clients_least is 9 and env.clients_most 3"),
        (("env.rounds_most=0",), "env.rounds_least is 2 and env.rounds_most 0"),
        (("env.time_weight=-1",), "env.time_weight is -1.0: expected a number >= 0"),
        (("env.budget_share=2",), "env.budget_share is 2.0: expected a share in [0, 1]"),
        (("env.clients=9",), "unknown key env.clients: did you mean"),
        (("trainer.guide=round_cots",), "unknown rule 'round_cots' (did you mean 'round_cost'?)"),
        (("trainer.lanes=3",), "copies is 2: expected a divisor of trainer.lanes (3)"),
        (("agent.guide=tuned",), "agent.guide is tuned: expected round_cost in this environment"),
        (("agent.lstm_size=2",), "agent.lstm_size is 2 and agent.own_size 0: expected 0"),
    ],
)
def test_mistakes_are_told_in_one_line(
    command: Command, changes: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    outcome = command(*TINY, *changes, f"out={tmp_path / 'run'}")
    assert message in outcome.mistake
    assert not (tmp_path / "run" / "state.pt").exists()


def test_a_scenario_file_with_a_mistake_is_one_line(command: Command, tmp_path: Path) -> None:
    file = tmp_path / "mine.json"
    file.write_text('{"kind": "rounds", "name": "mine", "rounds": 3, "zones": []}')
    mistake = command("+env=federated", f"env.scenario={file}").mistake
    assert "mine.json" in mistake
    assert "zones" in mistake or "clients" in mistake
    file.write_text("{")
    assert "is not YAML" in command("+env=federated", f"env.scenario={file}").mistake


def test_rules_of_other_worlds_do_not_crash_here() -> None:
    """They know nothing of rounds, but every one sees the same observation and must take a valid action."""
    world = build_federated(FederatedConfig(**SMALL))
    for name in ("maf", "rr", "random", "cheapest", "expected_cost", "spot_fallback"):
        play_policy(world, named_rule(name), EpisodeKey(1, "validation", 0))
        assert np.isfinite(world.metrics(0)["cost_index"])


# A policy for Spark jobs and federated applications in one market: what it learns, and whom it follows.


ENTRY = ENVIRONMENTS["multicloud"]
TINY_MARKET = TrainerSettings(
    episodes=2, lanes=2, gradient_steps=1, batch_size=16, replay_capacity=2000, guide="expected_cost"
)


@pytest.mark.parametrize("federated", [False, True])
def test_a_checkpoint_of_either_world_acts_in_both(federated: bool, tmp_path: Path) -> None:
    config = MarketWorldConfig(WorkloadConfig(jobs=6, federated=federated))
    agent = MTDQNSettings("mtdqn", "mtdqn", guide="expected_cost", own_size=4)
    trainer, scales, weights = build_trainer(Task(ENTRY, config, agent, TINY_MARKET, 1, torch.device("cpu")))
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
    trainer, _, _ = build_trainer(Task(ENTRY, config, agent, TINY_MARKET, 1, torch.device("cpu")))
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
