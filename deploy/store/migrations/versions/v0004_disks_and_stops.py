"""Disks are billed, and instances are not while they are stopped."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """From version 0003."""
    # The defaults are for the rows that are there: their instances were billed without disks and stops.
    op.add_column("instances", sa.Column("stops", sa.JSON(), nullable=False, server_default=sa.text("'[]'")))
    op.add_column("charges", sa.Column("disk", sa.BigInteger(), nullable=False, server_default=sa.text("0")))
