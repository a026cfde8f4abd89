"""The command repeat with real, tiny trainings: resumable, and nothing is done twice."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.training.commands import tiny
from training import repeat
from training.config import run_command

WORDS = ",".join(f"'{word}'" for word in tiny("rl_fc") if "test_episodes" not in word)


def run(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["training/repeat.py", *words])
    with pytest.raises(SystemExit) as exited:
        run_command("repeat", repeat.main)
    assert isinstance(exited.value.code, int)
    return exited.value.code


@pytest.mark.slow
def test_trainings_run_once_and_other_settings_are_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    good = f"+trainings.good={{overrides: [{WORDS}], seeds: [0, 1]}}"
    bad = f"+trainings.bad={{overrides: [{WORDS},'trainer.guide=none'], seeds: [0]}}"
    assert run(monkeypatch, good, bad, "out=runs") == 1
    printed = capsys.readouterr().out
    assert "failed: bad seed 0: ended with exit code 2 (error: unknown rule 'none'" in printed
    assert "2 of 3 trainings are finished (0 were before), 1 failed" in printed
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "runs" / "good").rglob("*.pt")}
    assert len(before) == 4

    assert run(monkeypatch, good, "out=runs") == 0
    assert "2 of 2 trainings are finished (2 were before), 0 failed" in capsys.readouterr().out
    assert {path: path.stat().st_mtime_ns for path in before} == before

    changed = good.replace("trainer.gradient_steps=1", "trainer.gradient_steps=2")
    assert run(monkeypatch, changed, "out=runs") == 2
    assert "trainer.gradient_steps is 1 there, 2 is asked for" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "nothing to train: give +experiment=STUDY/trainings"),
        (("+experiment=liu2022/table_5_3",), "this experiment compares: run it with training/compare.py"),
        (("+experiment=liu2022/trainings", "workers=0"), "workers is 0"),
        (("+experiment=liu2022/trainings", "only=[nothing]"), "only names 'nothing'"),
    ],
)
def test_mistakes_are_one_line(
    words: tuple[str, ...],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(monkeypatch, *words) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1
