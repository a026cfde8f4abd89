"""Every file in configs/ composes for every environment, types, survives YAML and names its mistakes."""

from __future__ import annotations

import dataclasses
import math
import subprocess
import sys
from itertools import combinations, product
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from spotweave.agents.registry import OURS, RLFCSettings
from spotweave.envs.environments import ENVIRONMENTS
from spotweave.envs.simulation.slices.config import Chapter4Config
from spotweave.training.config import (
    CONFIG_DIRECTORY,
    UsageError,
    _require_readable,
    _with_default_agent,
    agent_settings,
    compose_values,
    plain,
    provenance,
    to_yaml,
    typed,
    world_config,
)
from spotweave.training.settings import RunSettings, ScheduleSettings, TrainerSettings

CONFIGS = Path(CONFIG_DIRECTORY)
ROOT = CONFIGS.parent
AGENTS = sorted(path.stem for path in (CONFIGS / "agent").glob("*.yaml"))
TRAINERS = sorted(path.stem for path in (CONFIGS / "trainer").glob("*.yaml"))
TUNINGS = sorted(path.stem for path in (CONFIGS / "tuning").glob("*.yaml"))


def round_trip(values: dict[str, Any]) -> dict[str, Any]:
    """As a run's config.yaml gives it back."""
    loaded = OmegaConf.to_container(OmegaConf.create(to_yaml(values)))
    assert isinstance(loaded, dict)
    return {str(key): value for key, value in loaded.items()}


def test_every_environment_has_its_choice() -> None:
    assert sorted(path.stem for path in (CONFIGS / "env").glob("*.yaml")) == sorted(ENVIRONMENTS)


# Any two of environment, agent and trainer meet in one of these, and so do the three of every tuning.
COMPOSED = {
    (env, agent, TRAINERS[(row + column) % len(TRAINERS)])
    for row, env in enumerate(sorted(ENVIRONMENTS))
    for column, agent in enumerate(AGENTS)
} | {
    (env, agent, trainer)
    for env, agent, trainer in product(ENVIRONMENTS, AGENTS, TRAINERS)
    if f"{env}_{agent}_{trainer}" in TUNINGS
}


def test_any_two_choices_are_composed_together() -> None:
    for one, other in combinations(range(3), 2):
        choices = (sorted(ENVIRONMENTS), AGENTS, TRAINERS)
        assert {(case[one], case[other]) for case in COMPOSED} == set(product(choices[one], choices[other]))


@pytest.mark.real
@pytest.mark.parametrize(("env", "agent", "trainer"), sorted(COMPOSED))
def test_training_composes(env: str, agent: str, trainer: str) -> None:
    values = compose_values("train", [f"+env={env}", f"agent={agent}", f"trainer={trainer}"])
    again = round_trip(values)
    assert again == values
    settings = agent_settings(again["agent"])
    assert settings.name == settings.kind == agent
    assert isinstance(settings, OURS[agent].settings)
    typed(TrainerSettings, again["trainer"], "trainer")
    assert isinstance(world_config(again["env"]), ENVIRONMENTS[env].config_class)


@pytest.mark.parametrize("env", sorted(ENVIRONMENTS))
@pytest.mark.parametrize("name", ["evaluate", "compare"])
def test_the_other_commands_compose(name: str, env: str) -> None:
    values = compose_values(name, [f"+env={env}"])
    assert isinstance(world_config(values["env"]), ENVIRONMENTS[env].config_class)
    assert round_trip(values) == values


def test_every_tuning_belongs_to_a_combination() -> None:
    assert set(TUNINGS) <= {"_".join(choice) for choice in product(ENVIRONMENTS, AGENTS, TRAINERS)}


