"""Every store test runs on SQLite, and on a real PostgreSQL where that is installed."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from spotweave.deploy.store.store import Store
from tests.deploy.store import postgresql

NOW = 1_772_323_200.0
"""2026-03-01 00:00 UTC."""


@dataclass(frozen=True)
class Place:
    """Where a test's database is."""

    url: str
    key_file: Path
    postgresql: bool

    @property
    def file(self) -> Path:
        """Of SQLite."""
        return Path(self.url.removeprefix("sqlite:///"))

    def open(self, now_s: float = NOW, *, durable: bool = True) -> Store:
        return Store.open(self.url, now_s, key_file=self.key_file, durable=durable)


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[Path]:
    reason = postgresql.missing()
    if reason is not None:
        pytest.skip(reason)
    with postgresql.server() as home:
        yield home


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.real)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    key_file = tmp_path / "deployment.key"
    if request.param == "sqlite":
        yield Place(f"sqlite:///{tmp_path}/store.db", key_file, False)
        return
    home = request.getfixturevalue("postgresql_server")
    name = f"t{secrets.token_hex(6)}"
    yield Place(postgresql.create_database(home, name), key_file, True)
    postgresql.drop_database(home, name)


@pytest.fixture
def store(place: Place) -> Iterator[Store]:
    with place.open(durable=False) as opened:
        yield opened


@pytest.fixture
def sqlite(tmp_path: Path) -> Place:
    return Place(f"sqlite:///{tmp_path}/store.db", tmp_path / "deployment.key", False)
