"""The part of the ledger that some writes read or change, fetched from the tables.

Only `ledger.apply` defines what a change means; the store has no second definition in SQL. It
fetches the rows that the writes name, and the rows that these need, as a small ledger. Then the
protocol applies the writes, and the store saves the difference.

Invariant: the small ledger contains every row that `apply` may read for these writes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, select

from dlsched.db import schema
from dlsched.db.notices import Notify
from dlsched.db.reading.loading import members_of, nodes_of, runs_from
from dlsched.db.rows import Row, job_of, orphan_of
from dlsched.db.statements import rows_in
from dlsched.protocol.ledger import Ledger, Node, Orphan, Run, RunStatus
from dlsched.protocol.ledger import writes as change
from dlsched.protocol.messages import Epoch, JobId, NodeName, RunId


@dataclass(slots=True)
class _Named:
    """The keys that some writes name."""

    submitted: set[JobId] = field(default_factory=set)
    jobs: set[JobId] = field(default_factory=set)
    runs: set[RunId] = field(default_factory=set)
    of_orphans: set[JobId] = field(default_factory=set)  # with all their runs
    nodes: set[NodeName] = field(default_factory=set)
    whole_nodes: set[NodeName] = field(default_factory=set)  # with their GPUs
    orphans: set[tuple[NodeName, RunId]] = field(default_factory=set)


def _named(writes: Iterable[change.Write]) -> _Named:  # noqa: PLR0912  # one case a field
    """The keys in some writes, found by field name, so that a new kind of write needs no code."""
    found = _Named()
    for write in writes:
        if isinstance(write, change.Attach):
            continue
        if isinstance(write, change.Submit):
            found.submitted.add(write.job)
            continue
        value: Any = write
        if (job := getattr(value, "job", None)) is not None:
            found.jobs.add(job)
        if (run_id := getattr(value, "run_id", None)) is not None:
            found.runs.add(run_id)
        if (node := getattr(value, "node", None)) is not None:
            found.nodes.add(node)
        for part in ("exit", "held"):
            if (known := getattr(value, part, None)) is not None:
                found.jobs.add(known.key.job)
        if (key := getattr(value, "key", None)) is not None:
            found.jobs.add(key.job)
        found.nodes.update(share.node for share in getattr(value, "shares", ()))
        if isinstance(write, change.RegisterNode | change.Quarantine):
            found.whole_nodes.add(write.node)
        if isinstance(write, change.Adopt):
            found.orphans.add((write.node, write.held.key.run_id))
        if isinstance(write, change.OrphanOver):
            found.orphans.add((write.node, write.run_id))
            if write.exit is not None:
                found.of_orphans.add(write.exit.key.job)
    return found


@dataclass(slots=True)
class Excerpt:
    """A small ledger, with the bodies of its jobs, those that were live, and what these notify."""

    ledger: Ledger
    bodies: dict[JobId, int | None]
    was_live: set[JobId]
    notify: dict[JobId, Notify]


def excerpt(connection: Connection, epoch: Epoch, writes: Sequence[change.Write]) -> Excerpt:
    """The part of the ledger that some writes need."""
    named = _named(writes)
    orphans = _orphans(connection, named)
    for orphan in orphans.values():
        named.jobs.add(orphan.held.key.job)
        named.of_orphans.add(orphan.held.key.job)
    runs = _runs(connection, named)
    named.jobs.update(run.key.job for run in runs.values())
    named.jobs -= named.submitted
    for run in runs.values():
        named.nodes.update(run.members)
    rows = _job_rows(connection, named)
    counter = select(schema.counters.c.value).where(schema.counters.c.name == "next_job")
    ledger = Ledger(
        epoch=epoch,
        next_job=JobId(connection.execute(counter).scalar_one()),
        jobs={JobId(row["job"]): job_of(row) for row in rows},
        runs=runs,
        nodes=_nodes(connection, named),
        orphans=orphans,
    )
    return Excerpt(
        ledger,
        bodies={JobId(row["job"]): row["body"] for row in rows},
        was_live={JobId(row["job"]) for row in rows if row["live"]},
        notify={
            JobId(row["job"]): Notify(row["notify"], row["array_job"])
            for row in rows
            if row["notify"]
        },
    )


def _orphans(connection: Connection, named: _Named) -> dict[tuple[NodeName, RunId], Orphan]:
    if not named.orphans:
        return {}
    table = schema.orphans
    ids = {run_id for _, run_id in named.orphans}
    rows = rows_in(connection, select(table), table.c.run_id, ids)
    found = (orphan_of(row) for row in rows)
    return {(o.node, o.held.key.run_id): o for o in found}


def _runs(connection: Connection, named: _Named) -> dict[RunId, Run]:
    """The named runs, the live runs of their jobs, and all runs after a named ended one."""
    if not (named.runs or named.jobs):
        return {}
    table = schema.runs
    rows: dict[str, Row] = {}
    for row in rows_in(connection, select(table), table.c.run_id, named.runs):
        rows[row["run_id"]] = row
    first: dict[int, int] = {}  # of a job: the lowest run number that matters
    for row in rows.values():
        if row["status"] == RunStatus.OVER.value:
            first[row["job"]] = min(row["run"], first.get(row["job"], row["run"]))
    jobs = (named.jobs | {row["job"] for row in rows.values()}) - named.submitted
    live = select(table).where(table.c.live)
    for row in rows_in(connection, live, table.c.job, jobs):
        rows[row["run_id"]] = row
    first.update(dict.fromkeys(named.of_orphans - named.submitted, 0))
    for job, number in first.items():
        late = select(table).where(table.c.job == job, table.c.run >= number)
        for row in connection.execute(late).mappings():
            rows[row["run_id"]] = row
    ordered = sorted(rows.values(), key=lambda row: (row["job"], row["run"]))
    members = members_of(connection, [row["run_id"] for row in ordered])
    return {run.key.run_id: run for run in runs_from(ordered, members)}


def _job_rows(connection: Connection, named: _Named) -> list[Row]:
    table = schema.jobs
    columns = (
        table.c.job,
        table.c.request,
        table.c.request_id,
        table.c.user_name,
        table.c.status,
        table.c.reason,
        table.c.runs,
        table.c.failures,
        table.c.timeouts,
        table.c.gpu_failures,
        table.c.preemptions,
        table.c.exit,
        table.c.changed,
        table.c.body,
        table.c.live,
        table.c.notify,
        table.c.array_job,
    )
    return list(rows_in(connection, select(*columns), table.c.job, named.jobs))


def _nodes(connection: Connection, named: _Named) -> dict[NodeName, Node]:
    partly = nodes_of(connection, named.nodes - named.whole_nodes, gpus=False)
    whole = nodes_of(connection, named.whole_nodes, gpus=True)
    return {**partly, **whole}
