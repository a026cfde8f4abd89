"""`spotweave backup` and `spotweave restore`."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from click.testing import Result

from deploy.config import DeploymentConfig
from deploy.service import open_store
from tests.deploy.cli.commands import deployment, refusal, spotweave


def names(config: Path) -> Sequence[str]:
    """Of the tokens, as something that is easily written and seen."""
    with open_store(DeploymentConfig.load(config), 0.0) as store:
        return [record.name for record in store.tokens.all()]


def add(config: Path, name: str) -> None:
    made = spotweave("token", "create", "--config", config, "--role", "viewer", "--name", name)
    assert made.exit_code == 0, made.output


def restore(config: Path, saved: Path) -> Result:
    return spotweave("restore", "--config", config, "--from", saved)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    made = deployment(tmp_path)
    add(made, "first")
    return made


@pytest.fixture
def saved(config: Path, tmp_path: Path) -> Path:
    file = tmp_path / "backup.db"
    result = spotweave("backup", "--config", config, "--to", file)
    assert result.exit_code == 0, result.output
    assert "store.db.key" in result.stderr
    return file


def test_what_was_saved_comes_back_and_what_was_there_is_kept(
    config: Path, saved: Path, tmp_path: Path
) -> None:
    add(config, "second")
    result = restore(config, saved)
    assert result.exit_code == 0, result.output
    assert names(config) == ["first"]
    (kept,) = (tmp_path / "state").glob("store.db.replaced-*")
    assert str(kept) in result.stderr
    with sqlite3.connect(kept) as opened:
        assert opened.execute("SELECT count(*) FROM tokens").fetchone() == (2,)
    opened.close()
    assert os.stat(tmp_path / "state" / "store.db").st_mode & 0o777 == 0o600
    assert not list((tmp_path / "state").glob(".*restoring*"))


def test_a_backup_is_taken_beside_a_service_and_a_restore_is_not(
    config: Path, saved: Path, tmp_path: Path
) -> None:
    with open_store(DeploymentConfig.load(config), 0.0) as store:
        lead = store.lead()
        second = tmp_path / "second.db"
        assert spotweave("backup", "--config", config, "--to", second).exit_code == 0
        line = refusal(restore(config, saved))
        assert "a scheduler works with the database" in line
        lead.release()
    assert names(config) == ["first"]


def lose(state: Path) -> None:
    """Killed between the two renames of a restore, say."""
    (state / "store.db").rename(state / "elsewhere")
    (state / "store.db-wal").write_bytes(b"of another database" * 100)


def damage(state: Path) -> None:
    (state / "store.db").write_bytes(b"nothing of value" * 512)


@pytest.mark.parametrize("harm", [lose, damage])
def test_a_database_that_is_damaged_or_lost_beside_stale_files_can_be_replaced(
    config: Path, saved: Path, tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    add(config, "second")
    harm(tmp_path / "state")
    assert restore(config, saved).exit_code == 0
    assert names(config) == ["first"]


def test_a_restore_on_another_machine_needs_the_key(config: Path, saved: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    moved = deployment(other)
    assert "there is no key file" in refusal(restore(moved, saved))
    # A deployment of its own has another key.
    add(moved, "stranger")
    line = refusal(restore(moved, saved))
    assert "does not belong to the database" in line
    assert names(moved) == ["stranger"]
    shutil.copy(tmp_path / "state" / "store.db.key", other / "state" / "store.db.key")
    assert restore(moved, saved).exit_code == 0
    assert names(moved) == ["first"]


def test_what_is_no_backup_changes_nothing(config: Path, saved: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    before = sorted(path.name for path in state.iterdir())
    empty, text, other = tmp_path / "empty", tmp_path / "text", tmp_path / "other.db"
    empty.touch()
    text.write_text("hello " * 1000)
    sqlite3.connect(other).execute("CREATE TABLE t (x)").connection.close()
    for file in (empty, text, other):
        assert "is no backup" in refusal(restore(config, file))
    assert names(config) == ["first"]
    assert sorted(path.name for path in state.iterdir()) == before
    assert "exists already" in refusal(spotweave("backup", "--config", config, "--to", saved))