def test_what_is_composed_without_overrides_are_the_defaults_of_the_code() -> None:
    values = compose_values("train", ["+env=multicluster", "agent=rl_lsfc", "trainer=default"])
    assert (
        typed(RunSettings, {k: values[k] for k in ("seed", "device", "out", "resume")}, "") == RunSettings()
    )
    if "multicluster_rl_lsfc_default" not in TUNINGS:
        assert typed(TrainerSettings, values["trainer"], "trainer") == TrainerSettings()
    assert world_config(values["env"]) == ENVIRONMENTS["multicluster"].config_class()


def test_the_papers_schedule() -> None:
    values = compose_values("train", ["+env=multicluster", "agent=rl_lsfc", "trainer=paper"])
    trainer = typed(TrainerSettings, values["trainer"], "trainer")
    assert trainer.episodes == 1500
    # Adam(1e-4) for the first 1000 episodes, Adam(1e-5) afterwards (section 5.3.4).
    rates = [trainer.learning_rate.at(episode / 1500) for episode in (0, 999, 1001, 1499)]
    assert rates == [1e-4, 1e-4, 1e-5, 1e-5]


def test_the_papers_schedule_of_chapter_4() -> None:
    values = compose_values("train", ["+env=chapter4", "agent=rl_fc", "trainer=paper_chapter4"])
    agent = agent_settings(values["agent"])
    assert isinstance(agent, RLFCSettings)
    trainer = typed(TrainerSettings, values["trainer"], "trainer")
    assert (agent.features, agent.hidden_sizes) == ("table_4_1", [2000, 500])
    assert (trainer.episodes, trainer.gradient_steps, trainer.batch_size) == (2000, 1, 1000)
    assert (trainer.replay_capacity, trainer.optimizer, trainer.loss) == (50_000, "sgd", "mse")
    assert trainer.guide == "sf_e"
    # From 0.8 to 0.00001 in episodes 1 to 1900 of 2000, linearly.
    assert [trainer.epsilon_1.at(episode / 2000) for episode in (0, 950, 1900, 1999)] == pytest.approx(
        [0.8, (0.8 + 1e-5) / 2, 1e-5, 1e-5]
    )
    assert trainer.epsilon_2.at(0.0) == trainer.epsilon_2.at(1.0) == 0.5


def test_arrivals_and_load_of_chapter_4_are_plain_overrides() -> None:
    values = compose_values("train", ["+env=chapter4", "env.pattern=beta", "env.load=stressed"])
    assert world_config(values["env"]) == Chapter4Config("beta", "stressed")


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("pattern", "weekly", "'uniform', 'bernoulli' or 'beta'"),
        ("load", "heavy", "'normal', 'eased' or 'stressed'"),
    ],
)
def test_unknown_workloads_of_chapter_4_are_refused(key: str, value: str, expected: str) -> None:
    values = compose_values("train", ["+env=chapter4", f"env.{key}={value}"])
    with pytest.raises(UsageError, match=rf"^env\.{key} is '{value}': input should be {expected}$"):
        world_config(values["env"])


@dataclasses.dataclass
class Inner:
    rate: float = 0.5


@dataclasses.dataclass
class Outer:
    count: int = 3
    inner: Inner = dataclasses.field(default_factory=Inner)
    names: list[str] = dataclasses.field(default_factory=list)


class TestTyped:
    def test_plain_and_back(self) -> None:
        made = Outer(4, Inner(0.25), ["a"])
        assert plain(made) == {"count": 4, "inner": {"rate": 0.25}, "names": ["a"]}
        assert typed(Outer, plain(made), "outer") == made

    @pytest.mark.parametrize(
        ("value", "message"),
        [
            ({"cuont": 4}, "unknown key outer.cuont: did you mean 'count'?"),
            ({"inner": {"speed": 1.0}}, "unknown key outer.inner.speed: known keys: rate"),
            ({"count": "many"}, "outer.count is 'many': input should be a valid integer"),
            ({"count": 1.5}, "outer.count is 1.5: input should be a valid integer"),
            ({"inner": {"rate": "fast"}}, "outer.inner.rate is 'fast': input should be a valid number"),
            ({"inner": 3}, "outer.inner is 3: "),
            ({"names": ["a", 2]}, "outer.names.1 is 2: input should be a valid string"),
        ],
    )
    def test_mistakes_name_the_key_and_the_value(self, value: object, message: str) -> None:
        with pytest.raises(UsageError) as caught:
            typed(Outer, value, "outer")
        assert str(caught.value).startswith(message)
        assert "\n" not in str(caught.value)

    def test_a_key_at_the_top_has_no_prefix(self) -> None:
        with pytest.raises(UsageError, match=r"^seed is -1: "):
            typed(RunSettings, {"seed": -1}, "")


