"""Attempts that failed on healthy instances are counted apart from those that lost theirs."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """From version 0005."""
    with op.batch_alter_table("tasks") as tasks:
        tasks.add_column(sa.Column("failures", sa.Integer(), nullable=False, server_default="0"))
