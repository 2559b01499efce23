"""Which checkpoints are there: their loss, the job that wrote them, and whether they are kept."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"

NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """From 0004 to 0005; of what was recorded so far, only the newest is sure to be there."""
    op.add_column("checkpoints", sa.Column("loss", sa.Double()))
    op.add_column("checkpoints", sa.Column("source", NUMBER))
    kept = sa.Column("state", sa.Text(), nullable=False, server_default="kept")
    op.add_column("checkpoints", kept)
    op.execute(
        "UPDATE checkpoints SET state = 'deleted' "
        "WHERE id NOT IN (SELECT max(id) FROM checkpoints GROUP BY job)"
    )
    for name, column, where in (
        ("checkpoints_there_by_job", "job", "state <> 'deleted'"),
        ("checkpoints_borrowed", "source", "source IS NOT NULL"),
    ):
        condition = sa.text(where)
        op.create_index(
            name, "checkpoints", [column], sqlite_where=condition, postgresql_where=condition
        )
