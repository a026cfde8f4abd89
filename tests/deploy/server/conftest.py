"""A service over a real store, and callers of every role."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from spotweave.deploy.server.deciding import Deciders
from spotweave.deploy.store.store import Store
from tests.deploy.server.service import NOW, Make, Service, make_service


@pytest.fixture
def make(tmp_path: Path, store: Store, deciders: Deciders) -> Make:
    """Makes the service of a test, with settings of its own."""
    return partial(make_service, tmp_path, store, deciders)


@pytest.fixture
def service(make: Make) -> Service:
    return make()


@pytest.fixture(scope="module")
def unchanged(tmp_path_factory: pytest.TempPathFactory, deciders: Deciders) -> Iterator[Service]:
    """One service for all requests that change nothing: to make it takes most of such a test's time."""
    folder = tmp_path_factory.mktemp("unchanged")
    with Store.open(f"sqlite:///{folder}/store.db", NOW, durable=False) as store:
        yield make_service(folder, store, deciders, dashboard=True)
