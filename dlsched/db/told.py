"""What runs have lost, and what was foretold beside what came: sums over rows, few statements."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sqlalchemy import Connection, and_, func, select

from dlsched.db import schema
from dlsched.db.records import Prediction
from dlsched.db.rows import Row
from dlsched.db.statements import rows_in
from dlsched.protocol.messages import JobId

__all__ = ["Came", "came_true", "first_predictions", "lost_seconds"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Came:
    """A job's first prediction, and when it did start; seconds since the epoch."""

    told: Prediction
    started_at: float


def lost_seconds(connection: Connection, jobs: Iterable[Row]) -> dict[int, float]:
    """Time executed in vain, by job: what runs did since their last checkpoint and had to redo.

    The run with which a job ended has redone or lost nothing, so it does not count.

    Args:
        connection: to read from.
        jobs: rows of the table of jobs.
    """
    ended = {row["job"]: row["ended_at"] is not None for row in jobs if row["starts"]}
    again = [row["job"] for row in jobs if row["starts"] > ended.get(row["job"], False)]
    if not again:
        return {}
    runs, saved = schema.runs, schema.checkpoints
    kept = (  # a join that is grouped would read all runs there ever were
        select(func.max(saved.c.executed_s)).where(saved.c.run_id == runs.c.run_id)
    ).scalar_subquery()
    query = select(runs.c.job, runs.c.run, runs.c.executed_s, kept.label("kept_s")).where(
        runs.c.ended_at.is_not(None)
    )
    by_job: dict[int, list[tuple[int, float]]] = {}
    for found in rows_in(connection, query, runs.c.job, again):
        lost = max(found["executed_s"] - (found["kept_s"] or 0.0), 0.0)
        by_job.setdefault(found["job"], []).append((found["run"], lost))
    return {
        job: sum((lost for _, lost in sorted(each)[: -1 if ended[job] else None]), 0.0)
        for job, each in by_job.items()
    }


def first_predictions(connection: Connection, jobs: Iterable[int]) -> dict[int, Prediction]:
    """What was said first of when each of some jobs would start."""
    table = schema.predictions
    first = select(func.min(table.c.id).label("id")).group_by(table.c.job)
    ids = [row["id"] for row in rows_in(connection, first, table.c.job, list(jobs))]
    return {row["job"]: _told(row) for row in rows_in(connection, select(table), table.c.id, ids)}


def came_true(connection: Connection, since: float, most: int) -> list[Came]:
    """First predictions of jobs that have started since a moment, the latest ones of many."""
    table, jobs = schema.predictions, schema.jobs
    first = select(func.min(table.c.id).label("id")).group_by(table.c.job).subquery()
    query = (
        select(table, jobs.c.first_started_at)
        .join_from(first, table, table.c.id == first.c.id)
        .join(
            jobs,
            and_(jobs.c.job == table.c.job, jobs.c.first_started_at >= table.c.made_at),
        )
        .where(jobs.c.first_started_at >= since)
        .order_by(jobs.c.first_started_at.desc())
        .limit(most)
    )
    return [
        Came(told=_told(row), started_at=row["first_started_at"])
        for row in connection.execute(query).mappings()
    ]


def _told(row: Row) -> Prediction:
    return Prediction(
        job=JobId(row["job"]),
        made_at=row["made_at"],
        start_at=row["start_at"],
        basis=row["basis"],
    )
