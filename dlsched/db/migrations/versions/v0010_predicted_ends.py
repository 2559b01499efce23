"""Predictions with their interval, their end, their policy, and what they rest on for the job."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    """From 0009 to 0010."""
    for name in ("policy", "source"):
        op.add_column("predictions", sa.Column(name, sa.Text(), nullable=False, server_default=""))
    op.add_column("predictions", sa.Column("gpus", sa.Integer()))
    for name in ("start_p10", "start_p90", "end_at", "end_p10", "end_p90"):
        op.add_column("predictions", sa.Column(name, sa.Double()))
