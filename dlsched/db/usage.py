"""Decayed usage of owners, brought up to date in the transaction in which a run ends.

A row has the GPU-seconds of an owner's ended runs as they counted at a time. So a new daemon reads
one row for each owner, and adds the runs that are live.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, select, tuple_

from dlsched.core.sharing.decayed_usage import Owner, faded, held_for
from dlsched.db import schema
from dlsched.db.rows import record_of
from dlsched.db.statements import chunks, put, rows_in


@dataclass(frozen=True, slots=True, kw_only=True)
class UsedByOwner:
    """What the ended runs of an owner have used.

    Attributes:
        user_name: of the jobs.
        account: of the jobs; empty: none.
        vc: of the jobs; empty: none.
        gpu_s: GPU-seconds as they counted at `at`.
        at: seconds since the epoch.
    """

    user_name: str
    account: str
    vc: str
    gpu_s: float
    at: float


def charge(connection: Connection, run_ids: Sequence[str], half_life_s: float) -> None:
    """Add runs that have ended just now to what their owners have used.

    The GPU time of a run that was suspended meanwhile is spread evenly over its time.
    """
    if not run_ids:
        return
    jobs, runs = schema.jobs.c, schema.runs.c
    begun = select(
        jobs.user_name, jobs.account, jobs.vc, runs.gpu_s, runs.assigned_at, runs.released_at,
        runs.ended_at,
    ).join_from(schema.runs, schema.jobs, runs.job == jobs.job)  # fmt: skip
    ended: dict[Owner, list[Any]] = defaultdict(list)
    for row in rows_in(connection, begun, runs.run_id, run_ids):
        ended[row["user_name"], row["account"] or "", row["vc"] or ""].append(row)
    known = _known(connection, list(ended))
    rows = []
    for owner, some in ended.items():
        before = known.get(owner)
        at = max(row["ended_at"] for row in some)
        used = 0.0
        if before is not None:
            at = max(at, before.at)
            used = before.gpu_s * float(faded(at - before.at, half_life_s))
        for row in some:
            begin = row["assigned_at"] if row["released_at"] is None else row["released_at"]
            took = row["ended_at"] - begin
            counts = float(held_for(took, half_life_s)) / took if took > 0 else 1.0
            used += row["gpu_s"] * counts * float(faded(at - row["ended_at"], half_life_s))
        user, account, vc = owner
        rows.append({"user_name": user, "account": account, "vc": vc, "gpu_s": used, "at": at})
    put(connection, schema.usage, rows)


def _known(connection: Connection, owners: Sequence[Owner]) -> dict[Owner, UsedByOwner]:
    table = schema.usage
    key = tuple_(table.c.user_name, table.c.account, table.c.vc)
    found: dict[Owner, UsedByOwner] = {}
    for some in chunks(owners, 100):
        for row in connection.execute(select(table).where(key.in_(some))).mappings():
            found[row["user_name"], row["account"], row["vc"]] = record_of(UsedByOwner, row)
    return found


def read_usage(connection: Connection) -> tuple[UsedByOwner, ...]:
    """What the ended runs of all owners have used."""
    table = schema.usage
    query = select(table).order_by(*table.primary_key)
    return tuple(record_of(UsedByOwner, row) for row in connection.execute(query).mappings())
