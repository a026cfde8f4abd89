"""What runners say of streams and of saved state, and interruptions, which losses in a row forgot."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """From version 0002."""
    op.add_column("tasks", sa.Column("next_due_s", sa.Double()))
    # The defaults are for the rows that are there; new ones are written in full.
    op.add_column(
        "tasks", sa.Column("execution_saved", sa.Double(), nullable=False, server_default=sa.text("0"))
    )
    op.add_column("tasks", sa.Column("saved_region", sa.Text(), nullable=False, server_default=sa.text("''")))
    op.add_column(
        "tasks", sa.Column("interruptions", sa.Integer(), nullable=False, server_default=sa.text("0"))
    )
