"""What a study trains: which runs, by which words, and which directories are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.training.commands import tiny
from training.config import UsageError, compose_values, to_yaml, typed
from training.run_directory import RunDirectory
from training.studies.trained import RepeatSettings, Run, Training, planned_runs

WORDS = [word for word in tiny("rl_fc") if "test_episodes" not in word]


def settings(out: Path, **changes: object) -> RepeatSettings:
    trainings = {"a": Training(WORDS, [0, 1]), "b": Training([*WORDS, "trainer.lanes=3"], [0])}
    return RepeatSettings(**{"trainings": trainings, "out": str(out), **changes})  # type: ignore[arg-type]


def test_runs_come_seed_by_seed_with_their_words(tmp_path: Path) -> None:
    runs = planned_runs(settings(tmp_path))
    assert [run.name for run in runs] == ["a seed 0", "b seed 0", "a seed 1"]
    assert runs[2].directory.path == tmp_path / "a" / "seed1"
    assert runs[2].overrides[-3:] == ("trainer.test_episodes=0", "seed=1", f"out={tmp_path / 'a' / 'seed1'}")
    assert [run.name for run in planned_runs(settings(tmp_path, only=["b"], seeds=[7]))] == ["b seed 7"]


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
        planned_runs(settings(tmp_path, **changes))


def test_a_mistyped_key_of_a_training_is_refused() -> None:
    with pytest.raises(UsageError, match=r"trainings\.a\.sedes"):
        typed(RepeatSettings, {"trainings": {"a": {"overrides": [], "sedes": [1]}}, "out": "runs"}, "")


def made(run: Run, *more: str) -> RunDirectory:
    """A run directory as training leaves it, without the training."""
    values = compose_values("train", [*run.overrides, *more])
    values["command"] = "python training/train.py"
    directory = RunDirectory.create(str(run.directory.path), "multicluster", "rl_fc", run.seed, values)
    directory.policy.write_bytes(b"policy")
    return directory


def test_a_run_with_the_same_settings_is_taken_as_it_is(tmp_path: Path) -> None:
    run = planned_runs(settings(tmp_path))[0]
    run.refuse_other_settings()
    states = [(run.begun, run.finished)]
    directory = made(run)
    run.refuse_other_settings()
    states.append((run.begun, run.finished))
    directory.finish({})
    states.append((run.begun, run.finished))
    assert states == [(False, False), (True, False), (True, True)]


def test_other_settings_are_refused_with_the_key_and_nothing_is_lost(tmp_path: Path) -> None:
    run = planned_runs(settings(tmp_path))[0]
    directory = made(run, "trainer.gradient_steps=9")
    with pytest.raises(UsageError, match=r"trainer\.gradient_steps is 9 there, 1 is asked for\)") as refused:
        run.refuse_other_settings()
    assert str(run.directory.path) in str(refused.value)
    assert directory.policy.read_bytes() == b"policy"


def test_a_setting_that_is_newer_than_the_run_counts_as_its_default(tmp_path: Path) -> None:
    run = planned_runs(settings(tmp_path))[0]
    directory = made(run)
    values = compose_values("train", run.overrides)
    assert values["trainer"].pop("optimizer") == "adam"
    directory.config.write_text(to_yaml(values))
    run.refuse_other_settings()
    values["trainer"]["optimizer"] = "sgd"
    directory.config.write_text(to_yaml(values))
    with pytest.raises(UsageError, match=r"trainer\.optimizer is 'sgd' there, 'adam' is asked for"):
        run.refuse_other_settings()


def test_a_configuration_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    run = planned_runs(settings(tmp_path))[0]
    made(run).config.write_text("a: 1\n")
    with pytest.raises(UsageError, match="not the configuration of a run of this version"):
        run.refuse_other_settings()


def test_wrong_words_are_found_before_anything_runs(tmp_path: Path) -> None:
    wrong = settings(tmp_path, trainings={"a": Training([*WORDS, "trainer.lnaes=3"], [0])})
    with pytest.raises(UsageError, match="lnaes"):
        planned_runs(wrong)[0].refuse_other_settings()
