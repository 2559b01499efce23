"""What the jobs of sweeps have reached: one row for each job and rung; its value never changes.

Successive halving decides from these rows alone, so that a new daemon decides the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, select, update

from dlsched.db import schema
from dlsched.db.rows import record_of
from dlsched.db.statements import add_unless_there
from dlsched.protocol.json_form import plain
from dlsched.protocol.messages import JobId


@dataclass(frozen=True, slots=True, kw_only=True)
class RungReached:
    """The first value that a job has reported at or after a rung.

    Attributes:
        job: of the sweep.
        rung: in steps.
        step: of the report.
        value: of the metric; None: NaN or infinite.
        stopped: whether the job was stopped there.
    """

    job: JobId
    rung: int
    step: int
    value: float | None
    stopped: bool = False


def set_reached(connection: Connection, records: Sequence[RungReached]) -> None:
    """Store values at rungs; those that are there stay, and only `stopped` can become true."""
    table = schema.rungs
    for each in records:
        if not add_unless_there(connection, table, plain(each)) and each.stopped:
            row = update(table).where(table.c.job == each.job, table.c.rung == each.rung)
            connection.execute(row.values(stopped=True))


def read_rungs(connection: Connection, array: JobId) -> list[RungReached]:
    """What the jobs of an array have reached, by job and rung."""
    table, jobs = schema.rungs, schema.jobs
    query = (
        select(table)
        .join(jobs, jobs.c.job == table.c.job)
        .where(jobs.c.array_job == array)
        .order_by(table.c.job, table.c.rung)
    )
    return [record_of(RungReached, row) for row in connection.execute(query).mappings()]
