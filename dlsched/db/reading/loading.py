"""Loads what a new leader needs: every live job and run, and all nodes and orphans.

A job is live while it has not ended or has a run that is not over. Ended jobs stay in the database
and are read on request.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, get_type_hints

from sqlalchemy import Connection, func, select

from dlsched.core.service_clock import NEW, Account, Received
from dlsched.db import schema
from dlsched.db.checkpoints import KEPT, Unsaved, read_borrowed, read_unsaved
from dlsched.db.contents import ContentSizes, JobContent
from dlsched.db.records import (
    ArrayShape,
    CheckpointCommitted,
    Drained,
    JobBody,
    JobSpec,
    PolicySet,
    Progress,
    TenantSet,
)
from dlsched.db.rows import Row, job_of, member_of, node_of, of_row, orphan_of, record_of, run_of
from dlsched.db.served import JobServed, read_received, read_served
from dlsched.db.speeds import SpeedRow, read_speeds
from dlsched.db.statements import rows_in
from dlsched.db.tenant_rows import read_tenants
from dlsched.db.trainings import CurvesRow, TrainingRow, read_trainings
from dlsched.db.usage import UsedByOwner, read_usage
from dlsched.protocol.json_form import loads, value_of
from dlsched.protocol.ledger import Job, Ledger, Member, Node, Request, Run
from dlsched.protocol.messages import Epoch, JobId, NodeName, RequestId, RunId

UNCHANGED: Mapping[str, Any] = MappingProxyType({})  # one object for the many jobs


@dataclass(slots=True, kw_only=True)
class JobFacts:
    """The facts of a job beside the ledger's row; its wall-clock times are for display."""

    job: JobId
    held: str = ""  # "", "user", "admin", "launch"
    updated: Mapping[str, Any] = field(default_factory=lambda: UNCHANGED)  # since submission
    submitted_at: float = 0.0
    first_started_at: float | None = None
    started_at: float | None = None  # of the latest run
    ended_at: float | None = None
    starts: int = 0
    preemptions: int = 0
    migrations: int = 0
    resizes: int = 0
    failures: int = 0
    cancelled_by: str = ""
    checkpoint: CheckpointCommitted | None = None  # the newest
    progress: Progress | None = None  # of the latest run with any
    served: JobServed | None = None  # what it has received; None: it has had no run
    received: tuple[RunId, Received] | None = None  # by its latest run
    moved_s: float = 0.0  # by which the times have moved since the spec was read; see ClockMoved

    @property
    def account(self) -> Account:
        """What it has received in segments that are over."""
        return NEW if self.served is None else self.served.account

    @property
    def executed_s(self) -> float:
        """Seconds on GPUs, in segments that are over."""
        return self.account.held_s

    @property
    def gpu_s(self) -> float:
        """GPU-seconds, in segments that are over."""
        return self.account.attained

    @property
    def starting_s(self) -> float:
        """Seconds that its starts have taken which were measured, its present one included."""
        return self.account.restart_s

    @property
    def restart_s(self) -> float | None:
        """Their mean; None: none was measured."""
        count = 0 if self.served is None else self.served.measured_starts
        return self.starting_s / count if count else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """Everything with which a leader begins."""

    ledger: Ledger
    jobs: Mapping[JobId, JobFacts]
    run_times: Mapping[RunId, tuple[float, float | None]]  # assigned, released
    policy: PolicySet | None = None
    policy_state: bytes | None = None
    drained: Mapping[NodeName, Drained] = field(default_factory=dict)
    nodes_described: Mapping[NodeName, str] = field(default_factory=dict)
    heard_at: Mapping[NodeName, float] = field(default_factory=dict)
    round_number: int = 0
    tenants: tuple[TenantSet, ...] = ()
    speeds: tuple[SpeedRow, ...] = ()
    trainings: tuple[TrainingRow, ...] = ()
    curves: tuple[CurvesRow, ...] = ()
    unsaved: tuple[Unsaved, ...] = ()
    usage: tuple[UsedByOwner, ...] = ()
    borrowed: Mapping[JobId, tuple[JobId, str]] = field(default_factory=dict)  # checkpoints


# -- parts that other reads use, too ---------------------------------------------------------------


def members_of(connection: Connection, run_ids: Sequence[str]) -> dict[str, list[Member]]:
    """The members of some runs in the order of their layout."""
    table = schema.run_members
    rows = rows_in(connection, select(table), table.c.run_id, run_ids)
    rows.sort(key=lambda row: row["position"])
    found: dict[str, list[Member]] = defaultdict(list)
    for row in rows:
        found[row["run_id"]].append(member_of(row))
    return found


def runs_from(rows: Iterable[Row], members: Mapping[str, list[Member]]) -> Iterator[Run]:
    """Runs of rows and members."""
    for row in rows:
        yield run_of(row, members.get(row["run_id"], ()))


