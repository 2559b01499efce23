"""Reports of jobs on their trainings, stored so that a new daemon has them, too.

Elastic jobs report how fast and how well they train; every job may report its loss and metrics.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from sqlalchemy import Connection, select

from dlsched.db import schema
from dlsched.db.rows import of_row
from dlsched.db.statements import put
from dlsched.protocol.messages import JobId


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRow:
    """The reports of one elastic job.

    Attributes:
        job: the job.
        known: plain values, as the daemon's training profiles have them.
        at: the time of the last report.
    """

    job: JobId
    known: Mapping[str, Any]
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvesRow(TrainingRow):
    """The course of one job's loss and metrics: `known` is as the daemon's curves have it."""


_TABLES = {TrainingRow: schema.trainings, CurvesRow: schema.curves}
R = TypeVar("R", bound=TrainingRow)


def set_trainings(connection: Connection, records: Sequence[TrainingRow]) -> None:
    """Store reports of one kind; of several of one job, the last one counts."""
    latest = {record.job: record for record in records}
    rows = [
        {"job": job, "known": json.dumps(each.known, allow_nan=False), "at": each.at}
        for job, each in latest.items()
    ]
    put(connection, _TABLES[type(records[0])], rows)


def read_trainings(
    connection: Connection, kind: type[R], jobs: Iterable[JobId] | None = None
) -> tuple[R, ...]:
    """The reports of one kind of some jobs, by default of all live ones.

    Raises:
        StoreCorrupt: a row cannot be read.
    """
    table, job = _TABLES[kind], schema.jobs
    chosen = select(table)
    if jobs is None:
        chosen = chosen.join(job, job.c.job == table.c.job).where(job.c.live)
    else:
        chosen = chosen.where(table.c.job.in_(list(jobs)))
    found = []
    for row in connection.execute(chosen.order_by(table.c.job)).mappings():
        with of_row(table.name, row["job"]):
            known = json.loads(row["known"])
            if not isinstance(known, dict):
                raise ValueError("not an object")  # noqa: TRY004  # of the row, not of a type
            found.append(kind(job=JobId(row["job"]), known=known, at=row["at"]))
    return tuple(found)
