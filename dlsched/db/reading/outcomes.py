"""Why jobs have failed, starts that failed lately, and predicted starts beside the true ones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, and_, func, or_, select

from dlsched.db import schema
from dlsched.db.records import Event, Prediction
from dlsched.db.rows import Row, exit_record, record_of
from dlsched.db.statements import rows_in
from dlsched.protocol.messages import ExitRecord

MOST_FAILED_STARTS = 10_000
_NEWEST_EVENTS = 100_000  # the only ones that are looked through
AS_PREDICTED = ("COMPLETED", "TIMEOUT")  # ends that a prediction is about


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedStart:
    """A job's first prediction, its true start and end, in seconds since the epoch.

    `ended_at` is None unless the job has completed or reached its time limit.
    """

    prediction: Prediction
    started_at: float
    ended_at: float | None = None


@dataclass(frozen=True, slots=True)
class StoredFailedStarts:
    """Starts that have failed, and what was done about them.

    Attributes:
        ends: of runs that could not start on a node or whose keeper it lost, each with when, in
            seconds since the epoch; oldest first.
        events: nodes that were drained or resumed and jobs that were held, oldest first.
    """

    ends: Sequence[tuple[float, ExitRecord]] = ()
    events: Sequence[Event] = ()


def failed_starts(connection: Connection, since: float, now: float) -> StoredFailedStarts:
    """The starts that have failed since a moment, and what was done about them.

    Args:
        connection: to the database.
        since: seconds since the epoch.
        now: likewise; when the ends are said to have been of runs that are not over elsewhere.
    """
    members, runs, events = schema.run_members.c, schema.runs.c, schema.events.c
    record = members.exit
    at = func.coalesce(runs.ended_at, now)
    query = (
        select(at, record)
        .join_from(schema.run_members, schema.runs, runs.run_id == members.run_id)
        .where(or_(runs.ended_at >= since, runs.live), record.is_not(None))
        .where(
            or_(
                record.like('%"start_fault":"%'),
                record.like('%"hook":"prolog%'),
                record.like('%"reason":"keeper-lost"%'),
            )
        )
        .order_by(at.desc(), members.run_id)
        .limit(MOST_FAILED_STARTS)
    )
    found = [(at, exit_record(text)) for at, text in connection.execute(query)]
    newest = connection.execute(select(func.max(events.id))).scalar() or 0
    acts = (
        select(schema.events)
        .where(events.id > newest - _NEWEST_EVENTS, events.at >= since)
        .where(events.kind.in_(("drain", "resume", "hold")))
        .order_by(events.id)
    )
    return StoredFailedStarts(
        tuple((at, end) for at, end in reversed(found) if end is not None and end.is_failed_start),
        tuple(record_of(Event, row) for row in connection.execute(acts).mappings()),
    )


def causes_of_failures(connection: Connection, jobs: Sequence[Row]) -> dict[int, str]:
    """Why the latest run failed, as an event tells, of the jobs that have failed."""
    events, runs = schema.events.c, schema.runs.c
    query = (
        select(events.job, events.text, runs.run)
        .join_from(schema.events, schema.runs, runs.run_id == events.run_id)
        .where(events.kind == "cause")
    )
    latest = {row["job"]: row["runs"] for row in jobs if row["state"] == "FAILED"}
    return {
        row["job"]: row["text"]
        for row in rows_in(connection, query, events.job, latest)
        if row["run"] == latest[row["job"]]
    }


def first_predictions(connection: Connection, jobs: Iterable[int]) -> dict[int, Prediction]:
    """The first prediction of each of some jobs that have one."""
    table = schema.predictions
    first = select(func.min(table.c.id).label("id")).group_by(table.c.job)
    ids = [row["id"] for row in rows_in(connection, first, table.c.job, list(jobs))]
    return {
        row["job"]: record_of(Prediction, row)
        for row in rows_in(connection, select(table), table.c.id, ids)
    }


def predicted_starts(connection: Connection, since: float, most: int) -> list[PredictedStart]:
    """First predictions of jobs that started since a moment; at most `most`, the latest."""
    table, jobs = schema.predictions, schema.jobs
    first = select(func.min(table.c.id).label("id")).group_by(table.c.job).subquery()
    query = (
        select(table, jobs.c.first_started_at, jobs.c.ended_at, jobs.c.state)
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
        PredictedStart(
            prediction=record_of(Prediction, row),
            started_at=row["first_started_at"],
            ended_at=row["ended_at"] if row["state"] in AS_PREDICTED else None,
        )
        for row in connection.execute(query).mappings()
    ]
