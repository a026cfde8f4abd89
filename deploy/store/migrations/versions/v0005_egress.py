"""Data that are moved between regions cost."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """From version 0004."""
    op.create_table(
        "egress",
        sa.Column("job_id", sa.Text(), primary_key=True),
        sa.Column("task", sa.Text(), primary_key=True),
        sa.Column("attempt", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("instance_id", sa.Text(), sa.ForeignKey("instances.instance_id"), nullable=False),
        sa.Column("day", sa.Text(), nullable=False),
        sa.Column("zone", sa.Text(), nullable=False),
        sa.Column("market", sa.Text(), nullable=False),
        sa.Column("cost", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["job_id", "task"], ["tasks.job_id", "tasks.task"]),
    )
