"""Whether a node's keepers fence their jobs, and which witnesses a node may have."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """From 0008 to 0009."""
    flag: sa.Column[bool] = sa.Column(
        "can_fence", sa.Boolean(), nullable=False, server_default=sa.false()
    )
    op.add_column("nodes", flag)
    op.add_column("nodes", sa.Column("witnesses", sa.Text(), nullable=False, server_default="[]"))
    # as the agents have said when they registered
    op.execute(
        sa.text(
            "UPDATE nodes SET can_fence = :yes WHERE node IN "
            "(SELECT node FROM node_descriptions WHERE facts LIKE :fence)"
        ).bindparams(yes=True, fence='%"fence"%')
    )
