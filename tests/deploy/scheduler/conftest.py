"""The world that most tests of the scheduler begin with."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.deploy.scheduler.worlds import World, cheap_and_sure


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path, cheap_and_sure())
