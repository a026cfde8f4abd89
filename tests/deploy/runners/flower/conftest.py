"""The stage of a job whose SuperLink and nodes are played."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.runners import workers
from deploy.runners.flower import job
from tests.deploy.runners.flower.stage import Clock, Played, PlayedNode, PlayedSuperLink, Stage
from tests.deploy.runners.flower.world import MEAN


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> Played:
    played = Played()
    PlayedSuperLink.played = PlayedNode.played = played
    monkeypatch.setattr(job, "SuperLink", PlayedSuperLink)
    monkeypatch.setattr(workers, "NodeClient", PlayedNode)
    return played


@pytest.fixture
def stage(tmp_path: Path, played: Played, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    shutil.copytree(MEAN, tmp_path / "work/mean")
    clock = Clock()
    monkeypatch.setattr(time, "monotonic", clock)
    yield Stage(tmp_path, played, clock)
    played.slow.set()
    played.slow_nodes.set()
