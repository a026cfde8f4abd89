"""compare and evaluate as they are typed: in a process of their own once, and in this one for the rest."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.training.commands import ROOT, Command


@pytest.mark.real
def test_the_commands_end_to_end(command: Command, tmp_path: Path) -> None:
    small = ("+env=multicluster", "env.n_jobs=40", "episodes=3", "suite=validation")
    words = (*small, "policies=[tuned,maf,random]", "out=first")
    first = subprocess.run(
        [sys.executable, "-W", "error", ROOT / "training" / "compare.py", *words],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert first.returncode == 0, first.stderr
    assert "tuned −" in first.stdout
    assert first.stderr == ""
    again = replace(command, name="compare")("config=first/config.yaml", "out=again")
    assert again.code == 0, again.err
    assert (tmp_path / "first/episodes.csv").read_text() == (tmp_path / "again/episodes.csv").read_text()
    assert "data:image/png" in (tmp_path / "first/report.html").read_text()
    one = replace(command, name="evaluate")(*small, "policy=maf", "out=one")
    assert one.code == 0, one.err
    rows = (tmp_path / "first/episodes.csv").read_text().splitlines()
    expected = [row for row in rows if row.startswith(("policy,", "maf,"))]
    assert (tmp_path / "one/episodes.csv").read_text().splitlines() == expected


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("config=first.yaml", "episodes=3"), "episodes=3 was given with config="),
        (("+env=multicluster", "out=/proc/nowhere"), "cannot write into /proc/nowhere"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(
    command: Command, arguments: tuple[str, ...], message: str
) -> None:
    told = replace(command, name="compare")(*arguments)
    assert message in told.mistake
    assert told.out == ""
