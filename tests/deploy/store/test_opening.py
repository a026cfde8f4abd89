"""Opening a database: empty, of an earlier version, damaged, of another program, of a newer version."""

from __future__ import annotations

import shutil
import sqlite3
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import inspect, text

from spotweave.deploy.store import migrate
from spotweave.deploy.store.database import Database
from spotweave.deploy.store.errors import StoreDamagedError, StoreError, StoreUnavailableError
from spotweave.deploy.store.schema import VERSION_TABLE, metadata
from spotweave.deploy.store.store import Store
from tests.deploy.store.cases import BATCH, add_job, at_once, execute
from tests.deploy.store.conftest import NOW, Place


def tables_differ(database: Database) -> list[object]:
    with database.read() as connection:
        context = MigrationContext.configure(
            connection, opts={"version_table": VERSION_TABLE, "compare_type": True}
        )
        return list(compare_metadata(context, metadata))


LATER = """
import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

def upgrade():
    op.add_column("jobs", sa.Column("note", sa.Text(), nullable=False, server_default="none"))
    op.create_index("ix_jobs_note", "jobs", ["note"])
"""


@pytest.fixture
def later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The migration of a later program, which this one becomes."""
    scripts = tmp_path / "migrations"
    shutil.copytree(migrate._SCRIPTS, scripts)
    file = scripts / "versions" / "v0002_note.py"
    file.write_text(LATER)
    monkeypatch.setattr(migrate, "_SCRIPTS", scripts)
    migrate.newest_version.cache_clear()
    yield file
    monkeypatch.undo()
    migrate.newest_version.cache_clear()


def test_a_new_database_has_the_tables_of_the_schema(place: Place) -> None:
    with place.open() as store:
        add_job(store, "j2")
        deployment_id = store.deployment_id
    database = Database(place.url)
    assert tables_differ(database) == []
    with database.read() as connection:
        assert migrate.current_version(connection) == migrate.newest_version()
        assert connection.scalar(text("SELECT schema_version FROM deployment")) == migrate.newest_version()
    database.close()
    with place.open(NOW + 9) as store:
        assert store.deployment_id == deployment_id
        assert store.jobs.get("j2").spec == BATCH


def earlier(place: Place) -> None:
    """A database as this program makes them, with a job."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(migrate, "_SCRIPTS", Path(migrate.__file__).with_name("migrations"))
        migrate.newest_version.cache_clear()
        with place.open() as store:
            add_job(store, "j1")
    migrate.newest_version.cache_clear()


def notes(place: Place) -> tuple[str | None, list[str]]:
    """The version, and each job's note; there is none in the first version."""
    database = Database(place.url)
    with database.read() as connection:
        version = migrate.current_version(connection)
        columns = {column["name"] for column in inspect(connection).get_columns("jobs")}
        found = list(connection.scalars(text("SELECT note FROM jobs"))) if "note" in columns else []
    database.close()
    return version, found


def test_an_earlier_version_is_upgraded_with_what_is_in_it(place: Place, later: Path) -> None:
    earlier(place)
    assert notes(place) == ("0001", [])
    for _ in range(2):
        with place.open() as store:
            assert store.jobs.get("j1").spec == BATCH
        assert notes(place) == ("0002", ["none"])


def test_a_migration_that_fails_changes_nothing(place: Place, later: Path) -> None:
    earlier(place)
    later.write_text(LATER + "    raise ZeroDivisionError\n")
    with pytest.raises(ZeroDivisionError):
        place.open()
    assert notes(place) == ("0001", [])
    later.write_text(LATER)
    place.open().close()
    assert notes(place) == ("0002", ["none"])


def test_pending_intents_are_found_without_reading_those_that_are_done(sqlite: Place) -> None:
    sqlite.open().close()
    connection = sqlite3.connect(sqlite.file)
    query = "EXPLAIN QUERY PLAN SELECT * FROM intents WHERE state = ? ORDER BY intent_id"
    plan = " ".join(row[3] for row in connection.execute(query, ("pending",)))
    connection.close()
    assert "USING INDEX ix_intents_state" in plan
    assert "TEMP B-TREE" not in plan


