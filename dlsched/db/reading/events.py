"""Reads of events for an audit: the newest first, in stretches of bounded length."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import ColumnElement, Connection, not_, or_, select

from dlsched.db import schema
from dlsched.db.records import Event
from dlsched.db.rows import Row, of_row, record_of
from dlsched.protocol.messages import JobId, NodeName

STRETCH = 20_000  # rows that one transaction looks at
PARTS = ("daemon", "job", "")  # actors that are no users, beside "node NAME" and "policy NAME"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredEvent:
    """An event and its number in the order of storing."""

    id: int
    event: Event


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFilter:
    """Which events; an empty part allows all.

    Attributes:
        actors: that caused them.
        kinds: of them.
        nodes: that they concern.
        jobs: that they concern.
        since: not before, in seconds since the epoch.
        until: before, in seconds since the epoch.
        parts_too: also events that parts of the cluster caused, where no actor is named.
    """

    actors: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    nodes: tuple[NodeName, ...] = ()
    jobs: tuple[JobId, ...] = ()
    since: float | None = None
    until: float | None = None
    parts_too: bool = False


def read_audit(
    connection: Connection, wanted: AuditFilter, before: int | None, limit: int
) -> tuple[list[StoredEvent], int]:
    """The events of one stretch; see `Reads.audit`."""
    table = schema.events
    if before is None:
        newest = select(table.c.id).order_by(table.c.id.desc()).limit(1)
        before = (connection.execute(newest).scalar() or 0) + 1
    first = before - STRETCH
    if wanted.jobs:
        first = 0  # their index leads to them
    query = (
        select(table)
        .where(table.c.id < before, table.c.id >= first, *_conditions(wanted))
        .order_by(table.c.id.desc())
        .limit(limit)
    )
    found = [stored_event(row) for row in connection.execute(query).mappings()]
    if len(found) == limit:
        return found, found[-1].id
    if wanted.since is not None and first > 0:
        edge = select(table.c.at).where(table.c.id < first).order_by(table.c.id.desc()).limit(1)
        at = connection.execute(edge).scalar()
        if at is None or at < wanted.since:
            return found, 0
    return found, max(first, 0)


def _conditions(wanted: AuditFilter) -> list[ColumnElement[bool]]:
    table = schema.events.c
    named: list[ColumnElement[bool]] = [
        column.in_(values)
        for column, values in (
            (table.actor, wanted.actors),
            (table.kind, wanted.kinds),
            (table.node, wanted.nodes),
            (table.job, wanted.jobs),
        )
        if values
    ]
    if not wanted.actors and not wanted.parts_too:
        parts = (table.actor.in_(PARTS), table.actor.like("node %"), table.actor.like("policy %"))
        named.append(not_(or_(*parts)))
    if wanted.since is not None:
        named.append(table.at >= wanted.since)
    if wanted.until is not None:
        named.append(table.at < wanted.until)
    return named


def stored_event(row: Row) -> StoredEvent:
    """An event from its row."""
    with of_row("events", row["id"]):
        return StoredEvent(id=row["id"], event=record_of(Event, row))
