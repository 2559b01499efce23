"""Indices by which jobs that nothing refers to are found, for the retention of the history."""

from __future__ import annotations

from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    """From 0011 to 0012."""
    op.create_index("jobs_by_body", "jobs", ["body"])
    op.create_index("jobs_by_shape", "jobs", ["array"])
