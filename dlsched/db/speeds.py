"""Measured speeds of kinds of trainings: by model, batch size, GPUs and partner.

A speed stays known after its jobs have ended, so that the next job need not be measured again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from sqlalchemy import Connection, delete, select

from dlsched.db import schema
from dlsched.db.rows import of_row, record_of
from dlsched.db.statements import put
from dlsched.protocol.json_form import plain

MEASURED = "measured"  # the source of speeds that jobs have reported


class SpeedKey(NamedTuple):
    """The key of a speed.

    Attributes:
        model: the trained model.
        batch_size: examples per step; 0: unknown.
        gpu_type: the type of the GPUs.
        gpus: the number of GPUs, of the job and of its partner.
        partner: the model on the same GPUs; empty: the job has the GPUs alone.
        partner_batch_size: the partner's examples per step.
    """

    model: str
    batch_size: int
    gpu_type: str
    gpus: int
    partner: str = ""
    partner_batch_size: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedRow:
    """The speed of one kind of training.

    Attributes:
        key: the kind and its GPUs.
        steps_per_s: of the whole job; 0: it does not run there.
        measurements: the number of measurements; 0: it was imported.
        source: MEASURED, or the user that imported it.
        at: when it was last set.
        changed_at: when it last changed enough to require new plans.
    """

    key: SpeedKey
    steps_per_s: float
    measurements: int = 0
    source: str = MEASURED
    at: float = 0.0
    changed_at: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedsSet:
    """Speeds that were set."""

    rows: tuple[SpeedRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedsForgotten:
    """Keys of speeds that were deleted."""

    keys: tuple[SpeedKey, ...]


def set_speeds(connection: Connection, records: Iterable[SpeedsSet]) -> None:
    """Store speeds; of several with one key, the last one counts."""
    latest = {row.key: row for record in records for row in record.rows}
    values = [{**plain(row), **key._asdict()} for key, row in latest.items()]
    for each in values:
        del each["key"]
    put(connection, schema.speeds, values)


def forget_speeds(connection: Connection, records: Iterable[SpeedsForgotten]) -> None:
    """Delete speeds; a missing key is no error."""
    columns = schema.speeds.primary_key.columns
    for record in records:
        for key in record.keys:
            matches = [column == value for column, value in zip(columns, key, strict=True)]
            connection.execute(delete(schema.speeds).where(*matches))


def read_speeds(connection: Connection) -> tuple[SpeedRow, ...]:
    """All speeds, sorted by key.

    Raises:
        StoreCorrupt: a row cannot be read.
    """
    table = schema.speeds
    found = []
    for row in connection.execute(select(table)).mappings():
        with of_row("speeds", row["model"]):
            key = SpeedKey(*(row[name] for name in SpeedKey._fields))
            if not row["steps_per_s"] >= 0 or key.gpus < 1:
                raise ValueError(f"{row['steps_per_s']} steps/s on {key.gpus} GPUs")
            found.append(record_of(SpeedRow, row, key=key))
    return tuple(sorted(found, key=lambda row: row.key))
