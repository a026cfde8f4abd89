"""Random search of settings: what is tried, what is best, and the command with real, tiny trainings."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from tests.training.commands import Command, tiny
from training.config import UsageError, compose_values, typed
from training.studies.search import TuneSettings, candidates, runs_of_best, searched, validated

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
        (
            "multicloud",
            "cost_usd_eq",
            [[400, 300], [500, 260], [250, 999], [280]],
            2,
        ),
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


@pytest.fixture
def tune(command: Command) -> Command:
    return replace(command, name="tune")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "nothing to search: give experiment=comparators/multicluster"),
        (("+experiment=comparators/multicluster", "candidates=0"), "candidates is 0"),
        (
            ("+experiment=comparators/multicluster", "only=[ppo]"),
            "only names 'ppo': the searches are sb3_dqn",
        ),
        (("+experiment=comparators/multicluster", "seeds=[100]"), "try_seed is 100: expected none of"),
    ],
)
def test_mistakes_are_one_line(words: tuple[str, ...], message: str, tune: Command) -> None:
    assert message in tune(*words).mistake


@pytest.mark.nightly
def test_the_same_command_searches_trains_and_does_nothing_twice(tune: Command, tmp_path: Path) -> None:
    words = ",".join(f"'{word}'" for word in tiny("mtdqn", "bags") if "test_episodes" not in word)
    search = f"+searches.ours={{overrides: [{words}], space: {{trainer.multi_target.taste: [0.3]}}}}"
    asked = (search, "candidates=2", "seeds=[1]", "out=runs", "try_overrides=['trainer.episodes=4']")
    outcome = tune(*asked)
    assert outcome.code == 0
    assert "2 of 2 trainings are finished (0 were before), 0 failed" in outcome.out
    assert "1 of 1 trainings are finished (0 were before), 0 failed" in outcome.out
    written = {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").rglob("done.json")}
    assert {path.parent.relative_to(tmp_path).as_posix() for path in written} == {
        "runs/ours/tried/0/seed100",
        "runs/ours/tried/1/seed100",
        "runs/ours/seed1",
    }
    assert tune(*asked).code == 0
    assert {path: path.stat().st_mtime_ns for path in written} == written
