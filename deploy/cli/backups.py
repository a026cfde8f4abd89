"""Backups of a deployment's database."""

from __future__ import annotations

import time
from pathlib import Path

from deploy.config import DeploymentConfig
from deploy.store import backup as copying
from deploy.store import restore as restoring
from deploy.store.database import Database
from deploy.store.errors import StoreError
from spotweave.mistakes import say


def backup(path: Path, to: Path) -> None:
    """Copy it, as it is now. It is not upgraded, so this is also what goes before an upgrade."""
    config = DeploymentConfig.load(path)
    database = Database(config.store_url)
    try:
        if database.path is not None and not database.path.exists():
            raise StoreError(f"there is no database {database.path}: nothing was served with {path} yet")
        copying.backup(database, to)
    finally:
        database.close()
    print(f"{to} holds the database {database.path}")
    say(
        f"not in it, so keep them too: the jobs' files in {config.state_folder / 'jobs'}, and (apart from "
        f"this) the key {config.key_file or f'{database.path}.key'}"
    )


def restore(path: Path, source: Path) -> None:
    """Put it back."""
    config = DeploymentConfig.load(path)
    replaced = restoring.restore(config.store_url, source, time.time(), config.key_file)
    print(f"the database of {path} is that of {source} now")
    if replaced is not None:
        say(f"the one before it is {replaced}: remove it when nothing is missed")
