"""Fixtures of the command tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.training.commands import Command


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Command:
    """The training command; what it writes without out= stays in a temporary directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SPOTWEAVE_TRACEBACK", raising=False)
    return Command(monkeypatch, capsys)
