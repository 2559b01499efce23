"""What elastic jobs have told of their trainings, kept so that a new daemon believes the same."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, select

from dlsched.db import schema
from dlsched.db.rows import of_row
from dlsched.db.statements import put
from dlsched.protocol.messages import JobId

__all__ = ["TrainingTold", "keep_trainings", "read_trainings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingTold:
    """All that is known of one job's training.

    Attributes:
        job: which.
        known: plain values, as the daemon's book of trainings has them.
        at: when it was told last.
    """

    job: JobId
    known: Mapping[str, Any]
    at: float


def keep_trainings(connection: Connection, records: Iterable[TrainingTold]) -> None:
    """Store them; of several of one job the last counts."""
    latest = {record.job: record for record in records}
    rows = [
        {"job": job, "known": json.dumps(each.known, allow_nan=False), "at": each.at}
        for job, each in latest.items()
    ]
    put(connection, schema.trainings, rows)


def read_trainings(
    connection: Connection, jobs: Iterable[JobId] | None = None
) -> tuple[TrainingTold, ...]:
    """Those of live jobs, or of these.

    Raises:
        StoreCorrupt: a row that cannot be read.
    """
    table, job = schema.trainings, schema.jobs
    chosen = select(table)
    if jobs is None:
        chosen = chosen.join(job, job.c.job == table.c.job).where(job.c.live)
    else:
        chosen = chosen.where(table.c.job.in_(list(jobs)))
    found = []
    for row in connection.execute(chosen.order_by(table.c.job)).mappings():
        with of_row("trainings", row["job"]):
            known = json.loads(row["known"])
            if not isinstance(known, dict):
                raise ValueError("not an object")  # noqa: TRY004  # of the row, not of a type
            found.append(TrainingTold(job=JobId(row["job"]), known=known, at=row["at"]))
    return tuple(found)
