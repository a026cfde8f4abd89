"""Bring a database to the tables of this version, from whichever it has."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import Connection, inspect

from spotweave.deploy.store.errors import StoreDamagedError
from spotweave.deploy.store.schema import VERSION_TABLE, metadata

_SCRIPTS = Path(__file__).with_name("migrations")


def _configuration(connection: Connection | None = None) -> Config:
    """Alembic's, for commands on this connection."""
    config = Config()
    config.set_main_option("script_location", str(_SCRIPTS).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config


def current_version(connection: Connection) -> str | None:
    """The version of the database; None for an empty one."""
    context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})
    return context.get_current_revision()


@cache
def newest_version() -> str:
    """The version of this program."""
    head = ScriptDirectory.from_config(_configuration()).get_current_head()
    assert head is not None, "the package has its migrations"
    return head


def require_known(version: str | None, where: str) -> None:
    """Refuse a database of a version that this program does not know. Raises StoreDamagedError."""
    if version is None:
        return
    try:
        ScriptDirectory.from_config(_configuration()).get_revision(version)
    except CommandError as error:
        raise StoreDamagedError(
            f"the database {where} has version {version}, newer than this program's {newest_version()}: "
            "install the newer Spotweave, or restore a backup from before its upgrade"
        ) from error


def upgrade(connection: Connection, where: str) -> None:
    """Make the tables of an empty database, or upgrade an older one; whole or not at all.

    The connection is in a write transaction, so that no other process upgrades at the same time. Raises
    StoreDamagedError if the database is of another program or of a newer version, or lacks tables.
    """
    version = current_version(connection)
    tables = set(inspect(connection).get_table_names())
    if version is None and tables:
        raise StoreDamagedError(
            f"the database {where} holds tables of something else ({', '.join(sorted(tables)[:3])}): "
            "give an empty database"
        )
    require_known(version, where)
    if version is None:
        metadata.create_all(connection)
        command.stamp(_configuration(connection), "head")
    elif version != newest_version():
        command.upgrade(_configuration(connection), "head")
    missing = sorted(set(metadata.tables) - set(inspect(connection).get_table_names()))
    if missing:
        raise StoreDamagedError(f"the database {where} lacks the table {missing[0]}: restore a backup")
