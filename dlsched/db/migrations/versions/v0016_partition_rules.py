"""Which jobs may be in a partition, and what it gives jobs that do not say."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"


def upgrade() -> None:
    """From 0015 to 0016."""
    for name in ("users", "accounts", "groups"):
        empty = sa.Column(name, sa.Text(), nullable=False, server_default="[]")
        op.add_column("partitions", empty)
    for name in ("default_time_s", "memory_gb_per_gpu"):
        op.add_column("partitions", sa.Column(name, sa.Double()))
    op.add_column("partitions", sa.Column("cpus_per_gpu", sa.Integer()))
