"""Which jobs' folders there are, whose, and how large what came with them is."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """From version 0007."""
    op.create_table(
        "folders",
        sa.Column("job_id", sa.Text(), sa.ForeignKey("jobs.job_id"), primary_key=True),
        sa.Column("submitter", sa.Text(), nullable=False),
        sa.Column("uploaded_bytes", sa.BigInteger(), nullable=False),
    )
    op.create_index("ix_folders_submitter", "folders", ["submitter"])
    op.create_index("ix_jobs_submitter_submitted_s", "jobs", ["submitter", "submitted_s"])
    # How large earlier ones are is not known; they are removed in their time like the others.
    op.execute("INSERT INTO folders SELECT job_id, submitter, 0 FROM jobs")
