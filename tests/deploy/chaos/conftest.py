"""One deployment for each test, and nothing of it left afterwards."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deploy.chaos.deployment import START_S, Deployment


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[Deployment]:
    made = Deployment(tmp_path)
    try:
        made.wait_for(made.ready, "the service", START_S)
        yield made
    finally:
        made.destroy()


@pytest.fixture
def seed() -> int:
    """Of the plan; another one by SPOTWEAVE_CHAOS_SEED."""
    number = int(os.environ.get("SPOTWEAVE_CHAOS_SEED", "7"))
    print(f"seed {number}")
    return number


@pytest.fixture
def times() -> int:
    """This many times the faults of a plan, by SPOTWEAVE_CHAOS_TIMES: 4 makes 120 of the 30."""
    return int(os.environ.get("SPOTWEAVE_CHAOS_TIMES", "1"))
