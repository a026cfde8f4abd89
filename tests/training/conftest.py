"""Fixtures of the command tests."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.training.commands import TINY, Command


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Command:
    """The training command; what it writes without out= stays in a temporary directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SPOTWEAVE_TRACEBACK", raising=False)
    return Command(monkeypatch, capsys)


@pytest.fixture
def finished_run(command: Command, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of `TINY` in run/, which is trained once for all tests."""
    run, kept = tmp_path / "run", tmp_path_factory.getbasetemp() / "finished_run"
    if not kept.exists():
        command(*TINY, "out=run").printed()
        shutil.copytree(run, kept)
    else:
        shutil.copytree(kept, run)
    return run


@pytest.fixture
def file(tmp_path: Path) -> Callable[[object], str]:
    """Writes a document, or a text as it stands, and gives the file's name."""

    def write(content: object) -> str:
        path = tmp_path / "document.json"
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return str(path)

    return write
