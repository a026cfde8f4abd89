"""Random search of settings: what is tried, what is best, and the command with real, tiny trainings."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from spotweave.training.checkpoint import RunDirectory
from spotweave.training.config import UsageError, compose_values, to_yaml, typed
from spotweave.training.studies.search import TuneSettings, candidates, runs_of_best, searched, validated
from spotweave.training.studies.trained import (
    NotTrainedError,
    RepeatSettings,
    Run,
    Training,
    find_trained,
    planned_runs,
)
from tests.training.commands import Command, tiny

SPACE: dict[str, list[Any]] = {
    "agent.jobs": [1, 4, 8],
    "agent.discount": [0.9, 0.99],
    "agent.hidden_sizes": [[8], [16, 16]],
}


def test_the_defaults_and_different_settings_of_the_space_are_tried() -> None:
    found = candidates(SPACE, 6, seed=1)
    assert found[0] == []
    assert len(found) == len({tuple(words) for words in found}) == 6
    assert found == candidates(SPACE, 6, seed=1)
    assert found != candidates(SPACE, 6, seed=2)
    everything = candidates(SPACE, 100, seed=1)
    # 3 * 2 * 2 settings and the defaults
    assert len(everything) == 13
    assert {tuple(words) for words in everything[1:]} == {
        tuple(f"{key}={value}" for key, value in zip(SPACE, values, strict=True))
        for values in product(*SPACE.values())
    }


def settings(name: str, out: Path) -> TuneSettings:
    values = compose_values("tune", [f"+experiment=comparators/{name}", f"out={out}", "only=[maskable_ppo]"])
    return typed(TuneSettings, values, "")


@pytest.mark.real
@pytest.mark.parametrize(
    ("name", "objective", "values", "best"),
    [
        # Of S more is better: the best validations are 3, 9, 4, ...
        ("multicluster", "s", [[1, 3], [9, 2], [4], [0]], 1),
        # Of cost less is better: 250 is the least of all.
        ("multicloud", "cost_usd_eq", [[400, 300], [500, 260], [250, 999], [280]], 2),
    ],
)
def test_the_best_on_validation_is_trained_with_the_whole_budget(
    name: str, objective: str, values: list[list[float]], best: int, tmp_path: Path
) -> None:
    wanted = settings(name, tmp_path)
    found = searched(wanted)["maskable_ppo"]
    for candidate, column in zip(found, values, strict=True):
        directory = candidate.run.directory
        directory.path.mkdir(parents=True)
        directory.validations.write_text("\n".join(["episode," + objective, *(f"1,{x}" for x in column), ""]))
    scores = [validated(candidate.run) for candidate in found]
    assert scores.index(max(scores)) == best
    runs = runs_of_best(wanted, "maskable_ppo", found[best])
    assert [run.seed for run in runs] == [0, 1, 2]
    tried = compose_values("train", found[best].run.overrides)
    whole = compose_values("train", runs[0].overrides)
    assert whole["agent"] == tried["agent"]
    assert whole["trainer"]["learning_rate"] == tried["trainer"]["learning_rate"]
    assert (tried["trainer"]["max_decisions"], whole["trainer"]["max_decisions"]) == (60_000, 250_000)
    assert tried["seed"] == 100


def test_a_run_without_validations_is_named(tmp_path: Path) -> None:
    first = searched(settings("multicluster", tmp_path))["maskable_ppo"][0]
    with pytest.raises(UsageError, match=r"maskable_ppo/tried/0/seed100/validation.csv is not that of"):
        validated(first.run)


@pytest.mark.real
@pytest.mark.parametrize("name", ["multicluster", "multicloud"])
def test_every_word_of_every_search_is_a_setting(name: str) -> None:
    values = compose_values("tune", [f"+experiment=comparators/{name}", "candidates=2"])
    for found in searched(typed(TuneSettings, values, "")).values():
        for candidate in found:
            candidate.run.refuse_other_settings()


@pytest.mark.nightly
def test_the_same_command_searches_trains_and_does_nothing_twice(command: Command, tmp_path: Path) -> None:
    tune = replace(command, name="tune")
    words = ",".join(f"'{word}'" for word in tiny("mtdqn", "bags") if "test_episodes" not in word)
    search = f"+searches.ours={{overrides: [{words}], space: {{trainer.multi_target.taste: [0.3]}}}}"
    asked = (search, "candidates=2", "seeds=[1]", "out=runs", "try_overrides=['trainer.episodes=4']")
    outcome = tune(*asked).printed()
    assert "2 of 2 trainings are finished (0 were before), 0 failed" in outcome
    assert "1 of 1 trainings are finished (0 were before), 0 failed" in outcome
    written = {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").rglob("done.json")}
    assert {path.parent.relative_to(tmp_path).as_posix() for path in written} == {
        "runs/ours/tried/0/seed100",
        "runs/ours/tried/1/seed100",
        "runs/ours/seed1",
    }
    assert tune(*asked).code == 0
    assert {path: path.stat().st_mtime_ns for path in written} == written


# The command repeat with real, tiny trainings: resumable, and nothing is done twice.


WORDS = [word for word in tiny("rl_fc") if "test_episodes" not in word]
REPEAT_WORDS = ",".join(f"'{word}'" for word in WORDS)


@pytest.mark.parametrize(
    ("name", "words", "message"),
    [
        ("tune", "candidates=0", "candidates is 0"),
        ("tune", "only=[ppo]", "only names 'ppo': the searches are sb3_dqn"),
        ("tune", "seeds=[100]", "try_seed is 100: expected none of"),
        ("repeat", None, "nothing to train: give experiment=STUDY/trainings"),
        ("repeat", "+experiment=liu2022/table_5_3", "this experiment compares: run it with training/compare"),
        ("repeat", "workers=0", "workers is 0"),
        ("repeat", "only=[nothing]", "only names 'nothing'"),
    ],
)
def test_mistakes_are_one_line(name: str, words: str | None, message: str, command: Command) -> None:
    study = {"tune": "comparators/multicluster", "repeat": "liu2022/trainings"}[name]
    given = [] if words is None else [words] if "+" in words else [f"+experiment={study}", words]
    assert message in replace(command, name=name)(*given).mistake


@pytest.mark.real
def test_trainings_run_once_and_other_settings_are_refused(command: Command, tmp_path: Path) -> None:
    repeat = replace(command, name="repeat")
    good = f"+trainings.good={{overrides: [{REPEAT_WORDS}], seeds: [0]}}"
    bad = f"+trainings.bad={{overrides: [{REPEAT_WORDS},'trainer.guide=none'], seeds: [0]}}"
    outcome = repeat(good, bad, "out=runs")
    assert outcome.code == 1
    assert "failed: bad seed 0: ended with exit code 2 (error: unknown rule 'none'" in outcome.out
    assert "1 of 2 trainings are finished (0 were before), 1 failed" in outcome.out
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "runs" / "good").rglob("*.pt")}
    assert len(before) == 2

    again = repeat(good, "out=runs").printed()
    assert "1 of 1 trainings are finished (1 were before), 0 failed" in again
    assert {path: path.stat().st_mtime_ns for path in before} == before

    changed = good.replace("trainer.gradient_steps=1", "trainer.gradient_steps=2")
    mistake = repeat(changed, "out=runs").mistake
    assert "trainer.gradient_steps is 1 there, 2 is asked for" in mistake


# What a study trains: which runs, by which words, and which directories are refused.


def repeat_settings(out: Path, **changes: object) -> RepeatSettings:
    trainings = {"a": Training(WORDS, [0, 1]), "b": Training([*WORDS, "trainer.lanes=3"], [0])}
    return RepeatSettings(**{"trainings": trainings, "out": str(out), **changes})  # type: ignore[arg-type]


def test_runs_come_seed_by_seed_with_their_words(tmp_path: Path) -> None:
    runs = planned_runs(repeat_settings(tmp_path))
    assert [run.name for run in runs] == ["a seed 0", "b seed 0", "a seed 1"]
    assert runs[2].directory.path == tmp_path / "a" / "seed1"
    assert runs[2].overrides[-3:] == ("trainer.test_episodes=0", "seed=1", f"out={tmp_path / 'a' / 'seed1'}")
    assert [run.name for run in planned_runs(repeat_settings(tmp_path, only=["b"], seeds=[7]))] == [
        "b seed 7"
    ]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"only": ["c"]}, "only names 'c': the trainings are a, b"),
        ({"seeds": []}, "training a has seeds"),
        ({"seeds": [1, 1]}, "each once"),
        ({"trainings": {"a": Training(["seed=3"])}}, "training a gives seed=3"),
        ({"trainings": {"a": Training(["engine=ray"])}}, "training a gives engine=ray"),
    ],
)
def test_what_makes_no_sense_is_refused(changes: dict[str, object], message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=message):
        planned_runs(repeat_settings(tmp_path, **changes))


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return planned_runs(repeat_settings(tmp_path))[0]


def made(run: Run, *more: str) -> RunDirectory:
    """A run directory as training leaves it, without the training."""
    values = compose_values("train", [*run.overrides, *more])
    values["command"] = "python training/train.py"
    directory = RunDirectory.create(str(run.directory.path), "multicluster", "rl_fc", run.seed, values)
    directory.policy.write_bytes(b"policy")
    return directory


def test_a_run_with_the_same_settings_is_taken_as_it_is(run: Run) -> None:
    run.refuse_other_settings()
    states = [(run.begun, run.finished)]
    directory = made(run)
    run.refuse_other_settings()
    states.append((run.begun, run.finished))
    directory.finish({})
    states.append((run.begun, run.finished))
    assert states == [(False, False), (True, False), (True, True)]


def test_other_settings_are_refused_with_the_key_and_nothing_is_lost(run: Run) -> None:
    directory = made(run, "trainer.gradient_steps=9")
    with pytest.raises(UsageError, match=r"trainer\.gradient_steps is 9 there, 1 is asked for\)") as refused:
        run.refuse_other_settings()
    assert str(run.directory.path) in str(refused.value)
    assert directory.policy.read_bytes() == b"policy"


def test_a_setting_that_is_newer_than_the_run_counts_as_its_default(run: Run) -> None:
    directory = made(run)
    values = compose_values("train", run.overrides)
    assert values["trainer"].pop("optimizer") == "adam"
    directory.config.write_text(to_yaml(values))
    run.refuse_other_settings()
    values["trainer"]["optimizer"] = "sgd"
    directory.config.write_text(to_yaml(values))
    with pytest.raises(UsageError, match=r"trainer\.optimizer is 'sgd' there, 'adam' is asked for"):
        run.refuse_other_settings()


def test_a_configuration_that_cannot_be_read_is_refused(run: Run) -> None:
    made(run).config.write_text("a: 1\n")
    with pytest.raises(UsageError, match="not the configuration of a run of this version"):
        run.refuse_other_settings()


def test_wrong_words_are_found_before_anything_runs(tmp_path: Path) -> None:
    wrong = repeat_settings(tmp_path, trainings={"a": Training([*WORDS, "trainer.lnaes=3"], [0])})
    with pytest.raises(UsageError, match="lnaes"):
        planned_runs(wrong)[0].refuse_other_settings()


# What is published of a trained policy.


def test_a_released_policy_is_published_with_its_path_in_the_repository() -> None:
    (found,) = find_trained("spotweave", "liu2022/spotweave", "")
    assert found.path.is_absolute()
    assert found.facts()["path"] == "checkpoints/liu2022/spotweave/policy.pt"


def test_a_run_that_is_not_there_is_told_with_the_command_that_trains_it() -> None:
    message = r"agent one: no checkpoint at runs/none/seed0, .*\. Train it: make it$"
    with pytest.raises(NotTrainedError, match=message):
        find_trained("one", "runs/none/seed0", "make it")
