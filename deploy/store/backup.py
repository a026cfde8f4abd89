"""A copy of a database that is in use."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from deploy.store.database import Database
from deploy.store.errors import StoreError
from spotweave.files import replacing

_PAGES = 1_000


def backup(database: Database, destination: Path) -> None:
    """Copy a SQLite database as it is at one moment; writers go on meanwhile.

    The copy is one file with permissions 0600, whole or not there at all. The key file is not in it: without
    it, node tokens and access tokens of the copy are worth nothing, so keep both, apart from each other.

    Args:
        database: the one to copy.
        destination: file to write; it must not exist.

    Raises:
        StoreError: if it exists or cannot be written, or the database is on PostgreSQL.
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
