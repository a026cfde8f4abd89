"""Opening a database: empty, of an earlier version, damaged, of another program, of a newer version."""

from __future__ import annotations

import shutil
import sqlite3
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import inspect, text

from deploy.store import migrate
from deploy.store.database import Database
from deploy.store.errors import StoreDamagedError, StoreError, StoreUnavailableError
from deploy.store.schema import VERSION_TABLE, metadata
from deploy.store.store import Store
from tests.deploy.store.cases import BATCH, add_job
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
    with sqlite.open():
        pass
    connection = sqlite3.connect(sqlite_path(sqlite.url))
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
    found: list[object] = []

    def open_it() -> None:
        try:
            with place.open() as store:
                found.append(store.deployment_id)
        except BaseException as error:
            found.append(error)

    threads = [threading.Thread(target=open_it) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert len(set(found)) == 1
    assert isinstance(found[0], str)


def alter(place: Place, statement: str) -> None:
    database = Database(place.url)
    with database.transaction() as connection:
        connection.execute(text(statement))
    database.close()


def one_line(place: Place) -> str:
    with pytest.raises(StoreDamagedError) as caught:
        place.open()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_newer_database_is_refused_and_left_alone(place: Place) -> None:
    place.open().close()
    alter(place, f"UPDATE {VERSION_TABLE} SET version_num = '9999'")
    assert "has version 9999, newer than this program's" in one_line(place)
    assert "has version 9999" in one_line(place)


def test_another_programs_database_is_refused(place: Place) -> None:
    if not place.postgresql:
        Database(place.url).prepare_file()
    alter(place, "CREATE TABLE recipes (name text)")
    assert "holds tables of something else (recipes): give an empty database" in one_line(place)


def test_a_lost_table_is_noticed(place: Place) -> None:
    place.open().close()
    alter(place, "DROP TABLE intents")
    assert "lacks the table intents: restore a backup" in one_line(place)


def sqlite_path(store_url: str) -> Path:
    return Path(store_url.removeprefix("sqlite:///"))


@pytest.fixture
def sqlite(tmp_path: Path) -> Place:
    return Place(f"sqlite:///{tmp_path}/store.db", tmp_path / "deployment.key", False)


def test_a_file_that_is_no_database_is_refused(sqlite: Place) -> None:
    sqlite_path(sqlite.url).write_text("dear diary, " * 100)
    assert "store.db is not a SQLite database: restore a backup" in one_line(sqlite)


@pytest.mark.parametrize("page", [1, 2, 5, 20])
def test_a_damaged_page_is_noticed(sqlite: Place, page: int) -> None:
    with sqlite.open() as store:
        for number in range(30):
            add_job(store, f"j{number}")
    path = sqlite_path(sqlite.url)
    content = bytearray(path.read_bytes())
    assert len(content) > 22 * 4096
    content[page * 4096 : (page + 1) * 4096] = b"\xa5" * 4096
    path.write_bytes(content)
    assert "store.db is damaged (" in one_line(sqlite)


def test_a_cut_file_is_noticed(sqlite: Place) -> None:
    with sqlite.open() as store:
        add_job(store)
    path = sqlite_path(sqlite.url)
    path.write_bytes(path.read_bytes()[: 10 * 4096])
    assert "store.db is damaged (" in one_line(sqlite)


def test_sqlite_syncs_each_commit_and_checks_references(sqlite: Place) -> None:
    with sqlite.open():
        database = Database(sqlite.url)
        with database.read() as connection:
            pragmas = {
                name: connection.exec_driver_sql(f"PRAGMA {name}").scalar()
                for name in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
            }
        database.close()
    assert pragmas == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1, "busy_timeout": 30_000}


def test_nobody_else_can_read_the_files(sqlite: Place) -> None:
    with sqlite.open() as store:
        add_job(store)
        files = list(sqlite_path(sqlite.url).parent.iterdir())
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
    with pytest.raises(StoreError, match=said) as caught:
        Store.open(url, NOW)
    assert "\n" not in str(caught.value)
    assert "geheim" not in str(caught.value)


def test_a_server_that_does_not_answer_is_said_in_one_line_without_the_password(tmp_path: Path) -> None:
    url = f"postgresql://root:geheim@/x?host={tmp_path}"
    with pytest.raises(StoreUnavailableError, match="cannot be used now") as caught:
        Store.open(url, NOW, key_file=tmp_path / "key")
    assert "\n" not in str(caught.value)
    assert "geheim" not in str(caught.value)
    assert not (tmp_path / "key").exists()
