"""How many runs of a job in a row faults of GPUs have ended."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"


def upgrade() -> None:
    """From 0017 to 0018."""
    op.add_column(
        "jobs", sa.Column("gpu_failures", sa.Integer(), nullable=False, server_default="0")
    )
