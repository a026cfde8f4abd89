"""Federated applications on the command line: trained, resumed, compared, and refused in one line."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from agents.federated.rules import ROUND_RULES
from agents.federated.scorer import RoundScorerPolicy
from agents.named import RULE_NAMES, named_rule, rules_of
from agents.stored import CheckpointError, policy_file, released_names
from envs.federated_episodes import FederatedConfig, build_federated
from envs.simulation.world import EpisodeKey
from tests.agents.small import small_scorer
from tests.envs.federated_cases import play_policy
from tests.training.commands import TINY_AGENT, TINY_TRAINER, TINY_WORLD, Command
from tests.training.trainers.test_resume import assert_same
from training.checkpoint import load_policy, load_state, save_state
from training.evaluation.comparison import compare
from training.settings import EvolutionSettings, ScheduleSettings, TrainerSettings
from training.trainers.evolution import EvolutionTrainer

SMALL: dict[str, Any] = {"clients_most": 3, "rounds_least": 2, "rounds_most": 4}
TINY = (
    "+env=federated",
    *TINY_WORLD["federated"],
    *TINY_AGENT["round_scorer"],
    *TINY_TRAINER,
    "trainer.episodes=8",
    "trainer.lanes=4",
    "device=cpu",
)
ZONES = FederatedConfig(market="zones", **SMALL)


def trainer(seed: int = 0) -> EvolutionTrainer:
    settings = TrainerSettings(
        episodes=1000,
        lanes=8,
        learning_rate=ScheduleSettings(0.2, 0.05),
        evolution=EvolutionSettings(sigma=0.1, unit="median", threads=2),
    )
    build = partial(build_federated, FederatedConfig(**SMALL))
    return EvolutionTrainer(build, small_scorer("round_scorer", 3, "evolved"), settings, seed)


def test_resuming_is_exact(tmp_path: Path) -> None:
    straight = trainer()
    reports = [straight.round() for _ in range(4)]
    first = trainer()
    begun = [first.round() for _ in range(2)]
    save_state(tmp_path / "state.pt", {"format": 1, "trainer": first.state_dict()})
    second = trainer(1)
    second.player.seed = first.player.seed
    torch.manual_seed(12345)
    second.load_state_dict(load_state(tmp_path / "state.pt")["trainer"])
    assert begun + [second.round() for _ in range(2)] == reports
    assert_same(straight.state_dict(), second.state_dict())
    vectors = [item.policy.network.vector for item in (straight, second)]
    assert vectors[0].tolist() == vectors[1].tolist()
    assert (vectors[0] != trainer().policy.network.vector).any()


@pytest.mark.real
def test_the_command_trains_a_round_scorer_that_serves_other_offers(command: Command, tmp_path: Path) -> None:
    out = tmp_path / "run"
    outcome = command(*TINY, "trainer=quick", "trainer.guide=round_cost", f"out={out}")
    assert outcome.code == 0, outcome.err
    policy = load_policy(out, build_federated(ZONES).spec)
    assert isinstance(policy, RoundScorerPolicy)
    for config in (ZONES, FederatedConfig(scenario="mnist"), FederatedConfig(scenario="til", measured=True)):
        world = build_federated(config)
        play_policy(world, policy, EpisodeKey(0, "test", 0))
        assert world.metrics(0)["rounds_lost"] == 0
    with pytest.raises(CheckpointError, match="its weights cannot be changed without retraining"):
        load_policy(out, build_federated(ZONES).spec, [1.0, 2.0])


@pytest.mark.real
def test_compare_plays_the_rules_on_the_same_applications(tmp_path: Path) -> None:
    env: dict[str, Any] = {"name": "federated", **SMALL}
    values: dict[str, Any] = {
        "env": env,
        "policies": ["round_cost", "fed_cost_aware", "always_spot"],
        "suite": "test",
        "episodes": 4,
        "lanes": 2,
    }
    assert compare(values, str(tmp_path / "a")) == 0
    summary = json.loads((tmp_path / "a" / "summary.json").read_text())
    assert summary["reference"] == "round_cost"
    assert "cost_index" in (tmp_path / "a" / "episodes.csv").read_text().splitlines()[0]
    assert compare({**values, "lanes": 4}, str(tmp_path / "b")) == 0
    episodes = [(tmp_path / name / "episodes.csv").read_text() for name in ("a", "b")]
    assert episodes[0] == episodes[1]


def test_rules_have_one_name_each() -> None:
    assert len(set(RULE_NAMES)) == len(RULE_NAMES)
    for name in ROUND_RULES:
        assert named_rule(name).name == name
    with pytest.raises(ValueError, match=r"unknown rule 'round_cots' \(did you mean 'round_cost'\?\)"):
        named_rule("round_cots")
    assert set(rules_of("federated")) == set(ROUND_RULES)


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
        (("env.budget_share=2",), "env.budget_share is 2.0: expected a share between 0 and 1"),
        (("env.clients=9",), "unknown key env.clients: did you mean"),
        (("trainer.guide=round_cots",), "unknown rule 'round_cots' (did you mean 'round_cost'?)"),
        (("trainer.lanes=3",), "trainer.lanes is 3: expected a multiple of 2"),
        (("agent.hidden_size=0",), "agent.hidden_size is 0: input should be greater than"),
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
    assert "is not JSON" in command("+env=federated", f"env.scenario={file}").mistake


def test_a_round_scorer_is_refused_where_tasks_have_no_rounds(command: Command, tmp_path: Path) -> None:
    out = f"out={tmp_path / 'run'}"
    elsewhere = command(
        "+env=multicluster",
        *TINY_WORLD["multicluster"],
        *TINY_TRAINER,
        "agent=round_scorer",
        out,
    )
    assert "agent=round_scorer does not know the tasks of this environment" in elsewhere.mistake


def test_a_checkpoint_of_another_world_is_refused() -> None:
    spec = build_federated(ZONES).spec
    others = [name for name in released_names() if not name.startswith("federated")]
    assert others
    for name in others:
        with pytest.raises(CheckpointError, match=r"was trained for \+env=.*, not for \+env=federated"):
            load_policy(policy_file(name), spec)


def test_rules_of_other_worlds_do_not_crash_here() -> None:
    """They know nothing of rounds, but every one sees the same observation and must take a valid action."""
    world = build_federated(FederatedConfig(**SMALL))
    for name in ("maf", "rr", "random", "cheapest", "expected_cost", "spot_fallback"):
        play_policy(world, named_rule(name), EpisodeKey(1, "validation", 0))
        assert np.isfinite(world.metrics(0)["cost_index"])
