"""`python -m training.studies.spot`: a mistake is one line."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from training.studies.spot.__main__ import app


@pytest.mark.parametrize("command", ["measure", "entries"])
def test_a_checkpoint_that_is_none_is_one_line(command: str, tmp_path: Path) -> None:
    told = CliRunner().invoke(app, [command, "--multi", "nothing/here", "--out", str(tmp_path)])
    assert told.exit_code == 2
    assert told.stderr.startswith("error: ")
    assert "nothing/here" in told.stderr
    assert told.stderr.count("\n") == 1
    assert not list(tmp_path.glob("*.md"))
