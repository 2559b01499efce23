"""Stores one transaction: the difference between the touched rows before and after its changes.

Invariant: after `carry_out`, the tables equal the result of `ledger.apply_all` for the same writes.
Derived columns (times, execution time, the state as users see it) are stored with them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import add as add_up
from typing import Any

from sqlalchemy import (
    Boolean,
    Column,
    ColumnElement,
    Connection,
    bindparam,
    case,
    delete,
    exists,
    func,
    select,
    update,
)

from dlsched.db import schema
from dlsched.db.contents import ContentGiven
from dlsched.db.notices import Notice
from dlsched.db.records import Event
from dlsched.db.rows import (
    RunGrowth,
    Values,
    ended_at,
    gpu_rows,
    growth_of,
    job_values,
    member_values,
    node_values,
    orphan_values,
    run_values,
)
from dlsched.db.statements import add, chunks, put
from dlsched.db.submitting import Submission
from dlsched.db.writing.events import transitions
from dlsched.db.writing.excerpt import Excerpt, excerpt
from dlsched.db.writing.notified import notices_of
from dlsched.protocol.json_form import dumps
from dlsched.protocol.ledger import (
    Attach,
    Job,
    Ledger,
    RegisterNode,
    Run,
    Submit,
    Write,
    apply_all,
    judge,
)
from dlsched.protocol.messages import Epoch, JobId


@dataclass(frozen=True, slots=True, kw_only=True)
class Carried:
    """The epoch, the events and the notices of a stored transaction."""

    epoch: Epoch
    events: list[Event]
    notices: list[Notice]


def carry_out(
    connection: Connection,
    epoch: Epoch,
    writes: Sequence[Write],
    at: float,
) -> Carried:
    """Store the changes of some writes; returns the epoch, events and notices that follow.

    Args:
        connection: in the transaction.
        epoch: the leader's epoch.
        writes: the changes.
        at: seconds since the epoch, for display.
    """
    known = excerpt(connection, epoch, writes)
    before, after = known.ledger, apply_all(known.ledger, writes)
    attached = (write.row for write in writes if isinstance(write, Attach))
    submission = Submission(at, (row for row in attached if isinstance(row, ContentGiven)))
    for some in chunks(write for write in writes if isinstance(write, Submit)):
        for write in some:
            submission.take(write, after.jobs[write.job])
        submission.store(connection)
    submission.finish(connection)
    growth, ends = _store_runs(connection, before, after, at)
    _store_jobs(connection, known, after, growth, ends, submission, at)
    _store_nodes(connection, before, after, writes, at)
    _store_orphans(connection, before, after, at)
    if after.next_job != before.next_job:
        counter = update(schema.counters).where(schema.counters.c.name == "next_job")
        connection.execute(counter.values(value=after.next_job))
    if after.epoch != before.epoch:
        row = update(schema.leader).where(schema.leader.c.epoch == before.epoch)
        connection.execute(row.values(epoch=after.epoch))
    asked = known.notify | submission.notify
    return Carried(
        epoch=after.epoch,
        events=transitions(before, after, writes, at),
        notices=notices_of(connection, asked, before, after, at) if asked else [],
    )


# -- runs ------------------------------------------------------------------------------------------

_RUN_FIELDS = (
    *("status", "epoch", "stop", "stop_step", "suspended", "suspension", "gives_way"),
    *("released", "live", "end", "follows", "hand_over"),
)


def _at_least(name: str, earliest: Column[float]) -> ColumnElement[float]:
    """A time of an end, by a node's clock, which may be behind: never before the start."""
    time = bindparam(name, type_=earliest.type)
    return case((earliest > time, earliest), else_=time)


_UPDATE_RUN = (
    update(schema.runs)
    .where(schema.runs.c.run_id == bindparam("b_run_id"))
    .values(
        {name: bindparam(name) for name in _RUN_FIELDS}
        | {
            "released_at": func.coalesce(schema.runs.c.released_at, bindparam("released_at")),
            "ended_at": func.coalesce(
                schema.runs.c.ended_at, _at_least("ended_at", schema.runs.c.released_at)
            ),
        }
    )
)
_UPDATE_MEMBER = (
    update(schema.run_members)
    .where(schema.run_members.c.run_id == bindparam("b_run_id"))
    .where(schema.run_members.c.node == bindparam("b_node"))
    .values(
        {
            name: bindparam(name)
            for name in (
                *("gpus", "boot_id", "since_epoch", "since_revision", "exit", "presumed", "let_go"),
            )
        }
    )
)


