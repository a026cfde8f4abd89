"""Backups of SQLite databases: copied while they are used, and put back."""

from __future__ import annotations

import shutil
import sqlite3
import time
from contextlib import closing, suppress
from pathlib import Path

from spotweave.deploy.security.keys import SecurityError
from spotweave.deploy.store.database import Database
from spotweave.deploy.store.errors import StoreError
from spotweave.deploy.store.store import Store
from spotweave.files import replacing, sync

_PAGES = 1_000


def backup(database: Database, destination: Path) -> None:
    """Copy a SQLite database as it is at one moment; writers go on meanwhile.

    The copy is one file with permissions 0600, whole or not there at all. The key file is not in it: without
    it, node tokens and access tokens of the copy are worth nothing, so keep both, apart from each other.
    Raises StoreError if it exists or cannot be written, or the database is on PostgreSQL.
    """
    if database.path is None:
        raise StoreError(
            "a PostgreSQL database is not copied by Spotweave: run pg_dump --format=custom --file=FILE NAME, "
            "and pg_restore to bring it back"
        )
    if destination.exists():
        raise StoreError(f"{destination} exists already: give a new file for the backup")
    try:
        with replacing(destination, mode=0o600, overwrite=False) as temporary:
            with (
                closing(sqlite3.connect(database.path)) as source,
                closing(sqlite3.connect(temporary)) as target,
            ):
                source.backup(target, pages=_PAGES)
                # One file that can be moved about, without a -wal.
                target.execute("PRAGMA journal_mode=DELETE")
                found = target.execute("PRAGMA quick_check(1)").fetchone()[0]
            if found != "ok":
                raise StoreError(f"the copy of {database.path} is damaged ({found}): look for disk errors")
    except (OSError, sqlite3.Error) as error:
        raise StoreError(f"cannot write the backup {destination}: {error}") from error


_BESIDE = ("-wal", "-shm")


def restore(url: str, source: Path, now_s: float, key_file: Path | None = None) -> Path | None:
    """Check a backup and put it where the database was, which is kept next to it under another name.

    Killed at any moment it leaves the old database, the new one, or none; then it can be repeated.

    Args:
        url: of the database. No scheduler may lead it.
        source: a file of `backup`; of an earlier version it is upgraded.
        now_s: epoch seconds.
        key_file: of the deployment. Default: PATH.key.

    Returns:
        Where the old database is now; None if there was none.

    Raises:
        StoreError: if the backup cannot be used, a scheduler leads the database, or it is on PostgreSQL.
        SecurityError: if the key file is missing or others may read it.
    """
    database = Database(url)
    path = database.path
    try:
        if path is None:
            raise StoreError(
                "a PostgreSQL database is not restored by Spotweave: use pg_restore on a file of pg_dump"
            )
        key = key_file or path.with_name(f"{path.name}.key")
        _require_backup(source)
        if not key.exists():
            raise SecurityError(f"there is no key file {key}: put the one there that belongs to the backup")
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        lead = database.lead()
        if lead is None:
            raise StoreError(f"a scheduler works with the database {path}: stop it first")
        try:
            return _replace(path, _checked_copy(source, path, key, now_s))
        finally:
            lead.release()
    except OSError as error:
        raise StoreError(f"cannot restore {source}: {error.strerror or error}") from error
    finally:
        database.close()


def _require_backup(source: Path) -> None:
    if not source.is_file():
        raise StoreError(f"there is no backup {source}: give a file of spotweave backup")
    try:
        with closing(sqlite3.connect(f"{source.resolve().as_uri()}?mode=ro", uri=True)) as opened:
            opened.execute("SELECT deployment_id FROM deployment").fetchone()
    except sqlite3.Error as error:
        raise StoreError(f"{source} is no backup of a deployment ({error}): give another file") from error


def _checked_copy(source: Path, path: Path, key: Path, now_s: float) -> Path:
    """Opened once as a store: whole, of this key, and of this program's version."""
    copy = path.with_name(f".{path.name}.restoring")
    _remove(copy)
    try:
        shutil.copyfile(source, copy)
        copy.chmod(0o600)
        Store.open(f"sqlite:///{copy}", now_s, key_file=key).close()
        _fold(copy)
        sync(copy)
    except BaseException:
        _remove(copy)
        raise
    copy.with_name(copy.name + ".lock").unlink(missing_ok=True)
    return copy


def _replace(path: Path, copy: Path) -> Path | None:
    aside = None
    if path.exists():
        # A database that cannot be folded is damaged: it is moved with what it has next to it.
        with suppress(sqlite3.Error):
            _fold(path)
        aside = path.with_name(f"{path.name}.replaced-{time.strftime('%Y%m%d-%H%M%S')}")
        for ending in ("", *_BESIDE):
            part = path.with_name(path.name + ending)
            if part.exists():
                part.rename(aside.with_name(aside.name + ending))
    # What a crash of this function left without its database would be taken for the new one's.
    for ending in _BESIDE:
        path.with_name(path.name + ending).unlink(missing_ok=True)
    copy.rename(path)
    sync(path.parent)
    return aside


def _fold(path: Path) -> None:
    with closing(sqlite3.connect(path)) as opened:
        opened.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    for ending in _BESIDE:
        part = path.with_name(path.name + ending)
        if part.exists() and not part.stat().st_size:
            part.unlink()


def _remove(path: Path) -> None:
    for ending in ("", *_BESIDE, ".lock"):
        path.with_name(path.name + ending).unlink(missing_ok=True)
