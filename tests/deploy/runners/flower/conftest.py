"""The stage of a job whose SuperLink and nodes are played."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from spotweave.deploy.runners.flower import checkpoints, runner
from tests.deploy.runners.flower.stage import Clock, Played, Stage, Store, play
from tests.deploy.runners.flower.world import MEAN


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> Played:
    return play(monkeypatch)


@pytest.fixture
def fresh(tmp_path: Path, played: Played, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    """Of a job that was not begun."""
    shutil.copytree(MEAN, tmp_path / "work/mean")
    clock = Clock()
    monkeypatch.setattr(time, "monotonic", clock)
    # A machine that is busy needs more than the usual second for a step.
    monkeypatch.setattr(runner, "_LOCK_S", 20.0)
    yield Stage(tmp_path, played, clock)
    played.slow.set()
    played.slow_nodes.set()


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setattr(checkpoints, "_BACK_OFF_S", 0.001)
    monkeypatch.setattr(checkpoints, "_BACK_OFF_MOST_S", 0.001)
    return Store(tmp_path / "store")


@pytest.fixture
def stage(fresh: Stage) -> Stage:
    """Of a job that runs."""
    fresh.until_running()
    return fresh
