"""Stores the rows that are attached to a transaction, one function for each kind.

They are stored after the protocol's changes, so that a row may name a job that the same transaction
submits.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from sqlalchemy import Connection, bindparam, case, delete, select, update

from dlsched.core.errors import InvariantBroken
from dlsched.core.sums import ordered_sum
from dlsched.db import records, schema
from dlsched.db.checkpoints import (
    CheckpointsMarked,
    Unsaved,
    forget_unsaved,
    mark_checkpoints,
    set_unsaved,
)
from dlsched.db.contents import ContentGiven, environment_text
from dlsched.db.gpu_work import GpuWork, add_gpu_work
from dlsched.db.notices import (
    Notice,
    NoticeDelayed,
    NoticeSettled,
    add_notices,
    delay_notices,
    settle_notices,
)
from dlsched.db.retention import JobsRemoved, LinesRemoved, remove_jobs, remove_lines
from dlsched.db.rows import of_row
from dlsched.db.rungs import RungReached, set_reached
from dlsched.db.served import TIMES, JobServed, RunServed, set_received, set_served
from dlsched.db.speeds import SpeedsForgotten, SpeedsSet, forget_speeds, set_speeds
from dlsched.db.statements import add, put
from dlsched.db.stored_bytes import count_actions
from dlsched.db.task_runs import TasksEnded, TasksGiven, set_ended, set_given
from dlsched.db.tenant_rows import remove_tenants, replace_configured, set_tenants
from dlsched.db.trainings import CurvesRow, TrainingRow, set_trainings
from dlsched.db.usage import UsedByOwner, set_usage
from dlsched.protocol.json_form import dumps, plain
from dlsched.protocol.messages import Epoch, NodeName, RunId

COLUMNS = {
    "name": "name",
    "account": "account",
    "vc": "vc",
    "partition": "partition_name",
    "notify": "notify",
}  # of fields that the database looks at


@dataclass(frozen=True, slots=True)
class _Place:
    """The transaction of the rows: its connection, epoch and time."""

    connection: Connection
    epoch: Epoch
    at: float


def store_attached(connection: Connection, epoch: Epoch, rows: Iterable[object], at: float) -> None:
    """Store attached rows, all of one kind with one statement.

    Args:
        connection: in the transaction.
        epoch: the leader's epoch.
        rows: records of any kind in `dlsched.db.records`.
        at: seconds since the epoch, for display.
    """
    place = _Place(connection, epoch, at)
    kinds: dict[type, list[Any]] = defaultdict(list)
    for row in rows:
        if type(row) not in _STORES:
            raise InvariantBroken(f"{type(row).__name__} has no table")
        kinds[type(row)].append(row)
    for kind, some in kinds.items():
        _STORES[kind](place, some)


def _events(place: _Place, rows: Sequence[records.Event]) -> None:
    add(place.connection, schema.events, plain(rows))
    count_actions(place.connection, rows)
    cancels = [r for r in rows if r.kind in ("cancel", "cancelled") and r.job is not None]
    if cancels:
        jobs = schema.jobs
        place.connection.execute(
            update(jobs)
            .where(jobs.c.job == bindparam("b_job"))
            .values(cancelled_by=bindparam("by")),
            [{"b_job": row.job, "by": row.actor} for row in cancels],
        )


def _holds(place: _Place, rows: Sequence[records.HoldChanged]) -> None:
    jobs = schema.jobs
    place.connection.execute(
        update(jobs).where(jobs.c.job == bindparam("b_job")).values(held=bindparam("now")),
        [{"b_job": row.job, "now": row.held} for row in rows],
    )


def _fields(place: _Place, rows: Sequence[records.FieldsChanged]) -> None:
    jobs = schema.jobs
    for row in rows:
        known = place.connection.execute(
            select(jobs.c.updated).where(jobs.c.job == row.job)
        ).scalar_one_or_none()
        with of_row("jobs", row.job):
            fields = json.loads(known) if known else {}
        fields |= plain(row.fields)
        columns = {COLUMNS[n]: v for n, v in row.fields.items() if n in COLUMNS}
        values: dict[str, object] = {"updated": json.dumps(fields), **columns}
        place.connection.execute(update(jobs).where(jobs.c.job == row.job).values(**values))


def _environments(place: _Place, rows: Sequence[records.EnvironmentGiven]) -> None:
    jobs = schema.jobs
    for row in rows:
        body = place.connection.execute(select(jobs.c.body).where(jobs.c.job == row.job))
        key = body.scalar_one_or_none()
        if key is not None and row.variables:
            values = {"body": key, "variables": environment_text(row.variables)}
            put(place.connection, schema.job_environments, [values])


def _rounds(place: _Place, rows: Sequence[records.RoundDone]) -> None:
    add(place.connection, schema.rounds, plain(rows))


def _policy_set(place: _Place, rows: Sequence[records.PolicySet]) -> None:
    put(place.connection, schema.policy, [{"id": 1, "chosen": dumps(rows[-1])}])


def _policy_state(place: _Place, rows: Sequence[records.PolicyState]) -> None:
    put(place.connection, schema.policy, [{"id": 1, "state": rows[-1].state}])


def _predictions(place: _Place, rows: Sequence[records.Prediction]) -> None:
    add(place.connection, schema.predictions, plain(rows))


def _progress(place: _Place, rows: Sequence[records.Progress]) -> None:
    latest: dict[RunId, dict[str, Any]] = {}
    for row in rows:
        # a value that is not reported again is kept
        given = {name: value for name, value in plain(row).items() if value is not None}
        latest[row.run_id] = latest.get(row.run_id, {}) | given | {"at": place.at}
    alike: dict[frozenset[str], list[dict[str, Any]]] = {}
    for values in latest.values():  # a statement has the same columns for all its rows
        alike.setdefault(frozenset(values), []).append(values)
    for some in alike.values():
        put(place.connection, schema.progress, some)


def _checkpoints(place: _Place, rows: Sequence[records.CheckpointCommitted]) -> None:
    add(place.connection, schema.checkpoints, plain(rows))
    forget_unsaved(place.connection, rows)


def _described(place: _Place, rows: Sequence[records.NodeDescribed]) -> None:
    latest = {row.node: {"node": row.node, "facts": row.facts} for row in rows}
    put(place.connection, schema.node_descriptions, list(latest.values()))


def _heard(place: _Place, rows: Sequence[records.NodesHeard]) -> None:
    latest: dict[NodeName, float] = {}
    for row in rows:
        latest |= row.heard_at
    values = [{"node": node, "epoch": place.epoch, "heard_at": at} for node, at in latest.items()]
    put(place.connection, schema.node_leases, values)


def _drained(place: _Place, rows: Sequence[records.Drained]) -> None:
    table = schema.drains
    for row in rows:
        if row.drained:
            values = plain(row)
            del values["drained"]
            put(place.connection, table, [values])
        else:
            place.connection.execute(delete(table).where(table.c.node == row.node))


def _clock(place: _Place, rows: Sequence[records.ClockMoved]) -> None:
    for row, (table, names) in product(
        rows,
        (
            (schema.jobs, ("submitted_at", "first_started_at", "started_at")),
            (schema.runs, ("assigned_at", "released_at")),
        ),
    ):
        moved = {name: table.c[name] + row.by_s for name in names}
        if row.since < math.inf:
            is_new = {name: table.c[name].between(row.since, row.until) for name in names}
            moved = {name: case((is_new[name], table.c[name]), else_=moved[name]) for name in names}
        present = update(table).where(table.c.live, table.c.ended_at.is_(None))
        place.connection.execute(present.values(moved))
    by_s = ordered_sum(row.by_s for row in rows)
    served, usage = schema.served, schema.usage
    moved = {name: served.c[name] + by_s for name in (*TIMES, "not_before")}
    live = select(schema.jobs.c.job).where(schema.jobs.c.live)
    place.connection.execute(update(served).where(served.c.job.in_(live)).values(moved))
    place.connection.execute(update(usage).values(at=usage.c.at + by_s))


_STORES: Mapping[type, Callable[[_Place, Any], None]] = {
    records.Event: _events,
    records.HoldChanged: _holds,
    records.EnvironmentGiven: _environments,
    ContentGiven: lambda place, rows: None,  # stored with the body
    records.FieldsChanged: _fields,
    records.RoundDone: _rounds,
    records.PolicySet: _policy_set,
    records.PolicyState: _policy_state,
    records.Prediction: _predictions,
    records.Progress: _progress,
    records.CheckpointCommitted: _checkpoints,
    CheckpointsMarked: lambda place, rows: mark_checkpoints(place.connection, rows),
    Unsaved: lambda place, rows: set_unsaved(place.connection, rows),
    records.ClockMoved: _clock,
    JobServed: lambda place, rows: set_served(place.connection, rows),
    RunServed: lambda place, rows: set_received(place.connection, rows),
    UsedByOwner: lambda place, rows: set_usage(place.connection, rows),
    records.NodeDescribed: _described,
    records.NodesHeard: _heard,
    records.Drained: _drained,
    records.TenantSet: lambda place, rows: set_tenants(place.connection, rows),
    records.TenantRemoved: lambda place, rows: remove_tenants(place.connection, rows),
    SpeedsSet: lambda place, rows: set_speeds(place.connection, rows),
    SpeedsForgotten: lambda place, rows: forget_speeds(place.connection, rows),
    TrainingRow: lambda place, rows: set_trainings(place.connection, rows),
    CurvesRow: lambda place, rows: set_trainings(place.connection, rows),
    Notice: lambda place, rows: add_notices(place.connection, rows),
    NoticeSettled: lambda place, rows: settle_notices(place.connection, rows),
    NoticeDelayed: lambda place, rows: delay_notices(place.connection, rows),
    RungReached: lambda place, rows: set_reached(place.connection, rows),
    TasksGiven: lambda place, rows: set_given(place.connection, rows),
    TasksEnded: lambda place, rows: set_ended(place.connection, rows),
    GpuWork: lambda place, rows: add_gpu_work(place.connection, rows),
    JobsRemoved: lambda place, rows: remove_jobs(place.connection, rows),
    LinesRemoved: lambda place, rows: remove_lines(place.connection, rows),
    records.TenantsConfigured: lambda place, rows: replace_configured(place.connection, rows),
}
