"""The world that most tests of the scheduler begin with."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.deploy.scheduler.worlds import World, cheap_and_sure


@pytest.fixture
def world(tmp_path: Path) -> World:
    """With an offer that is cheap, and one that is sure."""
    return World(tmp_path, cheap_and_sure())
