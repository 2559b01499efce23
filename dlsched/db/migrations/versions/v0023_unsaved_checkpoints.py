"""Jobs whose latest checkpoint could not be written."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"

NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """From 0022 to 0023."""
    op.create_table(
        "unsaved",
        sa.Column("job", NUMBER, autoincrement=False, nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("step", NUMBER, nullable=False),
        sa.Column("why", sa.Text(), nullable=False),
        sa.Column("in_a_row", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("job", name="unsaved_pk"),
    )
