"""Notices: what users asked to be told of their jobs, stored until it has been delivered.

Invariant: a notice becomes durable in the transaction of the change that it tells of, so no crash
can lose it; its row is deleted only after its delivery. So each is delivered at least once, always
under the same key.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sqlalchemy import Connection, bindparam, delete, func, select, update

from dlsched.db import schema
from dlsched.db.statements import add, chunks
from dlsched.protocol.json_form import dumps, loads, plain
from dlsched.protocol.messages import JobId


class Notify(NamedTuple):
    """The events that a job's user wants to be told of, and its array's first element."""

    events: str
    array_job: JobId | None


ALL = ("begin", "end", "fail", "preempt", "requeue", "invalid_depend", "checkpoint")


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """One thing to tell of one job.

    Attributes:
        job: that it is about; of a whole array, its first element.
        event: begin, end, fail, preempt, requeue, time_limit, time_limit_50, _80, _90,
            invalid_depend or checkpoint.
        state: the job's state as users see it.
        run: the run number that it is about; 0 before the first.
        text: why, in words.
        at: seconds since the epoch.
        user: of the job.
        whole_array: whether it tells of an array, not of one job.
        elements: of how many elements of the array it tells together; 0: of the whole.
        key: names the notice for ever, so that receivers can know a repetition.
    """

    job: JobId
    event: str
    state: str
    run: int
    text: str
    at: float
    user: str
    whole_array: bool = False
    elements: int = 0
    key: str = field(default_factory=lambda: secrets.token_hex(8))


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeSettled:
    """A notice that was delivered, or given up."""

    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeDelayed:
    """A notice that is tried again later.

    Attributes:
        key: of the notice.
        tries: that have failed.
        due_at: seconds since the epoch.
        told: the receivers that have it already.
    """

    key: str
    tries: int
    due_at: float
    told: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DueNotice:
    """A stored notice and what has happened to it."""

    notice: Notice
    tries: int
    told: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class DueNotices:
    """The notices that are due, those of each user in turn, and when the next one is.

    Attributes:
        due: at most so many as were asked for.
        next_at: seconds since the epoch.
        waiting: how many of each user wait in all.
    """

    due: list[DueNotice]
    next_at: float | None
    waiting: dict[str, int]


def asked_events(text: str) -> frozenset[str]:
    """The events that a job's field `notify` asks for."""
    words = frozenset(text.split(",")) if text else frozenset()
    return words | frozenset(ALL) if "all" in words else words


def add_notices(connection: Connection, rows: Sequence[Notice]) -> None:
    """Store new notices, which are due at once."""
    new = [{**plain(row), "tries": 0, "due_at": row.at, "told": "[]"} for row in rows]
    for values in new:
        values["user_name"] = values.pop("user")
    add(connection, schema.notices, new)


def settle_notices(connection: Connection, rows: Iterable[NoticeSettled]) -> None:
    """Delete notices."""
    for keys in chunks(row.key for row in rows):
        connection.execute(delete(schema.notices).where(schema.notices.c.key.in_(keys)))


def delay_notices(connection: Connection, rows: Iterable[NoticeDelayed]) -> None:
    """Note that notices have to wait."""
    table = schema.notices
    values = [
        {"b_key": r.key, "tries": r.tries, "due_at": r.due_at, "told": dumps(list(r.told))}
        for r in rows
    ]
    names = ("tries", "due_at", "told")
    statement = update(table).where(table.c.key == bindparam("b_key"))
    connection.execute(statement.values({name: bindparam(name) for name in names}), values)


def due_notices(connection: Connection, now: float, limit: int) -> DueNotices:
    """Read the notices that are due, at most `limit` of them; `now` is seconds since the epoch."""
    table = schema.notices
    turn = func.row_number().over(partition_by=table.c.user_name, order_by=table.c.number)
    ranked = select(table, turn.label("turn")).where(table.c.due_at <= now).subquery()
    query = select(ranked).order_by(ranked.c.turn, ranked.c.number).limit(limit)
    rows = connection.execute(query).mappings().all()
    next_at = select(func.min(table.c.due_at)).where(table.c.due_at > now)
    counted = select(table.c.user_name, func.count()).group_by(table.c.user_name)
    return DueNotices(
        due=[_due(row) for row in rows],
        next_at=connection.execute(next_at).scalar(),
        waiting={row[0]: row[1] for row in connection.execute(counted)},
    )


def oldest_notices(connection: Connection, user: str, count: int) -> list[Notice]:
    """The oldest notices of a user."""
    table = schema.notices
    query = select(table).where(table.c.user_name == user).order_by(table.c.number).limit(count)
    return [_due(row).notice for row in connection.execute(query).mappings()]


def _due(row: Mapping[Any, Any]) -> DueNotice:
    names = ("event", "state", "run", "text", "at", "whole_array", "elements", "key")
    told_of = {name: row[name] for name in names}
    notice = Notice(job=JobId(row["job"]), user=row["user_name"], **told_of)
    told = frozenset(loads(list[str], row["told"]))
    return DueNotice(notice=notice, tries=row["tries"], told=told)
