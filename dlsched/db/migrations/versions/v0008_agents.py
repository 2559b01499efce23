"""Which agent speaks for a node, and on which hardware."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """From 0007 to 0008."""
    for name in ("start", "machine"):
        op.add_column("nodes", sa.Column(name, sa.Text(), nullable=False, server_default=""))