def test_provenance_is_plain_text() -> None:
    facts = provenance()
    assert set(facts) == {"spotweave", "commit"}
    assert all(isinstance(value, str) and value for value in facts.values())


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("checkpoint=runs/epoch=999.pt", """quote the value: 'checkpoint="runs/epoch=999.pt"'"""),
        ("out=results/x(1)", """cannot read out=results/x(1): quote the value: 'out="results/x(1)"'"""),
        ("out=a,b", "out=a,b has several values: sweep them with --multirun, or quote"),
    ],
)
@pytest.mark.parametrize("flags", [[], ["--cfg", "job"]])
def test_a_word_that_cannot_be_read_is_named(word: str, told: str, flags: list[str]) -> None:
    words = [*flags, "+env=multicluster", "policy=maf"]
    _require_readable([*words, 'out="a,b(1)"', "env.market.providers=[aws]"])
    with pytest.raises(UsageError) as refused:
        _require_readable([*words, word])
    assert told in str(refused.value)


@pytest.mark.real
@pytest.mark.parametrize("at", [0, 1, 3])
def test_jobs_of_a_sweep_have_a_folder_each_wherever_the_flag_stands(tmp_path: Path, at: int) -> None:
    words = ["+env=multicluster", "policy=maf,eft", "episodes=2", "env.n_jobs=8", f"out={tmp_path}/both"]
    words.insert(at, "--multirun")
    subprocess.run(
        [sys.executable, "training/evaluate.py", *words], check=True, capture_output=True, cwd=ROOT
    )
    found = [(tmp_path / "both" / job / "evaluation.json").read_text() for job in ("0", "1")]
    assert ['"maf"' in found[0], '"eft"' in found[1], found[0] == found[1]] == [True, True, False]


def test_each_environment_has_its_default_agent_unless_one_is_named() -> None:
    words = ["--cfg", "job", "+env=multicluster"]
    assert _with_default_agent(words) == [*words, "agent=mtdqn"]
    assert _with_default_agent([*words, "agent=rl_fc"]) == [*words, "agent=rl_fc"]


# Schedules by hand, and settings that cannot train are refused in one line that names them.


NAN = math.nan


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        # Linear over the first half, then constant.
        (ScheduleSettings(0.8, 0.0, 0.5), {0.0: 0.8, 0.25: 0.4, 0.5: 0.0, 1.0: 0.0}),
        (ScheduleSettings(1e-4, 1e-5, 2 / 3, "step"), {0.0: 1e-4, 0.66: 1e-4, 0.67: 1e-5, 1.0: 1e-5}),
        (ScheduleSettings(0.5, 0.5), {0.0: 0.5, 0.7: 0.5}),
        (ScheduleSettings(0.3, 0.1, 0.0), {0.0: 0.1, 1.0: 0.1}),
        (ScheduleSettings(0.0, 1.0), {0.0: 0.0, 1.5: 1.0}),  # a last round may overshoot the episodes
    ],
)
def test_schedules(schedule: ScheduleSettings, expected: dict[float, float]) -> None:
    for progress, value in expected.items():
        assert schedule.at(progress) == pytest.approx(value), progress


