"""Measured speeds as rows.

A row replaces the one of the same key; forgetting what is not there is no error.
"""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import Connection, delete, select

from dlsched.db import schema
from dlsched.db.rows import of_row
from dlsched.db.speeds import SpeedKey, SpeedRow, SpeedsForgotten, SpeedsSet
from dlsched.db.statements import put

__all__ = ["forget_speeds", "read_speeds", "set_speeds"]


def set_speeds(connection: Connection, records: Iterable[SpeedsSet]) -> None:
    """Store speeds; of several of one key the last counts."""
    latest = {row.key: row for record in records for row in record.rows}
    values = [
        key._asdict()
        | {
            "steps_per_s": row.steps_per_s,
            "measurements": row.measurements,
            "source": row.source,
            "at": row.at,
            "changed_at": row.changed_at,
        }
        for key, row in latest.items()
    ]
    put(connection, schema.speeds, values)


def forget_speeds(connection: Connection, records: Iterable[SpeedsForgotten]) -> None:
    """Take speeds away."""
    columns = schema.speeds.primary_key.columns
    for record in records:
        for key in record.keys:
            matches = [column == value for column, value in zip(columns, key, strict=True)]
            connection.execute(delete(schema.speeds).where(*matches))


def read_speeds(connection: Connection) -> tuple[SpeedRow, ...]:
    """All speeds, by key.

    Raises:
        StoreCorrupt: a row that cannot be read.
    """
    table = schema.speeds
    found = []
    for row in connection.execute(select(table)).mappings():
        with of_row("speeds", row["model"]):
            key = SpeedKey(*(row[name] for name in SpeedKey._fields))
            if not row["steps_per_s"] >= 0 or key.gpus < 1:
                raise ValueError(f"{row['steps_per_s']} steps/s on {key.gpus} GPUs")
            found.append(
                SpeedRow(
                    key=key,
                    steps_per_s=row["steps_per_s"],
                    measurements=row["measurements"],
                    source=row["source"],
                    at=row["at"],
                    changed_at=row["changed_at"],
                )
            )
    return tuple(sorted(found, key=lambda row: row.key))
