"""What the jobs of sweeps have reached at the rungs of successive halving."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"

NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """From 0006 to 0007."""
    op.create_table(
        "rungs",
        sa.Column("job", NUMBER, autoincrement=False, nullable=False),
        sa.Column("rung", NUMBER, autoincrement=False, nullable=False),
        sa.Column("step", NUMBER, nullable=False),
        sa.Column("value", sa.Double()),
        sa.Column("stopped", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("job", "rung", name="rungs_pk"),
    )
