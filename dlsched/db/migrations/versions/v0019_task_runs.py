"""Short tasks that runs were given, and how they have ended."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"

NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """From 0018 to 0019."""
    op.create_table(
        "task_runs",
        sa.Column("job", NUMBER, autoincrement=False, nullable=False),
        sa.Column("task", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("given_at", sa.Double(), nullable=False),
        sa.Column("code", sa.Integer()),
        sa.Column("signal", sa.Integer()),
        sa.Column("ran_s", sa.Double()),
        sa.Column("ended_at", sa.Double()),
        sa.PrimaryKeyConstraint("job", "task", name="task_runs_pk"),
    )
