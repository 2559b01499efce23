"""Measured speeds of trainings; virtual clusters that are parts of others."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """From 0001 to 0002."""
    op.create_table(
        "speeds",
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("batch_size", NUMBER, autoincrement=False, nullable=False),
        sa.Column("gpu_type", sa.Text(), nullable=False),
        sa.Column("gpus", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("partner", sa.Text(), nullable=False),
        sa.Column("partner_batch_size", NUMBER, autoincrement=False, nullable=False),
        sa.Column("steps_per_s", sa.Double(), nullable=False),
        sa.Column("measurements", NUMBER, nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("changed_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint(
            "model", "batch_size", "gpu_type", "gpus", "partner", "partner_batch_size",
            name="speeds_pk",
        ),
    )  # fmt: skip
    op.add_column("vcs", sa.Column("parent", sa.Text(), nullable=False, server_default=""))
