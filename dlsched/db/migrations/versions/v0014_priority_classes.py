"""Priority classes of jobs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    """From 0013 to 0014."""
    words = sa.Text()
    op.create_table(
        "priority_classes",
        sa.Column("name", words, nullable=False),
        sa.Column("priority", sa.Double(), nullable=False),
        sa.Column("preempts", words, nullable=False),
        sa.Column("grace_s", sa.Double()),
        sa.Column("max_time_s", sa.Double()),
        sa.Column("gpus", sa.Integer()),
        sa.Column("gpus_per_user", sa.Integer()),
        sa.Column("jobs", sa.Integer()),
        sa.Column("jobs_per_user", sa.Integer()),
        sa.Column("users", words, nullable=False),
        sa.Column("accounts", words, nullable=False),
        sa.Column("is_default", sa.Boolean(), nullable=False),
        sa.Column("source", words, nullable=False),
        sa.Column("set_by", words, nullable=False),
        sa.Column("set_at", sa.Double()),
        sa.PrimaryKeyConstraint("name", name="priority_classes_pk"),
    )
