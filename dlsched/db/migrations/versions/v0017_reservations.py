"""Reservations of nodes."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"


def upgrade() -> None:
    """From 0016 to 0017."""
    op.create_table(
        "reservations",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("nodes", sa.Text(), nullable=False),
        sa.Column("start_at", sa.Double(), nullable=False),
        sa.Column("end_at", sa.Double(), nullable=False),
        sa.Column("users", sa.Text(), nullable=False),
        sa.Column("accounts", sa.Text(), nullable=False),
        sa.Column("maintenance", sa.Boolean(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("set_by", sa.Text(), nullable=False),
        sa.Column("set_at", sa.Double()),
        sa.PrimaryKeyConstraint("name", name="reservations_pk"),
    )