def nodes_of(
    connection: Connection, names: Iterable[str] | None, *, gpus: bool = True
) -> dict[NodeName, Node]:
    """Some nodes, or all."""
    table, devices = schema.nodes, schema.gpus
    on: dict[str, list[Row]] = defaultdict(list)
    if names is None:
        rows: Sequence[Row] = connection.execute(select(table)).mappings().all()
        found: Sequence[Row] = connection.execute(select(devices)).mappings().all()
    else:
        names = list(names)
        rows = rows_in(connection, select(table), table.c.node, names)
        found = rows_in(connection, select(devices), devices.c.node, names) if gpus else ()
    for gpu in found:
        on[gpu["node"]].append(gpu)
    return {NodeName(row["node"]): node_of(row, on[row["node"]]) for row in rows}


def read_bodies(
    connection: Connection, ids: Iterable[int], *, with_sizes: bool = False
) -> dict[int, tuple[JobBody, int]]:
    """Job bodies with their dependencies, and how many bytes each has with what it executes.

    Args:
        connection: to read from.
        ids: of the bodies.
        with_sizes: whether environments count, which still exist; else they are not looked at.
    """
    wanted = sorted(set(ids))
    bodies, needs, secrets = schema.job_bodies, schema.dependencies, schema.job_environments
    lengths: dict[int, int] = {}
    if with_sizes:
        length = func.length(secrets.c.variables).label("length")
        rows = rows_in(connection, select(secrets.c.body, length), secrets.c.body, wanted)
        lengths = {row["body"]: row["length"] for row in rows}
    waits: dict[int, list[Row]] = defaultdict(list)
    for row in rows_in(connection, select(needs), needs.c.body, wanted):
        waits[row["body"]].append(row)
    found: dict[int, tuple[JobBody, int]] = {}
    for row in rows_in(connection, select(bodies), bodies.c.body, wanted):
        with of_row("job_bodies", row["body"]):
            body = _body_of(row, waits.get(row["body"], ()))
            size = ContentSizes().of(body, JobContent()) + row["program_bytes"]
            found[row["body"]] = body, size + lengths.get(row["body"], 0)
    return found


def _body_of(row: Row, waits: Sequence[Row]) -> JobBody:
    """A body of its rows."""
    asked = json.loads(row["content"])
    asked |= {
        "program": sys.intern(row["program"]),
        "seal": sys.intern(row["seal"]),
        "dependencies": [
            {
                "kind": line["kind"],
                "job": line["on_job"],
                "delay_s": line["delay_s"],
                "or_next": bool(line["or_next"]),
            }
            for line in sorted(waits, key=lambda line: int(line["position"]))
        ],
    }
    return value_of(JobBody, asked, exact=True)


def read_arrays(connection: Connection, ids: Iterable[int]) -> dict[int, ArrayShape]:
    """Shapes of arrays; their elements share one."""
    table = schema.arrays
    found = {}
    for row in rows_in(connection, select(table), table.c.array, sorted(set(ids))):
        with of_row("arrays", row["array"]):
            found[row["array"]] = loads(ArrayShape, row["shape"], exact=True)
    return found


def read_jobs(
    connection: Connection, rows: Sequence[Row], *, with_sizes: bool = False
) -> dict[JobId, Job]:
    """Whole jobs with spec and story, in the order of their rows.

    Args:
        connection: to read from.
        rows: of the table of jobs.
        with_sizes: whether `JobSpec.content_bytes` is to have the environments, too.
    """
    ids = [row["body"] for row in rows if row["body"] is not None]
    bodies = read_bodies(connection, ids, with_sizes=with_sizes)
    shapes = read_arrays(connection, (r["array"] for r in rows if r["array"] is not None))
    table = schema.job_story
    story: dict[int, list[str]] = defaultdict(list)
    lines = rows_in(connection, select(table), table.c.job, [row["job"] for row in rows])
    for line in sorted(lines, key=lambda line: line["id"]):
        story[line["job"]].append(line["line"])
    found = {}
    for row in rows:
        spec = None
        if row["body"] is not None:
            with of_row("jobs", row["job"]):
                (body, size), array = bodies[row["body"]], shapes.get(row["array"])
                spec = JobSpec(
                    body=body,
                    user=row["spec_user"],
                    uid=row["uid"],
                    submitted_at=row["submitted_at"],
                    array=array,
                    index=row["array_index"],
                    content_bytes=size
                    if array is None
                    else (size + array.short_task_bytes) // len(array.tasks),
                )
        found[JobId(row["job"])] = job_of(row, spec=spec, story=story[row["job"]])
    return found


_HINTS = get_type_hints(Request) | get_type_hints(JobBody)


def updated_fields(text: str | None) -> dict[str, Any]:
    """The changed fields of a body, by name."""
    if text is None:
        return {}
    return {
        name: value_of(_HINTS.get(name, object), value, exact=True)
        for name, value in json.loads(text).items()
    }


