"""Decayed usage of owners; it begins with the runs that end from now on."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    """From 0014 to 0015."""
    op.create_table(
        "usage",
        sa.Column("user_name", sa.Text(), nullable=False),
        sa.Column("account", sa.Text(), nullable=False),
        sa.Column("vc", sa.Text(), nullable=False),
        sa.Column("gpu_s", sa.Double(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("user_name", "account", "vc", name="usage_pk"),
    )
