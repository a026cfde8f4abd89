"""What every test of ServerApps needs."""

from __future__ import annotations

import pytest
from flwr.supercore.task_identity import TaskIdentity


@pytest.fixture(autouse=True)
def as_in_a_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """Flower lets nobody make messages who is no ServerApp."""
    for name, number in (("_run_id", 1), ("_task_id", 1), ("_node_id", 1)):
        monkeypatch.setattr(TaskIdentity, name, number)
