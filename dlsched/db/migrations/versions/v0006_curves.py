"""The course of the losses and metrics that jobs report."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"

NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """From 0005 to 0006."""
    op.create_table(
        "curves",
        sa.Column("job", NUMBER, autoincrement=False, nullable=False),
        sa.Column("known", sa.Text(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("job", name="curves_pk"),
    )
