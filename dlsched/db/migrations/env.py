"""What Alembic runs: each migration in a transaction of its own on the store's engine."""

from __future__ import annotations

from alembic import context

from dlsched.db import schema

engine = context.config.attributes["engine"]
with engine.connect() as connection:
    context.configure(
        connection=connection.execution_options(dlsched_write=True),
        target_metadata=schema.METADATA,
        transaction_per_migration=True,
        transactional_ddl=True,
        render_as_batch=connection.dialect.name == "sqlite",
    )
    with context.begin_transaction():
        context.run_migrations()