def test_a_new_database_is_made_whole_or_not_at_all(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        upgrade(*_)  # type: ignore[arg-type]
        raise ZeroDivisionError

    upgrade = command.stamp
    with monkeypatch.context() as patched:
        patched.setattr(command, "stamp", fail)
        with pytest.raises(ZeroDivisionError):
            place.open()
    database = Database(place.url)
    with database.read() as connection:
        assert migrate.current_version(connection) is None
    database.close()
    with place.open() as store:
        add_job(store)


def test_several_that_open_at_once_make_one_database(place: Place) -> None:
    def open_it() -> str:
        with place.open() as store:
            return store.deployment_id

    assert len(set(at_once(*[open_it] * 4))) == 1


def one_line(place: Place) -> str:
    with pytest.raises(StoreDamagedError) as caught:
        place.open()
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("made", "statement", "message"),
    [
        (
            True,
            f"UPDATE {VERSION_TABLE} SET version_num = '9999'",
            "has version 9999, newer than this program's",
        ),
        (True, "DROP TABLE intents", "lacks the table intents: restore a backup"),
        (False, "CREATE TABLE recipes (name text)", "something else (recipes): give an empty database"),
    ],
    ids=["a newer database", "a lost table", "another program's database"],
)
def test_what_is_no_database_of_this_program_is_refused_and_left_alone(
    place: Place, made: bool, statement: str, message: str
) -> None:
    if made:
        place.open().close()
    elif not place.postgresql:
        Database(place.url).prepare_file()
    execute(place, statement)
    for _ in range(2):
        assert message in one_line(place)


def test_a_file_that_is_no_database_is_refused(sqlite: Place) -> None:
    sqlite.file.write_text("dear diary, " * 100)
    assert "store.db is not a SQLite database: restore a backup" in one_line(sqlite)


@pytest.mark.parametrize("page", [None, 1, 2, 5, 20], ids=lambda page: f"page {page}" if page else "cut")
def test_a_damaged_page_and_a_cut_file_are_noticed(sqlite: Place, page: int | None) -> None:
    with sqlite.open() as store:
        for number in range(30):
            add_job(store, f"j{number}")
    content = sqlite.file.read_bytes()
    assert len(content) > 22 * 4096
    spoilt = (
        content[: page * 4096] + b"\xa5" * 4096 + content[(page + 1) * 4096 :] if page else content[:40_960]
    )
    sqlite.file.write_bytes(spoilt)
    assert "store.db is damaged (" in one_line(sqlite)


def test_sqlite_syncs_each_commit_and_checks_references(sqlite: Place) -> None:
    expected = {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1, "busy_timeout": 30_000}
    with sqlite.open() as store, store._database.read() as connection:
        found = {name: connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in expected}
    assert found == expected


def test_nobody_else_can_read_the_files(sqlite: Place) -> None:
    with sqlite.open() as store:
        add_job(store)
        files = list(sqlite.file.parent.iterdir())
        assert len(files) >= 4
        assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("sqlite://", "would be lost with the process"),
        ("sqlite:///:memory:", "would be lost with the process"),
        ("mysql://root:geheim@db/x", "begins with 'mysql'"),
        ("nonsense:geheim", "cannot be read"),
        ("sqlite:////nowhere/at/all.db", "No such file or directory"),
        ("postgresql://root:geheim@localhost/x", "without a key file"),
    ],
)
def test_a_url_that_cannot_be_used_is_refused_in_one_line(url: str, said: str) -> None:
    with pytest.raises(StoreError, match=rf"\A(?!.*geheim).*{said}.*\Z"):
        Store.open(url, NOW)


def test_a_server_that_does_not_answer_is_said_in_one_line_without_the_password(tmp_path: Path) -> None:
    url = f"postgresql://root:geheim@/x?host={tmp_path}"
    with pytest.raises(StoreUnavailableError, match=r"\A(?!.*geheim).*cannot be used now.*\Z"):
        Store.open(url, NOW, key_file=tmp_path / "key")
    assert not (tmp_path / "key").exists()
