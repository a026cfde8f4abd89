"""A service over a real store with hand-made content, and the dashboard that shows it."""

from __future__ import annotations

from pathlib import Path

import pytest

from spotweave.deploy.server.deciding import Deciders
from spotweave.deploy.store.store import Store
from tests.deploy.server.service import Service, make_service


@pytest.fixture
def service(tmp_path: Path, store: Store, deciders: Deciders) -> Service:
    return make_service(tmp_path, store, deciders, dashboard=True)
