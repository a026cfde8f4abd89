"""The command repeat with real, tiny trainings: resumable, and nothing is done twice."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.training.commands import Command, tiny

WORDS = ",".join(f"'{word}'" for word in tiny("rl_fc") if "test_episodes" not in word)


@pytest.fixture
def repeat(command: Command) -> Command:
    return replace(command, name="repeat")


@pytest.mark.real
def test_trainings_run_once_and_other_settings_are_refused(repeat: Command, tmp_path: Path) -> None:
    good = f"+trainings.good={{overrides: [{WORDS}], seeds: [0]}}"
    bad = f"+trainings.bad={{overrides: [{WORDS},'trainer.guide=none'], seeds: [0]}}"
    outcome = repeat(good, bad, "out=runs")
    assert outcome.code == 1
    assert "failed: bad seed 0: ended with exit code 2 (error: unknown rule 'none'" in outcome.out
    assert "1 of 2 trainings are finished (0 were before), 1 failed" in outcome.out
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "runs" / "good").rglob("*.pt")}
    assert len(before) == 2

    outcome = repeat(good, "out=runs")
    assert outcome.code == 0
    assert "1 of 1 trainings are finished (1 were before), 0 failed" in outcome.out
    assert {path: path.stat().st_mtime_ns for path in before} == before

    changed = good.replace("trainer.gradient_steps=1", "trainer.gradient_steps=2")
    mistake = repeat(changed, "out=runs").mistake
    assert "trainer.gradient_steps is 1 there, 2 is asked for" in mistake


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "nothing to train: give experiment=STUDY/trainings"),
        (("+experiment=liu2022/table_5_3",), "this experiment compares: run it with training/compare.py"),
        (("+experiment=liu2022/trainings", "workers=0"), "workers is 0"),
        (("+experiment=liu2022/trainings", "only=[nothing]"), "only names 'nothing'"),
    ],
)
def test_mistakes_are_one_line(words: tuple[str, ...], message: str, repeat: Command) -> None:
    assert message in repeat(*words).mistake
