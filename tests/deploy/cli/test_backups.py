"""`spotweave backup` and `spotweave restore`."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import pytest

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
    result = spotweave("restore", "--config", config, "--from", saved)
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
        line = refusal(spotweave("restore", "--config", config, "--from", saved))
        assert "a scheduler works with the database" in line
        lead.release()
    assert names(config) == ["first"]


def test_stale_files_beside_a_lost_database_are_not_taken_for_the_backups(
    config: Path, saved: Path, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    add(config, "second")
    # Killed between the two renames of a restore, say.
    (state / "store.db").rename(state / "elsewhere")
    (state / "store.db-wal").write_bytes(b"of another database" * 100)
    assert spotweave("restore", "--config", config, "--from", saved).exit_code == 0
    assert names(config) == ["first"]


def test_a_damaged_database_can_be_replaced(config: Path, saved: Path, tmp_path: Path) -> None:
    (tmp_path / "state" / "store.db").write_bytes(b"nothing of value" * 512)
    assert spotweave("restore", "--config", config, "--from", saved).exit_code == 0
    assert names(config) == ["first"]


def test_a_restore_on_another_machine_needs_the_key(config: Path, saved: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    moved = deployment(other)
    assert "there is no key file" in refusal(spotweave("restore", "--config", moved, "--from", saved))
    # A deployment of its own has another key.
    add(moved, "stranger")
    line = refusal(spotweave("restore", "--config", moved, "--from", saved))
    assert "does not belong to the database" in line
    assert names(moved) == ["stranger"]
    shutil.copy(tmp_path / "state" / "store.db.key", other / "state" / "store.db.key")
    assert spotweave("restore", "--config", moved, "--from", saved).exit_code == 0
    assert names(moved) == ["first"]


def test_what_is_no_backup_changes_nothing(config: Path, saved: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    before = sorted(path.name for path in state.iterdir())
    empty, text, other = tmp_path / "empty", tmp_path / "text", tmp_path / "other.db"
    empty.touch()
    text.write_text("hello " * 1000)
    sqlite3.connect(other).execute("CREATE TABLE t (x)").connection.close()
    for file in (empty, text, other):
        assert "is no backup" in refusal(spotweave("restore", "--config", config, "--from", file))
    assert "there is no backup" in refusal(
        spotweave("restore", "--config", config, "--from", tmp_path / "no")
    )
    assert names(config) == ["first"]
    assert sorted(path.name for path in state.iterdir()) == before
    assert "exists already" in refusal(spotweave("backup", "--config", config, "--to", saved))
    unserved = deployment(tmp_path, state=str(tmp_path / "unserved"))
    assert "nothing was served" in refusal(spotweave("backup", "--config", unserved, "--to", tmp_path / "x"))
    assert not (tmp_path / "unserved").exists()


@pytest.mark.parametrize("command", [("backup", "--to"), ("restore", "--from")])
def test_postgresql_is_left_to_its_own_tools(tmp_path: Path, command: tuple[str, str]) -> None:
    config = deployment(tmp_path, store="postgresql://nobody@127.0.0.1:1/none")
    line = refusal(spotweave(command[0], "--config", config, command[1], tmp_path / "file"))
    assert "pg_dump" in line
