"""How much of the GPUs that a job held it has used."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    """From 0012 to 0013."""
    number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    op.create_table(
        "gpu_work",
        sa.Column("job", number, nullable=False, autoincrement=False),
        sa.Column("seen_gpu_s", sa.Double(), nullable=False),
        sa.Column("busy_gpu_s", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("job", name="gpu_work_pk"),
    )