def facts_of(
    row: Row,
    checkpoint: CheckpointCommitted | None = None,
    progress: Progress | None = None,
    received: tuple[RunId, Received] | None = None,
    served: JobServed | None = None,
) -> JobFacts:
    """The facts in a job's row beside the ledger's part.

    Args:
        row: of the table of jobs.
        checkpoint: the job's newest one.
        progress: of its latest run with any.
        received: by its latest run.
        served: what it has received.
    """
    with of_row("jobs", row["job"]):
        return record_of(
            JobFacts,
            row,
            updated=updated_fields(row["updated"]),
            checkpoint=checkpoint,
            progress=progress,
            served=served,
            received=received,
            moved_s=0.0,
        )


def last_checkpoints(connection: Connection, jobs: Iterable[int]) -> dict[int, CheckpointCommitted]:
    """The last kept checkpoint of each of some jobs."""
    table = schema.checkpoints
    newest = (
        select(func.max(table.c.id).label("id")).where(table.c.state == KEPT).group_by(table.c.job)
    )
    ids = [row["id"] for row in rows_in(connection, newest, table.c.job, jobs)]
    return {
        row["job"]: record_of(CheckpointCommitted, row)
        for row in rows_in(connection, select(table), table.c.id, ids)
    }


def last_progress(connection: Connection, jobs: Iterable[int]) -> dict[int, Progress]:
    """The progress of the latest run with any, for each of some jobs."""
    runs, reports = schema.runs, schema.progress
    query = select(reports, runs.c.job, runs.c.run).join(runs, runs.c.run_id == reports.c.run_id)
    rows = rows_in(connection, query, runs.c.job, jobs)
    rows.sort(key=lambda row: row["run"])
    return {row["job"]: record_of(Progress, row) for row in rows}


# -- the whole -------------------------------------------------------------------------------------


def load(connection: Connection) -> Loaded:
    """Everything that is live.

    Raises:
        StoreCorrupt: a row cannot be read; none is skipped.
    """
    jobs, runs = schema.jobs, schema.runs
    rows = connection.execute(select(jobs).where(jobs.c.live).order_by(jobs.c.job)).mappings().all()
    live = connection.execute(select(runs).where(runs.c.live).order_by(runs.c.job, runs.c.run))
    run_rows = live.mappings().all()
    members = members_of(connection, [row["run_id"] for row in run_rows])
    leader = connection.execute(select(schema.leader)).mappings().one()
    next_job = select(schema.counters.c.value).where(schema.counters.c.name == "next_job")
    whole = read_jobs(connection, rows, with_sizes=True)
    orphans = (orphan_of(row) for row in connection.execute(select(schema.orphans)).mappings())
    ledger = Ledger(
        epoch=Epoch(leader["epoch"]),
        leader=leader["name"],
        next_job=JobId(connection.execute(next_job).scalar_one()),
        jobs=whole,
        runs={run.key.run_id: run for run in runs_from(run_rows, members)},
        nodes=nodes_of(connection, None),
        orphans={(o.node, o.held.key.run_id): o for o in orphans},
        requests={
            (job.request.user, RequestId(job.request.request_id)): number
            for number, job in whole.items()
        },
    )
    ids = [row["job"] for row in rows]
    saved, steps = last_checkpoints(connection, ids), last_progress(connection, ids)
    received, served = read_received(connection, ids), read_served(connection, ids)
    return Loaded(
        ledger=ledger,
        jobs={
            JobId(row["job"]): facts_of(
                row,
                saved.get(row["job"]),
                steps.get(row["job"]),
                received.get(row["job"]),
                served.get(row["job"]),
            )
            for row in rows
        },
        run_times={RunId(r["run_id"]): (r["assigned_at"], r["released_at"]) for r in run_rows},
        **_cluster(connection),
    )


def _cluster(connection: Connection) -> dict[str, Any]:
    """The rows beside jobs and runs."""
    row = connection.execute(select(schema.policy)).mappings().one_or_none()
    chosen = row["chosen"] if row is not None else None
    with of_row("policy", 1):
        policy = loads(PolicySet, chosen, exact=True) if chosen is not None else None
    number = connection.execute(select(func.max(schema.rounds.c.number))).scalar_one()
    return {
        "policy": policy,
        "policy_state": row["state"] if row is not None else None,
        "drained": {
            NodeName(r["node"]): record_of(Drained, r, drained=True)
            for r in connection.execute(select(schema.drains)).mappings()
        },
        "nodes_described": {
            NodeName(r["node"]): r["facts"]
            for r in connection.execute(select(schema.node_descriptions)).mappings()
        },
        "heard_at": {
            NodeName(r["node"]): r["heard_at"]
            for r in connection.execute(select(schema.node_leases)).mappings()
        },
        "round_number": number or 0,
        "tenants": read_tenants(connection),
        "speeds": read_speeds(connection),
        "trainings": read_trainings(connection, TrainingRow),
        "curves": read_trainings(connection, CurvesRow),
        "unsaved": tuple(each.unsaved for each in read_unsaved(connection, schema.jobs.c.live)),
        "usage": read_usage(connection),
        "borrowed": read_borrowed(connection),
    }
