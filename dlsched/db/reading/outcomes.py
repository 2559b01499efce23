"""What starts, repeated work and failures were like, and predicted starts beside the true ones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, and_, func, select

from dlsched.db import schema
from dlsched.db.records import Prediction
from dlsched.db.rows import Row, record_of
from dlsched.db.statements import rows_in

AS_PREDICTED = ("COMPLETED", "TIMEOUT")  # ends that a prediction is about


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedStart:
    """A job's first prediction, its true start and end, in seconds since the epoch.

    `ended_at` is None unless the job has completed or reached its time limit.
    """

    prediction: Prediction
    started_at: float
    ended_at: float | None = None


@dataclass(slots=True, kw_only=True)
class JobOverhead:
    """Executed seconds of a job that brought no progress.

    Attributes:
        lost_s: work since the last checkpoint that a later run repeated, starts included.
        restarts: the number of measured starts, from the start of the processes to the first step.
        restart_s: their mean duration; None: none was measured.
        starting_s: the duration of those of ended runs together, without `lost_s`.
        run_restart_s: the duration of the live run's start.
    """

    lost_s: float = 0.0
    restarts: int = 0
    restart_s: float | None = None
    starting_s: float = 0.0
    run_restart_s: float = 0.0


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


def overheads(connection: Connection, jobs: Sequence[Row]) -> dict[int, JobOverhead]:
    """The overheads of the jobs that have any, by job."""
    lost = _lost_by_run(connection, jobs)
    runs, reports = schema.runs, schema.progress
    query = (
        select(runs.c.job, runs.c.run, runs.c.ended_at, runs.c.executed_s, reports.c.restart_s)
        .join_from(runs, reports, reports.c.run_id == runs.c.run_id)
        .where(reports.c.restart_s.is_not(None))
    )
    started = [row["job"] for row in jobs if row["starts"]]
    found = {job: JobOverhead(lost_s=sum(each.values(), 0.0)) for job, each in lost.items()}
    for row in rows_in(connection, query, runs.c.job, started):
        before, seconds = found.get(row["job"], JobOverhead()), row["restart_s"]
        mean, count = before.restart_s or 0.0, before.restarts + 1
        over = row["ended_at"] is not None
        kept = (row["executed_s"] or 0.0) - lost.get(row["job"], {}).get(row["run"], 0.0)
        found[row["job"]] = JobOverhead(
            lost_s=before.lost_s,
            restarts=count,
            restart_s=mean + (seconds - mean) / count,
            starting_s=before.starting_s + (min(seconds, max(kept, 0.0)) if over else 0.0),
            run_restart_s=before.run_restart_s if over else seconds,
        )
    return found


def _lost_by_run(connection: Connection, jobs: Sequence[Row]) -> dict[int, dict[int, float]]:
    """Seconds of work that was lost, by job and run.

    The last run of an ended job has lost nothing, so it is left out.
    """
    ended = {row["job"]: row["ended_at"] is not None for row in jobs if row["starts"]}
    again = [row["job"] for row in jobs if row["starts"] > ended.get(row["job"], False)]
    runs, saved = schema.runs, schema.checkpoints
    kept = (  # a grouped join would read all runs of the database
        select(func.max(saved.c.executed_s))
        .where(saved.c.job == runs.c.job, saved.c.run_id == runs.c.run_id)
        .scalar_subquery()
    )
    query = select(runs.c.job, runs.c.run, runs.c.executed_s, kept.label("kept_s")).where(
        runs.c.ended_at.is_not(None)
    )
    by_job: dict[int, dict[int, float]] = {}
    for found in rows_in(connection, query, runs.c.job, again):
        lost = max(found["executed_s"] - (found["kept_s"] or 0.0), 0.0)
        by_job.setdefault(found["job"], {})[found["run"]] = lost
    for job, each in by_job.items():
        if ended[job]:
            del each[max(each)]
    return by_job


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