def trainer(**changes: Any) -> TrainerSettings:
    return typed(TrainerSettings, {**plain(TrainerSettings()), **changes}, "trainer")


@pytest.mark.parametrize("kind", OURS)
def test_the_defaults_of_every_agent_are_allowed(kind: str) -> None:
    defaults = OURS[kind].defaults(kind)
    assert agent_settings(plain(defaults)) == defaults


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"episodes": 0}, r"trainer\.episodes is 0: input should be greater than or equal to 1"),
        ({"lanes": -2}, r"trainer\.lanes is -2"),
        ({"gradient_steps": 0}, r"trainer\.gradient_steps is 0"),
        ({"batch_size": 0}, r"trainer\.batch_size is 0"),
        ({"validation_every": 0}, r"trainer\.validation_every is 0"),
        ({"validation_episodes": 0}, r"trainer\.validation_episodes is 0"),
        ({"batch_size": 100, "replay_capacity": 50}, r"replay_capacity \(50\) is smaller than .*\(100\)"),
        ({"test_episodes": 1}, r"trainer: test_episodes is 1: expected at least 2, or 0"),
        ({"test_episodes": -1}, r"trainer\.test_episodes is -1"),
        ({"epsilon_1": {"start": 1.2}}, r"trainer\.epsilon_1: expected numbers in 0\.\.1, got 1\.2 to 0\.0"),
        ({"epsilon_1": {"start": NAN}}, r"trainer\.epsilon_1"),
        ({"epsilon_2": {"start": 0.5, "end": -0.1}}, r"trainer\.epsilon_2.* 0\.5 to -0\.1"),
        ({"learning_rate": {"start": 0.0}}, r"trainer\.learning_rate: expected positive numbers"),
        ({"learning_rate": {"start": 1e-3, "end": NAN}}, r"trainer\.learning_rate"),
        ({"target_clip": NAN}, r"trainer\.target_clip is nan"),
        ({"multi_target": {"follow_share": 1.5}}, r"trainer\.multi_target\.follow_share is 1\.5"),
        ({"multi_target": {"kept_per_episode": -1}}, r"trainer\.multi_target\.kept_per_episode is -1"),
        ({"multi_target": {"taste": 0.0}}, r"trainer\.multi_target\.taste is 0\.0"),
    ],
)
def test_trainers_that_cannot_train_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        trainer(**changes)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "changes", "message"),
    [
        ("rl_lsfc", {"lstm_size": 0}, r"agent\.lstm_size is 0: input should be greater than or equal to 1"),
        ("mtdqn", {"own_size": -1}, r"agent\.own_size is -1"),
        ("mtdqn", {"margin": -0.1}, r"agent\.margin is -0\.1"),
        ("rl_fc", {"hidden_sizes": [10]}, r"agent\.hidden_sizes is \[10\]: list should"),
        ("rl_fc", {"hidden_sizes": [10, 0]}, r"agent\.hidden_sizes\.1 is 0"),
        ("rl_fc", {"weights": [1.0, NAN, 1.0]}, r"agent\.weights\.1 is nan: input should be a finite number"),
        ("rl_lsfc", {"scales": [1.0, 0.0]}, r"agent\.scales\.1 is 0\.0: input should be greater than 0"),
        ("mtdqn", {"shared_size": 64}, r"unknown key agent\.shared_size"),
        ("sb3_dqn", {"jobs": 0}, r"agent\.jobs is 0"),
        ("sb3_dqn", {"learning_starts": -1}, r"agent\.learning_starts is -1"),
        ("sb3_dqn", {"discount": 1.5}, r"agent\.discount is 1\.5"),
        ("sb3_dqn", {"hidden_sizes": []}, r"agent\.hidden_sizes is \[\]"),
    ],
)
def test_agents_that_cannot_be_built_are_refused(kind: str, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        agent_settings({"name": kind, "kind": kind, **changes})
    assert "\n" not in str(caught.value)
