"""Opening a database, whatever it is; transactions that are whole or nothing, also when they are killed."""

from __future__ import annotations

import shutil
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
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
from tests.deploy.store.cases import BATCH, a_job, add_job, at_once, execute
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


# Transactions: whole or not at all, one writer at a time, also when it is killed.


def written_and_failed(store: Store, kind: str) -> None:
    with store.transaction():
        store.events.add(kind, NOW)
        raise ZeroDivisionError


def test_writing_needs_a_transaction(store: Store) -> None:
    with pytest.raises(RuntimeError, match=r"outside of `with store.transaction\(\)`"):
        store.events.add("a.b", NOW)
    with pytest.raises(RuntimeError, match="inside a snapshot"), store.snapshot(), store.transaction():
        pass


def test_an_inner_transaction_is_a_part_of_the_outer_one(store: Store) -> None:
    def inner_done_outer_failed() -> None:
        with store.transaction():
            with store.transaction():
                store.events.add("inner.done", NOW)
            raise ZeroDivisionError

    with store.transaction():
        store.events.add("outer.begun", NOW)
        with pytest.raises(ZeroDivisionError):
            written_and_failed(store, "inner.undone")
        with store.transaction():
            store.events.add("inner.kept", NOW)
    assert [event.kind for event in store.events.after(0, 9)] == ["outer.begun", "inner.kept"]
    with pytest.raises(ZeroDivisionError):
        inner_done_outer_failed()
    assert len(store.events.after(0, 9)) == 2


def test_a_writer_sees_its_own_writing_and_nobody_else_does_before_the_commit(place: Place) -> None:
    with place.open() as writer, place.open() as reader:
        with writer.transaction():
            writer.jobs.add(a_job())
            assert writer.jobs.get("j1").job_id == "j1"
            assert reader.jobs.live() == [], "and is not held up"
        assert [job.job_id for job in reader.jobs.live()] == ["j1"]


def test_a_snapshot_is_of_one_moment(place: Place) -> None:
    with place.open() as writer, place.open() as reader:
        add_job(writer, "j1")
        with reader.snapshot():
            assert len(reader.jobs.live()) == 1
            add_job(writer, "j2")
            assert len(reader.jobs.live()) == 1
            assert len(reader.tasks.waiting()) == 1
            with reader.snapshot():
                assert len(reader.jobs.live()) == 1
        assert len(reader.jobs.live()) == 2


@pytest.mark.parametrize("processes", [1, 2])
def test_who_reads_and_then_writes_waits_for_its_turn_and_loses_no_count(
    place: Place, processes: int
) -> None:
    """One that took the lock of SQLite only when it writes would fail: what it has read is old by then."""
    with place.open() as first, place.open() as second:
        add_job(first)

        def count(store: Store) -> None:
            for _ in range(10):
                with store.transaction():
                    assert store.jobs.get("j1").state.live
                    store.jobs.count_user_failure("j1")

        at_once(*(partial(count, store) for store in (first, second)[:processes] * (4 // processes)))
        assert first.jobs.get("j1").user_failures == 40


ROOT = Path(__file__).resolve().parents[3]


def start(place: Place, when: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.deploy.store.writer", place.url, str(place.key_file), str(when)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def whole(store: Store) -> int:
    """How many of the writer's transactions are there; each must be there whole."""
    with store.snapshot():
        jobs = [job.job_id[1:] for job in store.jobs.live()]
        assert [task.key.job_id[1:] for task in store.tasks.waiting()] == jobs
        assert [one.instance_id[1:] for one in store.instances.live()] == jobs
        assert sorted(intent.target[1:] for intent in store.intents.pending()) == sorted(jobs)
        events = [event.instance_id or "" for event in store.events.after(0, 100_000)]
        assert sorted(name[1:] for name in events) == sorted(jobs)
    return len(jobs)


def killed(writer: subprocess.Popen[str]) -> int:
    """Wait for its end. Returns how many transactions it was told are committed."""
    assert writer.stdout is not None
    with writer:
        try:
            told = writer.stdout.read().split()
        finally:
            writer.kill()
    assert writer.returncode == -9
    return len(told)


@pytest.mark.real
def test_kills_between_statements_leave_whole_transactions_and_what_was_told(place: Place) -> None:
    """The 30th statement or so is in the third transaction; offsets go from its begin to its commit."""
    there = 0
    for offset in (2, 5, 8, 11, 14):
        committed = killed(start(place, 30 + offset))
        assert committed > 0
        with place.open() as store:
            told, there = there + committed, whole(store)
            assert there in (told, told + 1), "a commit may have ended before it could be told"
            store.lead().release()
