"""What no test may overlook."""

from __future__ import annotations

from typing import Any

import pytest

from deploy.scheduler import actions


@pytest.fixture(autouse=True)
def _no_error_goes_by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The scheduler survives its own mistakes; in tests they come to light, unless a test is about them."""
    if request.node.get_closest_marker("mistakes") is None:
        monkeypatch.setattr(actions.log, "exception", _raise, raising=False)


def _raise(event: str, **_: Any) -> None:
    raise AssertionError(event)
