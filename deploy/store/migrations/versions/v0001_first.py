"""The first version: `deploy.store.migrate` makes the tables of an empty database from the schema itself."""

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Do nothing: this is the first version."""
