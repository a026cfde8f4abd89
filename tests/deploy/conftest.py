"""What no test may overlook."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog

from spotweave.deploy.scheduler import actions, chooser, loop, observer, retries
from spotweave.deploy.server.deciding import Deciders
from spotweave.deploy.store.store import Store


@pytest.fixture(autouse=True)
def _no_error_goes_by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The scheduler survives its own mistakes; in tests they come to light, unless a test is about them."""
    if request.node.get_closest_marker("mistakes") is not None:
        # Pictures of tracebacks would take longer than the passes that they are about.
        structlog.configure(processors=[_drop])
        yield
        structlog.reset_defaults()
        return
    for part in (actions, chooser, loop, observer, retries):
        monkeypatch.setattr(part.log, "exception", _raise, raising=False)
    monkeypatch.setattr(retries.log, "error", _raise, raising=False)
    yield


def _drop(*_: Any) -> Any:
    raise structlog.DropEvent


def _raise(event: str, **_: Any) -> None:
    raise AssertionError(event)


@pytest.fixture(scope="session")
def deciders() -> Deciders:
    """The released policy, and the rule for rounds."""
    return Deciders.load("multicloud", "round_cost")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(f"sqlite:///{tmp_path}/store.db", 1_772_323_200.0, durable=False) as opened:
        yield opened
