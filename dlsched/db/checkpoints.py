"""The registry of checkpoints: which are there, which jobs begin at them, which are to go.

The state of a row is `kept`; `aside`, where a fresh start has passed it by; `doomed`, when its
files are to be deleted; or `deleted`. A job begins at its newest kept row. A row with a `source`
stands for files of another job: they stay as long as any row that names them is kept or aside.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sqlalchemy import (
    ColumnElement,
    Connection,
    RowMapping,
    and_,
    delete,
    func,
    or_,
    select,
    update,
)

from dlsched.db import schema
from dlsched.db.records import CheckpointCommitted
from dlsched.db.rows import record_of
from dlsched.db.statements import chunks, put
from dlsched.protocol.json_form import plain
from dlsched.protocol.messages import JobId, NodeName, RunId, RunNumber

KEPT, ASIDE, DOOMED, DELETED = "kept", "aside", "doomed", "deleted"
HELD = (KEPT, ASIDE)  # the files of such a row must not be deleted


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointsMarked:
    """Some checkpoints of one job, by row and path, got another state."""

    job: JobId
    ids: tuple[int, ...]
    paths: tuple[str, ...]
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredCheckpoint:
    """A row of the registry, with what its job and the run that wrote it are known by.

    Attributes:
        id: of the row; a later checkpoint has a higher one.
        job: whose next run may begin at it.
        source: the job whose files it names; None: `job`.
        run: the number of the run that wrote it.
        node: the first node of that run, which can reach the files; None: not known.
        ended_at: the end of the job, in seconds since the epoch; None while it is live.
    """

    id: int
    job: JobId
    array_job: JobId | None
    array_task: int | None
    user: str
    uid: int
    source: JobId | None
    run_id: RunId
    run: RunNumber
    node: NodeName | None
    at: float
    path: str
    step: int
    size_bytes: int
    loss: float | None
    state: str
    ended_at: float | None

    @property
    def owner(self) -> JobId:
        """The job that wrote the files."""
        return self.job if self.source is None else self.source


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsaved:
    """A job's latest checkpoint could not be written.

    Attributes:
        job: whose training goes on without it.
        run_id: of the run that could not write it.
        at: seconds since the epoch.
        step: after which there is none.
        why: in words, from inside the job.
        in_a_row: how many have failed one after the other.
    """

    job: JobId
    run_id: RunId
    at: float
    step: int
    why: str
    in_a_row: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredUnsaved:
    """The same as stored, with what its job is known by and has instead."""

    unsaved: Unsaved
    array_job: JobId | None
    array_task: int | None
    user: str
    newest_step: int | None  # of the newest checkpoint; None: there is none
    newest_at: float | None


def set_unsaved(connection: Connection, rows: Sequence[Unsaved]) -> None:
    """Store which jobs could not save last."""
    latest = {row.job: plain(row) for row in rows}
    put(connection, schema.unsaved, list(latest.values()))


def forget_unsaved(connection: Connection, saved: Sequence[CheckpointCommitted]) -> None:
    """Delete that jobs could not save which have saved since."""
    table = schema.unsaved
    for row in saved:
        is_later = or_(table.c.run_id != row.run_id, table.c.step <= row.step)
        connection.execute(delete(table).where(table.c.job == row.job, is_later))


def read_unsaved(
    connection: Connection, condition: ColumnElement[bool], limit: int | None = None
) -> list[StoredUnsaved]:
    """The jobs that could not save last, latest first; the condition is on the table of jobs."""
    table, jobs, saved = schema.unsaved, schema.jobs, schema.checkpoints
    newest = (
        select(func.max(saved.c.id))
        .where(saved.c.job == table.c.job, saved.c.state == KEPT)
        .correlate(table)
        .scalar_subquery()
    )
    query = (
        select(
            table,
            *(jobs.c[name] for name in ("array_job", "array_task", "user_name")),
            saved.c.step.label("newest_step"),
            saved.c.at.label("newest_at"),
        )
        .join_from(table, jobs, jobs.c.job == table.c.job)
        .outerjoin(saved, saved.c.id == newest)
        .where(condition)
        .order_by(table.c.at.desc(), table.c.job)
        .limit(limit)
    )
    return [
        StoredUnsaved(
            unsaved=record_of(Unsaved, row),
            user=row["user_name"],
            **{n: row[n] for n in ("array_job", "array_task", "newest_step", "newest_at")},
        )
        for row in connection.execute(query).mappings()
    ]


def mark_checkpoints(connection: Connection, rows: Iterable[CheckpointsMarked]) -> None:
    """Store other states."""
    table = schema.checkpoints
    for row in rows:
        for some in chunks(row.ids):
            changed = update(table).where(table.c.id.in_(some)).values(state=row.state)
            connection.execute(changed)


def read_checkpoints(
    connection: Connection,
    condition: ColumnElement[bool],
    *,
    states: Sequence[str] = HELD,
    limit: int | None = None,
) -> list[RegisteredCheckpoint]:
    """The rows of the registry that match, latest first.

    Args:
        connection: to read from.
        condition: on the tables of jobs and checkpoints.
        states: of the rows.
        limit: how many at most.
    """
    saved, jobs, runs, members = schema.checkpoints, schema.jobs, schema.runs, schema.run_members
    first = and_(members.c.run_id == saved.c.run_id, members.c.position == 0)
    columns = (
        *(saved.c[name] for name in ("id", "job", "source", "run_id", "at", "path", "step")),
        *(saved.c[name] for name in ("size_bytes", "loss", "state")),
        *(jobs.c[name] for name in ("array_job", "array_task", "user_name", "uid", "ended_at")),
        *(runs.c.run, members.c.node),
    )
    query = (
        select(*columns)
        .join_from(saved, jobs, jobs.c.job == saved.c.job)
        .outerjoin(runs, runs.c.run_id == saved.c.run_id)
        .outerjoin(members, first)
        .where(saved.c.state != DELETED, saved.c.state.in_(states), condition)
        .order_by(saved.c.id.desc())
        .limit(limit)
    )
    return [_registered(row) for row in connection.execute(query).mappings()]


def _registered(row: RowMapping) -> RegisteredCheckpoint:
    values = {name: row[name] for name in row if name not in ("user_name", "uid", "run")}
    return RegisteredCheckpoint(
        user=row["user_name"],
        uid=-1 if row["uid"] is None else row["uid"],
        run=RunNumber(row["run"] or 0),
        **values,
    )


def read_borrowed(connection: Connection) -> dict[JobId, tuple[JobId, str]]:
    """By job that holds files of another one: the job that wrote them, and the path."""
    table = schema.checkpoints
    query = select(table.c.job, table.c.source, table.c.path).where(
        table.c.source.is_not(None), table.c.state.in_(HELD)
    )
    return {job: (source, path) for job, source, path in connection.execute(query)}