def _store_runs(
    connection: Connection, before: Ledger, after: Ledger, at: float
) -> tuple[dict[JobId, RunGrowth], dict[JobId, float]]:
    """Store what has changed of runs; returns what it adds to jobs, and when runs have ended."""
    growth: dict[JobId, RunGrowth] = defaultdict(RunGrowth)
    ends: dict[JobId, float] = {}
    new_runs, new_members, changed, changed_members = [], [], [], []
    for run_id, run in after.runs.items():
        old = before.runs.get(run_id)
        if run is old:
            continue
        so_far = growth[run.key.job]
        more = growth_of(old, run, after.jobs[run.key.job])
        growth[run.key.job] = RunGrowth(*map(add_up, so_far, more))
        ended = at if run.is_over else None
        if run.is_over and old is not None and old.released and not old.is_over:
            ended = ends[run.key.job] = ended_at(run, at)
        values = run_values(run) | {
            "released_at": at if run.released else None,  # an earlier time is kept
            "ended_at": ended,
            "end": _end(run, after) if run.is_over else "",
        }
        if old is None:
            key = {"run_id": run_id, "job": run.key.job, "run": run.key.run, "assigned_at": at}
            new_runs.append(values | key | {"executed_s": 0.0, "gpu_s": 0.0})
        else:
            changed.append(values | {"b_run_id": run_id})
        for position, (node, member) in enumerate(run.members.items()):
            if old is None:
                place = {"run_id": run_id, "node": node, "position": position}
                new_members.append(member_values(member) | place)
            elif member is not old.members[node]:
                place = {"b_run_id": run_id, "b_node": node}
                changed_members.append(member_values(member) | place)
    add(connection, schema.runs, new_runs)
    add(connection, schema.run_members, new_members)
    if changed:
        connection.execute(_UPDATE_RUN, changed)
    if changed_members:
        connection.execute(_UPDATE_MEMBER, changed_members)
    return growth, ends


def _end(run: Run, after: Ledger) -> str:
    """The reason for a run's end, in words."""
    job = after.jobs.get(run.key.job)
    if job is None:
        return ""
    cause, why, _ = judge(run, job)
    return f"{cause.value}: {why}"


# -- jobs ------------------------------------------------------------------------------------------

_JOB = schema.jobs
_UPDATE_JOB = (
    update(_JOB)
    .where(_JOB.c.job == bindparam("b_job"))
    .values(
        {
            name: bindparam(name)
            for name in (
                *("status", "reason", "runs", "failures", "timeouts", "preemptions", "exit"),
                *("gpu_failures", "changed", "state", "live"),
            )
        }
        | {
            "first_started_at": func.coalesce(_JOB.c.first_started_at, bindparam("started")),
            "started_at": func.coalesce(bindparam("started"), _JOB.c.started_at),
            "ended_at": case(
                (
                    bindparam("is_over", type_=Boolean),
                    func.coalesce(_JOB.c.ended_at, _at_least("ended", _JOB.c.started_at)),
                ),
                else_=None,
            ),
            "starts": _JOB.c.starts + bindparam("more_starts"),
            "migrations": _JOB.c.migrations + bindparam("more_migrations"),
            "resizes": _JOB.c.resizes + bindparam("more_resizes"),
        }
    )
)


def _store_jobs(
    connection: Connection,
    known: Excerpt,
    after: Ledger,
    growth: dict[JobId, RunGrowth],
    ends: Mapping[JobId, float],
    submission: Submission,
    at: float,
) -> None:
    changed, lines, gone = [], [], set()
    for number, job in after.jobs.items():
        fresh = number in submission.jobs
        old = known.ledger.jobs.get(number)
        if fresh or job is not old:
            told = job.story[len(old.story) if old is not None and not fresh else 0 :]
            lines += [{"job": number, "line": line} for line in told]
        live = _is_live(job, after)
        if not live and (fresh or number in known.was_live):
            body = submission.bodies.get(number) if fresh else known.bodies.get(number)
            if body is not None:
                gone.add(body)
        was = Job(job=number, request=job.request) if fresh else old
        if number not in growth and (job is was or (fresh and job == was)):
            continue
        more, ended = growth.get(number, RunGrowth()), ends.get(number, at)
        changed.append(_job_row(number, job, more, live, at, ended))
    if changed:
        connection.execute(_UPDATE_JOB, changed)
    add(connection, schema.job_story, lines)
    _forget_environments(connection, gone)


