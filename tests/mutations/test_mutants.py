"""The list applies as it stands, and the command that tries it tells what survives from what is found."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.mutations.__main__ import main
from tests.mutations.mutants import ROOT, Mutant, MutantError, load, stale
from tests.mutations.trial import try_all

SOURCE = "def half(number):\n    return number // 2\n\n\ndef twice(number):\n    return number * 2\n"
TEST = (
    "from thing import half, twice\n\n\n"
    "def test_half():\n    assert half(5) == 2\n\n\ndef test_twice():\n    assert twice(0) == 0\n"
)
FOUND = ("half is a whole", "number // 2", "number")
SURVIVES = ("twice is once", "number * 2", "number")
HANGS = ("half never ends", "    return number // 2", "    while True:\n        pass")
BREAKS = ("it is no Python", "def half(number):", "def half(number")
HANDFUL = ("every role may do everything", "waits between tries do not grow", "an early interruption is paid")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Sources and their tests."""
    root = tmp_path / "project"
    root.mkdir()
    (root / "thing.py").write_text(SOURCE)
    (root / "test_thing.py").write_text(TEST)
    return root


def mutants(*told: tuple[str, str, str]) -> list[Mutant]:
    return [Mutant(name, "thing.py", old, new, ("test_thing.py",)) for name, old, new in told]


def listed(project: Path, *told: tuple[str, str, str]) -> Path:
    """The file of a list of these."""
    path = project / "list.toml"
    blocks = [
        f"[[mutant]]\nname = '{one.name}'\nfile = 'thing.py'\nold = '''{one.old}'''\nnew = '''{one.new}'''\n"
        "tests = ['test_thing.py']\n"
        for one in mutants(*told)
    ]
    path.write_text("\n".join(blocks))
    return path


def run(project: Path, told: Sequence[tuple[str, str, str]], *options: str) -> int:
    return main(["--root", str(project), "--list", str(listed(project, *told)), *options])


def test_every_mutant_of_the_list_still_applies() -> None:
    found = load()
    assert stale(found) == []
    assert len(found) >= 60


def test_what_is_found_what_survives_and_what_says_nothing(project: Path, tmp_path: Path) -> None:
    told = mutants(FOUND, SURVIVES, BREAKS)
    trials = {one.mutant.name: one for one in try_all(project, told, tmp_path / "copies", 2)}
    assert {name: one.verdict for name, one in trials.items()} == {
        FOUND[0]: "killed",
        SURVIVES[0]: "SURVIVED",
        BREAKS[0]: "BROKEN",
    }
    assert [one.found for one in trials.values()].count(True) == 1
    assert "SyntaxError" in trials[BREAKS[0]].output
    assert (project / "thing.py").read_text() == SOURCE
    assert sorted(path.name for path in project.iterdir()) == ["test_thing.py", "thing.py"]


def test_one_that_hangs_is_found(project: Path, tmp_path: Path) -> None:
    (trial,) = try_all(project, mutants(HANGS), tmp_path, 1, limit_s=5.0)
    assert (trial.verdict, trial.found) == ("hung", True)


@pytest.mark.long
def test_the_score_is_told_and_too_low_a_one_is_an_error(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(project, [FOUND, SURVIVES]) == 1
    told = capsys.readouterr().out
    assert "SURVIVED: twice is once (thing.py)\n    - number * 2\n    + number\n    test_thing.py\n" in told
    assert "1 of 2 found: 50.0%" in told
    assert run(project, [FOUND, SURVIVES], "--only", "HALF") == 0
    assert "1 of 1 found: 100.0%" in capsys.readouterr().out


def test_a_mutant_that_does_not_apply_is_an_error_before_anything_is_tried(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gone, twice = ("gone", "number / 2", "number"), ("everywhere", "number", "0")
    assert run(project, [FOUND, gone, twice]) == 1
    captured = capsys.readouterr()
    assert "'gone': its old text occurs 0 times in thing.py, expected once" in captured.err
    assert "'everywhere': its old text occurs 4 times" in captured.err
    assert "found" not in captured.out
    assert run(project, [FOUND], "--check") == 0


def test_tests_that_fail_by_themselves_prove_nothing(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "test_thing.py").write_text(TEST.replace("== 2", "== 3"))
    assert run(project, [FOUND]) == 2
    assert "the tests fail without any mutant: mend that first" in capsys.readouterr().err


def test_mistakes_are_one_line(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(project, [FOUND], "--only", "nothing like it") == 2
    assert run(project, [FOUND], "--jobs", "0") == 2
    assert run(project, [FOUND, FOUND]) == 2
    (project / "list.toml").write_text("[[mutant]]\nname = 'x'\n")
    assert main(["--list", str(project / "list.toml")]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert [line.startswith("error: ") for line in lines] == [True] * 4


def test_a_test_that_is_not_there_is_noticed(project: Path) -> None:
    (one,) = mutants(FOUND)
    for test, missing in (("test_thing.py::test_half", 0), ("test_thing.py::test_third", 1), ("gone.py", 1)):
        assert len(stale([Mutant(one.name, one.file, one.old, one.new, (test,))], project)) == missing
    with pytest.raises(MutantError, match="cannot read gone"):
        Mutant("x", "gone", "a", "b", ()).applied(project)


@pytest.mark.long
def test_a_handful_of_the_list_is_found(tmp_path: Path) -> None:
    chosen = [one for one in load() if one.name in HANDFUL]
    assert len(chosen) == len(HANDFUL)
    assert [one.verdict for one in try_all(ROOT, chosen, tmp_path, 1)] == ["killed"] * len(HANDFUL)
