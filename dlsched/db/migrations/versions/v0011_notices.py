"""Notices that wait for their delivery, and which events a job's user wants to be told of."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    """From 0010 to 0011."""
    op.add_column("jobs", sa.Column("notify", sa.Text(), nullable=False, server_default=""))
    number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    op.create_table(
        "notices",
        sa.Column("number", number, primary_key=True, autoincrement=True),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("job", number, nullable=False),
        sa.Column("run", number, nullable=False),
        sa.Column("event", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("whole_array", sa.Boolean(), nullable=False),
        sa.Column("tries", sa.Integer(), nullable=False),
        sa.Column("due_at", sa.Double(), nullable=False),
        sa.Column("told", sa.Text(), nullable=False),
        sa.UniqueConstraint("key", name="notices_one_key"),
        sa.PrimaryKeyConstraint("number", name="notices_pk"),
    )
    op.create_index("notices_by_due_at", "notices", ["due_at"])
