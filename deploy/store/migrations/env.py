"""What Alembic runs: the migrations, on the connection and in the transaction it is given."""

from alembic import context

from spotweave.deploy.store.schema import VERSION_TABLE, metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table=VERSION_TABLE,
    # SQLite too can undo DDL, and must: the store's transaction is around all versions.
    transactional_ddl=True,
    render_as_batch=True,
)
context.run_migrations()
