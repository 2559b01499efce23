"""Decayed usage of owners, as the daemon counts it.

A row has the GPU-seconds of an owner as they counted at a time, and the GPUs that it has held
since. It is written in the transaction in which they change; a new daemon reads one row for each
owner and counts on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from sqlalchemy import Connection, select

from dlsched.db import schema
from dlsched.db.rows import record_of
from dlsched.db.statements import put


@dataclass(frozen=True, slots=True, kw_only=True)
class UsedByOwner:
    """What an owner has used.

    Attributes:
        user_name: of the jobs.
        account: of the jobs; empty: none.
        vc: of the jobs; empty: none.
        gpu_s: GPU-seconds as they counted at `at`.
        at: seconds since the epoch.
        gpus: held since `at`; parts of GPUs count as parts.
    """

    user_name: str
    account: str
    vc: str
    gpu_s: float
    at: float
    gpus: float = 0.0

    def moved(self, by_s: float) -> UsedByOwner:
        """The same by a clock that is so many seconds ahead."""
        return replace(self, at=self.at + by_s) if by_s else self


def set_usage(connection: Connection, rows: Sequence[UsedByOwner]) -> None:
    """Store what owners have used; of several rows of one owner the last one counts."""
    latest = {(row.user_name, row.account, row.vc): asdict(row) for row in rows}
    put(connection, schema.usage, list(latest.values()))


def read_usage(connection: Connection) -> tuple[UsedByOwner, ...]:
    """What all owners have used."""
    table = schema.usage
    query = select(table).order_by(*table.primary_key)
    return tuple(record_of(UsedByOwner, row) for row in connection.execute(query).mappings())
