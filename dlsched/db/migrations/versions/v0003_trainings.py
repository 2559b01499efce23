"""What elastic jobs have told of their trainings."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """From 0002 to 0003."""
    op.create_table(
        "trainings",
        sa.Column("job", NUMBER, autoincrement=False, nullable=False),
        sa.Column("known", sa.Text(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("job", name="trainings_pk"),
    )
