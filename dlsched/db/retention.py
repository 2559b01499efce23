"""What the history lets go of: jobs that ended long ago with all that is known of them, old events.

A job stays while it has checkpoints that are not deleted (their files would be forgotten), while a
live job depends on it, and while an element of its array is live.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from sqlalchemy import ColumnElement, Connection, Table, and_, delete, exists, func, or_, select

from dlsched.db import schema
from dlsched.db.checkpoints import DELETED
from dlsched.db.statements import chunks
from dlsched.db.stored_bytes import ROW_BYTES, bytes_of_actions, count_bytes, remove_programs
from dlsched.protocol.messages import JobId


@dataclass(frozen=True, slots=True, kw_only=True)
class JobsRemoved:
    """These ended jobs leave the database, except those that have become live meanwhile."""

    jobs: tuple[JobId, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LinesRemoved:
    """The oldest events and rounds from before a moment leave the database, at most so many each.

    Attributes:
        before: seconds since the epoch.
        most: of each table.
    """

    before: float
    most: int


def removable_jobs(connection: Connection, before: float, most: int) -> list[JobId]:
    """Ended jobs that may be removed, those that ended first.

    Args:
        connection: to read from.
        before: only jobs that ended before it, in seconds since the epoch.
        most: how many at most.
    """
    jobs = schema.jobs
    query = (
        select(jobs.c.job)
        .where(~jobs.c.live, jobs.c.ended_at < before, ~or_(*_needed()))
        .order_by(jobs.c.ended_at, jobs.c.job)
        .limit(most)
    )
    return [JobId(job) for job in connection.execute(query).scalars()]


def _needed() -> list[ColumnElement[bool]]:
    jobs, saved, needs = schema.jobs, schema.checkpoints, schema.dependencies
    other = jobs.alias("other")
    return [
        exists().where(
            or_(saved.c.job == jobs.c.job, saved.c.source == jobs.c.job), saved.c.state != DELETED
        ),
        exists().where(needs.c.on_job == jobs.c.job, other.c.body == needs.c.body, other.c.live),
        and_(
            jobs.c.array_job.is_not(None),
            exists().where(other.c.array_job == jobs.c.array_job, other.c.live),
        ),
    ]


def has_old_lines(connection: Connection, before: float) -> bool:
    """Whether an event or a round is from before a moment, in seconds since the epoch."""
    oldest = [
        connection.execute(select(table.c.at).order_by(table.c.id).limit(1)).scalar()
        for table in (schema.events, schema.rounds)
    ]
    return any(at is not None and at < before for at in oldest)


def remove_jobs(connection: Connection, rows: list[JobsRemoved]) -> None:
    """Delete jobs, and whatever only they need."""
    jobs, runs = schema.jobs, schema.runs
    for some in chunks(job for row in rows for job in row.jobs):
        found = connection.execute(
            select(jobs.c.job, jobs.c.user_name, jobs.c.body, jobs.c.array).where(
                jobs.c.job.in_(some), ~jobs.c.live
            )
        ).all()
        gone = [row.job for row in found]
        fewer = bytes_of_actions(connection, schema.events.c.job.in_(gone))
        started = connection.execute(select(runs.c.run_id).where(runs.c.job.in_(gone))).scalars()
        for run_ids in chunks(list(started)):
            for table in (schema.run_members, schema.progress, schema.runs):
                connection.execute(delete(table).where(table.c.run_id.in_(run_ids)))
        for table in _OF_JOBS:
            connection.execute(delete(table).where(table.c.job.in_(gone)))
        jobs_of = Counter(row.user_name for row in found)
        fewer += Counter({user: count * ROW_BYTES for user, count in jobs_of.items()})
        bodies = _unused(connection, jobs.c.body, {row.body for row in found})
        fewer += remove_programs(connection, bodies)
        arrays = _unused(connection, jobs.c.array, {row.array for row in found})
        for table in _OF_BODIES:
            connection.execute(delete(table).where(table.c.body.in_(bodies)))
        connection.execute(delete(schema.arrays).where(schema.arrays.c.array.in_(arrays)))
        count_bytes(connection, {user: -count for user, count in fewer.items()})


# those that name a job come before it
_OF_JOBS: tuple[Table, ...] = (
    *(
        schema.job_story,
        schema.served,
        schema.checkpoints,
        schema.unsaved,
        schema.predictions,
        schema.trainings,
        schema.curves,
    ),
    *(schema.rungs, schema.task_runs, schema.gpu_work, schema.events, schema.jobs),
)
_OF_BODIES: tuple[Table, ...] = (
    *(schema.job_environments, schema.dependencies, schema.job_bodies),
)


def _unused(connection: Connection, column: ColumnElement[int], keys: set[int | None]) -> list[int]:
    """Those of some keys, at most `MANY`, to which a column of `jobs` does not refer any more."""
    known = [key for key in keys if key is not None]
    used = set(connection.execute(select(column).where(column.in_(known))).scalars())
    return [key for key in known if key not in used]


def remove_lines(connection: Connection, rows: list[LinesRemoved]) -> None:
    """Delete the oldest events and rounds."""
    for row in rows:
        for table in (schema.events, schema.rounds):
            oldest = select(table.c.id).order_by(table.c.id).limit(row.most).subquery()
            last = select(func.max(oldest.c.id)).scalar_subquery()
            old = and_(table.c.id <= last, table.c.at < row.before)
            if table is schema.events:
                fewer = bytes_of_actions(connection, old)
                count_bytes(connection, {user: -count for user, count in fewer.items()})
            connection.execute(delete(table).where(old))
