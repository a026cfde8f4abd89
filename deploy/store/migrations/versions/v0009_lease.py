"""Who leads the database stands in it."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """From version 0008."""
    op.create_table(
        "lease",
        sa.Column("row", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("holder", sa.Text(), nullable=False),
        sa.Column("taken_s", sa.Double(), nullable=False),
        sa.Column("renewed_s", sa.Double(), nullable=False),
    )
