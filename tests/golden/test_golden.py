"""What the program answers is what the golden files say."""

from __future__ import annotations

from pathlib import Path

import pytest

from spotweave.envs.environments import ENVIRONMENTS
from tests.golden import FOLDER, SECTIONS, differences, golden_file, lines_of
from tests.golden.worlds import WORLDS

SHOWN = 20


@pytest.mark.parametrize("section", SECTIONS)
def test_nothing_differs_from_the_golden_file(
    section: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = differences(section, lines_of(section))
    assert not found, "\n".join(
        [
            f"{golden_file(section).name} says something else:",
            *found[:SHOWN],
            f"... and {len(found) - SHOWN} more lines" if len(found) > SHOWN else "",
            f"Run `python -m tests.golden {section}` if the change is intended, and say why in the commit.",
        ]
    )


def test_every_file_belongs_to_a_section() -> None:
    assert {path.stem for path in FOLDER.glob("*.txt")} == set(SECTIONS)


def test_every_environment_is_played() -> None:
    played = {words.split()[0].removeprefix("+env=") for words in WORLDS.values()}
    assert played == set(ENVIRONMENTS)
