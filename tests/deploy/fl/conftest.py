"""What every test of ServerApps needs."""

from __future__ import annotations

from pathlib import Path

import pytest
from flwr.supercore.task_identity import TaskIdentity

from spotweave.deploy.fl import asynchronous, synchronous
from spotweave.deploy.fl.checkpoints import SETUP_VARIABLE


@pytest.fixture(autouse=True)
def as_in_a_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """Flower lets nobody make messages who is no ServerApp."""
    for name, number in (("_run_id", 1), ("_task_id", 1), ("_node_id", 1)):
        monkeypatch.setattr(TaskIdentity, name, number)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of a job; where its setup file has to be. Nobody waits between two looks."""
    monkeypatch.setenv(SETUP_VARIABLE, str(tmp_path / "setup.json"))
    monkeypatch.setattr(synchronous, "_POLL_S", 0.0)
    monkeypatch.setattr(asynchronous, "_POLL_S", 0.0)
    return tmp_path
