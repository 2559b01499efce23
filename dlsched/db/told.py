"""What starts took, what was lost, what was foretold beside what came: sums, few statements."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, and_, func, select

from dlsched.db import schema
from dlsched.db.records import Prediction
from dlsched.db.rows import Row
from dlsched.db.statements import rows_in
from dlsched.protocol.messages import JobId

__all__ = ["Came", "Spent", "came_true", "first_predictions", "spent_in_vain"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Came:
    """A job's first prediction, and when it did start; seconds since the epoch."""

    told: Prediction
    started_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """Executed seconds of a job that are no work, or were in vain.

    Attributes:
        lost_s: what runs did since their last checkpoint and had to redo, starts included.
        restarts: starts that were measured: from the start of the processes to the first step.
        restart_s: of one of them, the mean; None: none was measured.
        starting_s: of those of ended runs together what is not in `lost_s`.
        run_restart_s: that of the live run.
    """

    lost_s: float = 0.0
    restarts: int = 0
    restart_s: float | None = None
    starting_s: float = 0.0
    run_restart_s: float = 0.0


def spent_in_vain(connection: Connection, jobs: Sequence[Row]) -> dict[int, Spent]:
    """What jobs have spent on starts and on what they had to do again, where there is any.

    Args:
        connection: to read from.
        jobs: rows of the table of jobs.
    """
    lost = _lost_by_run(connection, jobs)
    runs, told = schema.runs, schema.progress
    query = (
        select(runs.c.job, runs.c.run, runs.c.ended_at, runs.c.executed_s, told.c.restart_s)
        .join_from(runs, told, told.c.run_id == runs.c.run_id)
        .where(told.c.restart_s.is_not(None))
    )
    started = [row["job"] for row in jobs if row["starts"]]
    found = {job: Spent(lost_s=sum(each.values(), 0.0)) for job, each in lost.items()}
    for row in rows_in(connection, query, runs.c.job, started):
        before, seconds = found.get(row["job"], Spent()), row["restart_s"]
        mean, count = before.restart_s or 0.0, before.restarts + 1
        over = row["ended_at"] is not None
        kept = (row["executed_s"] or 0.0) - lost.get(row["job"], {}).get(row["run"], 0.0)
        found[row["job"]] = Spent(
            lost_s=before.lost_s,
            restarts=count,
            restart_s=mean + (seconds - mean) / count,
            starting_s=before.starting_s + (min(seconds, max(kept, 0.0)) if over else 0.0),
            run_restart_s=before.run_restart_s if over else seconds,
        )
    return found


def _lost_by_run(connection: Connection, jobs: Sequence[Row]) -> dict[int, dict[int, float]]:
    """Time executed in vain, by job and run.

    The run with which a job ended has redone or lost nothing, so it does not count.
    """
    ended = {row["job"]: row["ended_at"] is not None for row in jobs if row["starts"]}
    again = [row["job"] for row in jobs if row["starts"] > ended.get(row["job"], False)]
    runs, saved = schema.runs, schema.checkpoints
    kept = (  # a join that is grouped would read all runs there ever were
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
