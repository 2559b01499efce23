"""Short tasks: one row for each that was given to a run of its array; its end never changes.

A task that was given and has not ended is given anew when its run is over. Of two ends of a task
the first counts, and only that of the run that has the task.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, bindparam, func, or_, select, update

from dlsched.db import schema
from dlsched.db.rows import record_of
from dlsched.db.statements import put_where
from dlsched.protocol.messages import JobId, NodeName, RunId


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskEnd:
    """How a task has ended."""

    task: int
    code: int
    signal: int
    ran_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TasksGiven:
    """Tasks that a run has from now on."""

    job: JobId  # the array's first
    run_id: RunId
    node: NodeName
    tasks: tuple[int, ...]
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TasksEnded:
    """Tasks of a run that have ended."""

    job: JobId
    run_id: RunId
    ends: tuple[TaskEnd, ...]
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRun:
    """A task, the run that has it, and how it has ended (None: it has not)."""

    task: int
    run_id: RunId
    node: NodeName
    given_at: float
    code: int | None
    signal: int | None
    ran_s: float | None
    ended_at: float | None


def set_given(connection: Connection, records: Sequence[TasksGiven]) -> None:
    """Store which run has which tasks; one that has ended stays as it is."""
    table = schema.task_runs
    for each in records:
        for task in each.tasks:
            row = {
                "job": each.job,
                "task": task,
                "run_id": each.run_id,
                "node": each.node,
                "given_at": each.at,
            }
            only, where = ("run_id", "node", "given_at"), table.c.ended_at.is_(None)
            put_where(connection, table, row, only=only, where=where)


def set_ended(connection: Connection, records: Sequence[TasksEnded]) -> None:
    """Store how tasks have ended; an end stays, and only the run that has a task ends it."""
    table = schema.task_runs
    statement = update(table).where(
        table.c.job == bindparam("b_job"),
        table.c.task == bindparam("b_task"),
        table.c.run_id == bindparam("b_run"),
        table.c.ended_at.is_(None),
    )
    values = [
        {
            "b_job": each.job,
            "b_task": end.task,
            "b_run": each.run_id,
            "code": end.code,
            "signal": end.signal,
            "ran_s": end.ran_s,
            "ended_at": each.at,
        }
        for each in records
        for end in each.ends
    ]
    if values:
        connection.execute(statement, values)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskCounts:
    """How the tasks of an array stand: ended, failed, their seconds, and open ones by run."""

    ended: int
    failed: int
    ran_s: float
    open: Mapping[RunId, int]


_FAILED = or_(schema.task_runs.c.code > 0, schema.task_runs.c.signal > 0)


def count_tasks(connection: Connection, array: JobId) -> TaskCounts:
    """Count the tasks of an array that were given to a run."""
    table = schema.task_runs
    mine = table.c.job == array
    ended = connection.execute(
        select(
            func.count(),
            func.count().filter(_FAILED),
            func.coalesce(func.sum(table.c.ran_s), 0.0),
        ).where(mine, table.c.ended_at.is_not(None))
    ).one()
    held = connection.execute(
        select(table.c.run_id, func.count())
        .where(mine, table.c.ended_at.is_(None))
        .group_by(table.c.run_id)
    )
    number, failed, ran_s = ended
    return TaskCounts(
        ended=number, failed=failed, ran_s=ran_s, open={RunId(run): n for run, n in held}
    )


def read_task_runs(
    connection: Connection,
    array: JobId,
    *,
    after: int = 0,
    up_to: int | None = None,
    failed: int | None = None,
) -> list[TaskRun]:
    """The tasks of an array that were given to a run, by number.

    Args:
        connection: to read from.
        array: its first job.
        after: only numbers above this one.
        up_to: the last number; None: all.
        failed: only so many that have failed; None: all, failed or not.
    """
    table = schema.task_runs
    names = [table.c[name] for name in TaskRun.__slots__]
    query = select(*names).where(table.c.job == array, table.c.task > after)
    if up_to is not None:
        query = query.where(table.c.task <= up_to)
    if failed is not None:
        query = query.where(_FAILED).limit(failed)
    rows = connection.execute(query.order_by(table.c.task)).mappings()
    return [record_of(TaskRun, row) for row in rows]
