"""Rows that travel with a transaction, one function each.

They are stored after the protocol's changes, in their order, so that a row may speak of a job that
the same transaction submits.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, bindparam, delete, select, update

from dlsched.core.errors import InvariantBroken
from dlsched.db import codec, schema
from dlsched.db.records import (
    CheckpointCommitted,
    Drained,
    Event,
    FieldsChanged,
    HoldChanged,
    NodeDescribed,
    NodesHeard,
    PolicySet,
    PolicyState,
    Prediction,
    Progress,
    RoundDone,
    TenantRemoved,
    TenantsConfigured,
    TenantSet,
)
from dlsched.db.rows import of_row
from dlsched.db.speed_rows import forget_speeds, set_speeds
from dlsched.db.speeds import SpeedsForgotten, SpeedsSet
from dlsched.db.statements import add, put
from dlsched.db.tenant_rows import remove_tenants, replace_configured, set_tenants
from dlsched.db.trainings import TrainingTold, keep_trainings
from dlsched.protocol.messages import Epoch, NodeName, RunId

__all__ = ["store_attached"]

COLUMNS = {
    "name": "name",
    "account": "account",
    "vc": "vc",
    "partition": "partition_name",
}  # that lists filter by


@dataclass(frozen=True, slots=True)
class _Place:
    """Where and when rows are stored."""

    connection: Connection
    epoch: Epoch
    at: float


def store_attached(connection: Connection, epoch: Epoch, rows: Iterable[object], at: float) -> None:
    """Store attached rows; neighbours of one kind in one statement."""
    place = _Place(connection, epoch, at)
    kinds: dict[type, list[Any]] = defaultdict(list)
    for row in rows:
        if type(row) not in _STORES:
            raise InvariantBroken(f"{type(row).__name__} has no table")
        kinds[type(row)].append(row)
    for kind, some in kinds.items():
        _STORES[kind](place, some)


def _events(place: _Place, rows: Sequence[Event]) -> None:
    add(
        place.connection,
        schema.events,
        [
            {
                "at": row.at,
                "kind": row.kind,
                "actor": row.actor,
                "job": row.job,
                "run_id": row.run_id,
                "node": row.node,
                "text": row.text,
            }
            for row in rows
        ],
    )
    cancels = [r for r in rows if r.kind in ("cancel", "cancelled") and r.job is not None]
    if cancels:
        jobs = schema.jobs
        place.connection.execute(
            update(jobs)
            .where(jobs.c.job == bindparam("b_job"))
            .values(cancelled_by=bindparam("by")),
            [{"b_job": row.job, "by": row.actor} for row in cancels],
        )


def _holds(place: _Place, rows: Sequence[HoldChanged]) -> None:
    jobs = schema.jobs
    place.connection.execute(
        update(jobs).where(jobs.c.job == bindparam("b_job")).values(held=bindparam("now")),
        [{"b_job": row.job, "now": row.held} for row in rows],
    )


def _fields(place: _Place, rows: Sequence[FieldsChanged]) -> None:
    jobs = schema.jobs
    for row in rows:
        known = place.connection.execute(
            select(jobs.c.updated).where(jobs.c.job == row.job)
        ).scalar_one_or_none()
        with of_row("jobs", row.job):
            fields = json.loads(known) if known else {}
        fields |= codec.encode(row.fields)
        columns = {COLUMNS[n]: v for n, v in row.fields.items() if n in COLUMNS}
        values: dict[str, object] = {"updated": json.dumps(fields), **columns}
        place.connection.execute(update(jobs).where(jobs.c.job == row.job).values(**values))


def _rounds(place: _Place, rows: Sequence[RoundDone]) -> None:
    add(place.connection, schema.rounds, [codec.encode(row) for row in rows])


def _policy_set(place: _Place, rows: Sequence[PolicySet]) -> None:
    put(place.connection, schema.policy, [{"id": 1, "chosen": codec.dumps(rows[-1])}])


def _policy_state(place: _Place, rows: Sequence[PolicyState]) -> None:
    put(place.connection, schema.policy, [{"id": 1, "state": rows[-1].state}])


def _predictions(place: _Place, rows: Sequence[Prediction]) -> None:
    add(place.connection, schema.predictions, [codec.encode(row) for row in rows])


def _progress(place: _Place, rows: Sequence[Progress]) -> None:
    latest: dict[RunId, dict[str, Any]] = {}
    for row in rows:  # what a run does not say again stands
        latest[row.run_id] = latest.get(row.run_id, {}) | codec.encode(row) | {"at": place.at}
    alike: dict[frozenset[str], list[dict[str, Any]]] = {}
    for values in latest.values():  # a statement has the same columns for all its rows
        alike.setdefault(frozenset(values), []).append(values)
    for some in alike.values():
        put(place.connection, schema.progress, some)


def _checkpoints(place: _Place, rows: Sequence[CheckpointCommitted]) -> None:
    values = [{"executed_s": 0.0} | codec.encode(row) for row in rows]  # as plain as can be
    add(place.connection, schema.checkpoints, values)


def _described(place: _Place, rows: Sequence[NodeDescribed]) -> None:
    latest = {row.node: {"node": row.node, "facts": row.facts} for row in rows}
    put(place.connection, schema.node_descriptions, list(latest.values()))


def _heard(place: _Place, rows: Sequence[NodesHeard]) -> None:
    latest: dict[NodeName, float] = {}
    for row in rows:
        latest |= row.heard_at
    values = [{"node": node, "epoch": place.epoch, "heard_at": at} for node, at in latest.items()]
    put(place.connection, schema.node_leases, values)


def _drained(place: _Place, rows: Sequence[Drained]) -> None:
    table = schema.drains
    for row in rows:
        if row.drained:
            values = {"by_at": None} | codec.encode(row)
            del values["drained"]
            put(place.connection, table, [values])
        else:
            place.connection.execute(delete(table).where(table.c.node == row.node))


_STORES: Mapping[type, Callable[[_Place, Any], None]] = {
    Event: _events,
    HoldChanged: _holds,
    FieldsChanged: _fields,
    RoundDone: _rounds,
    PolicySet: _policy_set,
    PolicyState: _policy_state,
    Prediction: _predictions,
    Progress: _progress,
    CheckpointCommitted: _checkpoints,
    NodeDescribed: _described,
    NodesHeard: _heard,
    Drained: _drained,
    TenantSet: lambda place, rows: set_tenants(place.connection, rows),
    TenantRemoved: lambda place, rows: remove_tenants(place.connection, rows),
    SpeedsSet: lambda place, rows: set_speeds(place.connection, rows),
    SpeedsForgotten: lambda place, rows: forget_speeds(place.connection, rows),
    TrainingTold: lambda place, rows: keep_trainings(place.connection, rows),
    TenantsConfigured: lambda place, rows: replace_configured(place.connection, rows),
}