def _job_row(
    number: JobId, job: Job, more: RunGrowth, live: bool, at: float, ended: float
) -> Values:
    return job_values(job) | {
        "b_job": number,
        "live": live,
        "started": at if more.starts else None,
        "is_over": job.status.is_terminal,
        "ended": ended,
        "more_starts": more.starts,
        "more_migrations": more.migrations,
        "more_resizes": more.resizes,
    }


def _is_live(job: Job, ledger: Ledger) -> bool:
    """Whether a leader keeps a job in memory."""
    runs = (ledger.live_run(job.job), ledger.next_run(job.job), ledger.stuck_run(job.job))
    return not job.status.is_terminal or any(run is not None for run in runs)


def _forget_environments(connection: Connection, bodies: set[int]) -> None:
    """Delete the environments of ended jobs, except those that a live job shares."""
    secrets = schema.job_environments
    shared = exists(select(1).where(_JOB.c.body == secrets.c.body, _JOB.c.live))
    for some in chunks(sorted(bodies)):
        connection.execute(delete(secrets).where(secrets.c.body.in_(some), ~shared))


# -- nodes and orphans -----------------------------------------------------------------------------


def _store_nodes(
    connection: Connection, before: Ledger, after: Ledger, writes: Sequence[Write], at: float
) -> None:
    rows, whole = [], []
    kinds = {w.node: w.inventory.gpu_type for w in writes if isinstance(w, RegisterNode)}
    for name, node in after.nodes.items():
        old = before.nodes.get(name)
        if node is old:
            continue
        moved = old is None or (old.status, old.boot_id) != (node.status, node.boot_id)
        rows.append(node_values(node) | {"node": name, "changed_at": at if moved else None})
        fresh = old is None or (node.gpus, node.quarantined) != (old.gpus, old.quarantined)
        if fresh or name in kinds:
            whole.append(node)
    _put_nodes(connection, rows, before, at)
    if not whole:
        return
    table = schema.gpus
    types: dict[tuple[str, str], str] = {}
    for some in chunks([node.name for node in whole]):
        found = connection.execute(select(table).where(table.c.node.in_(some))).mappings()
        types.update({(row["node"], row["uuid"]): row["type"] for row in found})
        connection.execute(delete(table).where(table.c.node.in_(some)))
    for node in whole:
        name, told = node.name, kinds.get(node.name)
        add(
            connection,
            table,
            gpu_rows(node, lambda u, n=name, t=told: types.get((n, u), "") if t is None else t),  # type: ignore[misc]
        )


def _put_nodes(connection: Connection, rows: list[Values], before: Ledger, at: float) -> None:
    new = [row | {"changed_at": at} for row in rows if row["node"] not in before.nodes]
    add(connection, schema.nodes, new)
    table = schema.nodes
    old = [row | {"b_node": row["node"]} for row in rows if row["node"] in before.nodes]
    for row in old:
        del row["node"]
    if old:
        names = tuple(key for key in old[0] if key not in ("b_node", "changed_at"))
        changed_at: Any = func.coalesce(bindparam("changed_at"), table.c.changed_at)
        connection.execute(
            update(table)
            .where(table.c.node == bindparam("b_node"))
            .values({name: bindparam(name) for name in names} | {"changed_at": changed_at}),
            old,
        )


def _store_orphans(connection: Connection, before: Ledger, after: Ledger, at: float) -> None:
    table = schema.orphans
    for place in before.orphans:
        if place not in after.orphans:
            node, run_id = place
            row = delete(table).where(table.c.node == node, table.c.run_id == run_id)
            connection.execute(row)
    for place, orphan in after.orphans.items():
        if orphan is not before.orphans.get(place):
            put(connection, table, [orphan_values(orphan) | {"adopted_at": at}])
    for (node, run_id), record in after.history.items():
        row_ = {"node": node, "run_id": run_id, "record": dumps(record), "at": at}
        put(connection, schema.exit_history, [row_])
