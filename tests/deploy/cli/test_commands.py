"""The live commands cost nothing until they run, refuse mistakes in one line, make tokens and backups."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from click.testing import Result

from deploy.config import DeploymentConfig
from deploy.service import open_store
from tests.deploy.cli.commands import NO_JAVA, ROOT, deployment, refusal, spotweave


def test_listing_them_loads_nothing_of_the_live_side() -> None:
    heavy = ("httpx", "fastapi", "sqlalchemy", "structlog", "torch", "pydantic")
    script = f"import sys, spotweave.cli; print([name for name in {heavy} if name in sys.modules])"
    command = [sys.executable, "-c", script]
    assert subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout == "[]\n"


@pytest.mark.parametrize(("words", "missing"), [("jobs", "httpx"), ("token list --config x", "sqlalchemy")])
def test_without_the_extra_it_says_how_to_install_it(words: str, missing: str) -> None:
    script = (
        f"import sys; sys.modules[{missing!r}] = None; from spotweave.cli import app; app({words.split()})"
    )
    told = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert told.returncode == 2
    line = f"error: this command needs {missing} and more: pip install 'spotweave[deploy]'\n"
    assert told.stderr == line


HTTP = "expected http(s)://HOST:PORT"
CREATE = "token create --config CONFIG --name"
MISTAKES = [
    (f"{CREATE} me --role root", "expected viewer, submitter, admin"),
    (f"{CREATE} NOTHING --role admin", "printable"),
    (f"{CREATE} me --role admin --days -1", "more than 0"),
    ("token create --config NONE --name me --role admin", "cannot read"),
    ("token revoke --config CONFIG none", "no access token 'none'"),
    ("serve --config NONE", "cannot read"),
    ("serve --config CONFIG --log-format xml", "expected json or console"),
    ("serve --config CONFIG --log-level loud", "expected one of debug"),
    ("check --config NONE", "cannot read"),
    ("backup --config NEW --to NONE", "nothing was served"),
    ("backup --config POSTGRESQL --to NONE", "pg_dump"),
    ("restore --config POSTGRESQL --from NONE", "pg_dump"),
    ("restore --config CONFIG --from NONE", "there is no backup"),
    ("record --config CONFIG --out NONE", "rents from no cloud"),
    ("clouds policy --config CONFIG", "rents nothing from AWS"),
    ("offers --config CONFIG --server http://x", "give one of them"),
    ("emulate aws --config NONE", "cannot read"),
    ("backup --to NONE", "there is no spotweave.yaml here: give the deployment's file, --config FILE or"),
    ("token lst", "No such command 'lst'. Did you mean 'list'? (see spotweave token --help)"),
    ("jobs --server http://127.0.0.1:1", "no service answers at http://127.0.0.1:1: start one"),
    ("jobs --server 127.0.0.1:8421", HTTP),
    ("jobs --server ftp://127.0.0.1", HTTP),
    ("jobs --server http://", HTTP),
]


@pytest.mark.parametrize(("command", "message"), MISTAKES)
def test_a_mistake_is_one_line_and_changes_nothing(command: str, message: str, tmp_path: Path) -> None:
    config = deployment(tmp_path)
    assert spotweave("token", "list", "--config", config).exit_code == 0
    unreachable = {"store": "postgresql://user@127.0.0.1:1/db"}
    for name, changes in (("new", {}), ("postgresql", unreachable)):
        (tmp_path / name).mkdir()
        deployment(tmp_path / name, **changes)
    named: dict[str, str | Path] = {
        "CONFIG": config,
        "NEW": tmp_path / "new" / "deployment.yaml",
        "POSTGRESQL": tmp_path / "postgresql" / "deployment.yaml",
        "NONE": tmp_path / "none",
        "NOTHING": "",
    }
    before = sorted(tmp_path.rglob("*"))
    words = [named.get(word, word) for word in command.split()]
    assert message in refusal(spotweave(*words, env=NO_JAVA))
    assert sorted(tmp_path.rglob("*")) == before
    assert json.loads(spotweave("token", "list", "--config", config, "--json").stdout) == []


def test_a_token_is_shown_once_listed_without_its_secret_and_revoked(tmp_path: Path) -> None:
    config = deployment(tmp_path)
    assert spotweave("token", "list", "--config", config).stdout.startswith("no access token yet")
    made = spotweave("token", "create", "--config", config, "--role", "viewer", "--name", "ci", "--days", "2")
    assert made.exit_code == 0, made.output
    prefix, token_id, secret = made.stdout.strip().split("_", 2)
    assert prefix == "spw"
    assert "(ci, viewer) expires" in made.stderr
    listed = spotweave("token", "list", "--config", config).stdout
    assert token_id in listed
    assert secret not in made.stderr + listed
    (record,) = json.loads(spotweave("token", "list", "--config", config, "--json").stdout)
    assert (record["role"], record["name"]) == ("viewer", "ci")
    assert record["expires_s"] - record["created_s"] == 2 * 86_400
    assert "digest" not in record
    assert spotweave("token", "revoke", "--config", config, token_id).exit_code == 0
    assert "revoked" in spotweave("token", "list", "--config", config).stdout
    with open_store(DeploymentConfig.load(config), 0.0) as store:
        assert [event.kind for event in store.events.latest(9)] == ["token.created", "token.revoked"]
    # What holds secrets is only for this user.
    state = tmp_path / "state"
    for path, mode in ((state, 0o700), (state / "store.db", 0o600), (state / "store.db.key", 0o600)):
        assert os.stat(path).st_mode & 0o777 == mode


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


def test_what_was_saved_comes_back_and_what_was_is_kept(config: Path, saved: Path, tmp_path: Path) -> None:
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


def test_a_backup_but_no_restore_works_beside_a_service(config: Path, saved: Path, tmp_path: Path) -> None:
    with open_store(DeploymentConfig.load(config), 0.0) as store:
        lead = store.lead()
        second = tmp_path / "second.db"
        assert spotweave("backup", "--config", config, "--to", second).exit_code == 0
        assert "a scheduler works with the database" in refusal(restore(config, saved))
        lead.release()
    assert names(config) == ["first"]


def lose(state: Path) -> None:
    """Killed between the two renames of a restore, say."""
    (state / "store.db").rename(state / "elsewhere")
    (state / "store.db-wal").write_bytes(b"of another database" * 100)


def damage(state: Path) -> None:
    (state / "store.db").write_bytes(b"nothing of value" * 512)


@pytest.mark.parametrize("harm", [lose, damage])
def test_a_damaged_database_and_one_lost_beside_stale_files_can_be_replaced(
    config: Path, saved: Path, tmp_path: Path, harm: Callable[[Path], None]
) -> None:
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
    assert "does not belong to the database" in refusal(restore(moved, saved))
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
