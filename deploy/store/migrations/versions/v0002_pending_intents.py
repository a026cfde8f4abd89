"""Pending intents are read in each pass of the loop, and most intents are done: an index finds them."""

from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """From version 0001."""
    op.create_index("ix_intents_state", "intents", ["state", "intent_id"])
