"""A node agent is known by its certificate. Those of before have none: they are silent, and replaced."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """From version 0006."""
    op.add_column(
        "instances", sa.Column("certificate", sa.Text(), nullable=False, server_default=sa.text("''"))
    )
