"""How often a job was queued again at its time limit."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """From 0003 to 0004."""
    op.add_column("jobs", sa.Column("timeouts", sa.Integer(), nullable=False, server_default="0"))
