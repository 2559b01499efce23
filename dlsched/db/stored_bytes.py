"""How many bytes the database keeps of each user's jobs: live ones and those that have ended.

They are counted with each submission and each removal, in the same transaction. Environments do
not count: they leave with the end of their job. What users do to jobs again and again counts too,
for the user; the events of a job's own life do not, they are part of its row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from sqlalchemy import ColumnElement, Connection, and_, case, delete, exists, func, select
from sqlalchemy.dialects import postgresql, sqlite

from dlsched.db import schema
from dlsched.db.records import Event
from dlsched.db.statements import chunks, rows_in

ROW_BYTES = 1500  # about what a job takes beside its body: its row, its story and its events
EVENT_BYTES = 300  # about what an event takes beside its text
AGAIN = ("hold", "release", "suspend", "resume", "update", "requeue")  # done as often as one likes
NEW_RUN = "requeue"  # of these, what lets a job have another run, with its rows and its events
_OURS = ("daemon", "job")  # actors that are no users
_PARTS = ("node ", "policy ")  # how the names of other ones begin


def count_bytes(connection: Connection, by_user: Mapping[str, int]) -> None:
    """Add to what the database keeps of users; less than 0: it has become less."""
    table = schema.stored_bytes
    rows = [{"user_name": user, "bytes": more} for user, more in by_user.items() if more]
    if not rows:
        return
    dialect = sqlite if connection.dialect.name == "sqlite" else postgresql
    statement = dialect.insert(table)
    total = table.c.bytes + statement.excluded.bytes
    connection.execute(
        statement.on_conflict_do_update(index_elements=["user_name"], set_={"bytes": total}), rows
    )


def bytes_of_action(kind: str, text: int) -> int:
    """About how many bytes an action of a kind adds, with a text of so many."""
    return (ROW_BYTES if kind == NEW_RUN else EVENT_BYTES) + text


def count_actions(connection: Connection, rows: Iterable[Event]) -> None:
    """Count what users have done again and again, when its events are stored."""
    more: Counter[str] = Counter()
    for row in rows:
        is_ours = row.actor in _OURS or row.actor.startswith(_PARTS)
        if row.job is not None and row.kind in AGAIN and not is_ours:
            more[row.actor] += bytes_of_action(row.kind, len(row.text))
    count_bytes(connection, more)


def bytes_of_actions(connection: Connection, which: ColumnElement[bool]) -> Counter[str]:
    """How many bytes some events count for, of each user."""
    events = schema.events.c
    each = case((events.kind == NEW_RUN, ROW_BYTES), else_=EVENT_BYTES) + func.length(events.text)
    query = (
        select(events.actor, func.sum(each))
        .where(which, events.job.is_not(None), events.kind.in_(AGAIN))
        .where(events.actor.not_in(_OURS), *(~events.actor.startswith(part) for part in _PARTS))
        .group_by(events.actor)
    )
    return Counter({actor: int(total) for actor, total in connection.execute(query)})


def read_stored_bytes(connection: Connection, user: str) -> int:
    """How many bytes the database keeps of a user's jobs."""
    table = schema.stored_bytes
    query = select(table.c.bytes).where(table.c.user_name == user)
    return int(connection.execute(query).scalar() or 0)


def remove_programs(connection: Connection, bodies: Iterable[int]) -> Counter[str]:
    """Delete what some bodies execute, with the scripts that no other body has.

    Returns:
        how many bytes fewer the database keeps of each user.
    """
    programs, scripts = schema.programs, schema.scripts
    fewer: Counter[str] = Counter()
    found = rows_in(
        connection,
        select(programs.c.body, programs.c.user_name, programs.c.script, _BODY_BYTES).join(
            schema.job_bodies, schema.job_bodies.c.body == programs.c.body
        ),
        programs.c.body,
        bodies,
    )
    for row in found:
        fewer[row["user_name"]] += row["bytes"]
    for some in chunks(row["body"] for row in found):
        connection.execute(delete(programs).where(programs.c.body.in_(some)))
    has = (programs.c.user_name == scripts.c.user_name, programs.c.script == scripts.c.digest)
    named = {(row["user_name"], row["script"]) for row in found if row["script"] is not None}
    for user in {user for user, _ in named}:
        for some in chunks(digest for owner, digest in named if owner == user):
            unused = and_(
                scripts.c.user_name == user, scripts.c.digest.in_(some), ~exists().where(*has)
            )
            lengths = select(func.length(scripts.c.content)).where(unused)
            fewer[user] += sum(connection.execute(lengths).scalars())
            connection.execute(delete(scripts).where(unused))
    return fewer


_BODY_BYTES = (
    func.length(schema.job_bodies.c.content) + func.length(schema.programs.c.argv)
).label("bytes")
