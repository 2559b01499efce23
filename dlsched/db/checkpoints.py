"""The registry of checkpoints: which are there, which jobs begin at them, which are to go.

The state of a row is `kept`; `aside`, where a fresh start has passed it by; `doomed`, when its
files are to be deleted; or `deleted`. A job begins at its newest kept row. A row with a `source`
stands for files of another job: they stay as long as any row that names them is kept or aside.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, Connection, RowMapping, and_, select, update

from dlsched.db import schema
from dlsched.db.statements import chunks
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
