"""Alembic's entry: runs the migrations on the connection that `migrate.py` holds the lock with."""

from alembic import context

from gpubloom.server.db.base import Table

connection = context.config.attributes["connection"]
context.configure(
    connection=connection,
    target_metadata=Table.metadata,
    render_as_batch=connection.dialect.name == "sqlite",
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
