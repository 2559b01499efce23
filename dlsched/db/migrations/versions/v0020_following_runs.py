"""Runs that follow another one, and take its state over."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"


def upgrade() -> None:
    """From 0019 to 0020."""
    op.add_column("runs", sa.Column("follows", sa.Text()))
    op.add_column("runs", sa.Column("hand_over", sa.Text(), nullable=False, server_default=""))
