"""What a new leader takes from the database: everything that lives, and nothing else.

Live are jobs that have not ended, or that still have a run that is not over; those runs; every
node and orphan. What has ended stays in the database and is looked up when it is asked for.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, func, select

from dlsched.db import codec, schema
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
from dlsched.db.rows import Row, job_of, member_of, node_of, of_row, orphan_of, run_of
from dlsched.db.speed_rows import read_speeds
from dlsched.db.speeds import SpeedRow
from dlsched.db.statements import rows_in
from dlsched.db.tenant_rows import read_tenants
from dlsched.db.told import Spent, spent_in_vain
from dlsched.db.trainings import TrainingTold, read_trainings
from dlsched.protocol.ledger import Job, Ledger, Member, Node, Request, Run
from dlsched.protocol.messages import Epoch, JobId, NodeName, RequestId, RunId

__all__ = ["JobFacts", "Loaded", "load", "read_jobs"]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFacts:
    """What the database knows of a job beside the ledger's row."""

    job: JobId
    held: str = ""  # "", "user", "admin"
    updated: Mapping[str, object] = field(default_factory=dict)  # fields changed since submission
    submitted_at: float = 0.0
    first_started_at: float | None = None
    started_at: float | None = None  # of the latest run
    ended_at: float | None = None
    executed_s: float = 0.0  # by runs that have ended
    gpu_s: float = 0.0
    starts: int = 0
    preemptions: int = 0
    migrations: int = 0
    resizes: int = 0
    failures: int = 0
    lost_s: float = 0.0  # executed since the last checkpoint by runs that others followed
    restarts: int = 0  # starts that were measured
    restart_s: float | None = None  # of one of them, the mean
    starting_s: float = 0.0  # of those of ended runs together, what is not lost
    run_restart_s: float = 0.0  # that of the live run
    cancelled_by: str = ""
    checkpoint: CheckpointCommitted | None = None  # the last that counts
    progress: Progress | None = None  # of the latest run that told any


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """Everything that a leader begins with."""

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
    trainings: tuple[TrainingTold, ...] = ()


# -- pieces that other reads use too ---------------------------------------------------------------


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


def read_bodies(connection: Connection, ids: Iterable[int]) -> dict[int, JobBody]:
    """Job bodies with their dependencies, and their environment where it is still there."""
    wanted = sorted(set(ids))
    bodies, needs, secrets = schema.job_bodies, schema.dependencies, schema.job_environments
    variables = {
        row["body"]: row["variables"]
        for row in rows_in(connection, select(secrets), secrets.c.body, wanted)
    }
    waits: dict[int, list[Row]] = defaultdict(list)
    for row in rows_in(connection, select(needs), needs.c.body, wanted):
        waits[row["body"]].append(row)
    found = {}
    for row in rows_in(connection, select(bodies), bodies.c.body, wanted):
        key = row["body"]
        with of_row("job_bodies", key):
            content = json.loads(row["content"])
            content["dependencies"] = [
                {
                    "kind": line["kind"],
                    "job": line["on_job"],
                    "delay_s": line["delay_s"],
                    "or_next": bool(line["or_next"]),
                }
                for line in sorted(waits.get(key, ()), key=lambda line: int(line["position"]))
            ]
        if key in variables:
            with of_row("job_environments", key):
                content["environment"] = codec.loads(_VARIABLES, variables[key])
        with of_row("job_bodies", key):
            found[key] = codec.decode(JobBody, content)
    return found


_VARIABLES: Any = Mapping[str, str]


def read_arrays(connection: Connection, ids: Iterable[int]) -> dict[int, ArrayShape]:
    """Shapes of arrays; their elements share one."""
    table = schema.arrays
    found = {}
    for row in rows_in(connection, select(table), table.c.array, sorted(set(ids))):
        with of_row("arrays", row["array"]):
            found[row["array"]] = codec.loads(ArrayShape, row["shape"])
    return found


def read_jobs(connection: Connection, rows: Sequence[Row]) -> dict[JobId, Job]:
    """Whole jobs, with what they are and their story, in the order of their rows."""
    bodies = read_bodies(connection, (r["body"] for r in rows if r["body"] is not None))
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
                spec = JobSpec(
                    body=bodies[row["body"]],
                    user=row["spec_user"],
                    uid=row["uid"],
                    submitted_at=row["submitted_at"],
                    array=shapes[row["array"]] if row["array"] is not None else None,
                    index=row["array_index"],
                )
        found[JobId(row["job"])] = job_of(row, spec=spec, story=story[row["job"]])
    return found


def updated_fields(text: str | None) -> dict[str, object]:
    """Changed fields of a body, each as its annotation says."""
    if text is None:
        return {}
    found: dict[str, object] = {}
    for name, value in json.loads(text).items():
        read = codec.decoder_of_field(JobBody, name)
        if read is codec.as_is:
            read = codec.decoder_of_field(Request, name)
        found[name] = read(value)
    return found


def facts_of(
    row: Row,
    checkpoint: CheckpointCommitted | None = None,
    progress: Progress | None = None,
    spent: Spent | None = None,
) -> JobFacts:
    """What a job's row says beside the ledger's part."""
    spent = spent or Spent()
    with of_row("jobs", row["job"]):
        return JobFacts(
            job=JobId(row["job"]),
            held=row["held"],
            updated=updated_fields(row["updated"]),
            submitted_at=row["submitted_at"],
            first_started_at=row["first_started_at"],
            started_at=row["started_at"],
            ended_at=row["ended_at"],
            executed_s=row["executed_s"],
            gpu_s=row["gpu_s"],
            starts=row["starts"],
            preemptions=row["preemptions"],
            migrations=row["migrations"],
            resizes=row["resizes"],
            failures=row["failures"],
            lost_s=spent.lost_s,
            restarts=spent.restarts,
            restart_s=spent.restart_s,
            starting_s=spent.starting_s,
            run_restart_s=spent.run_restart_s,
            cancelled_by=row["cancelled_by"],
            checkpoint=checkpoint,
            progress=progress,
        )


def last_checkpoints(connection: Connection, jobs: Iterable[int]) -> dict[int, CheckpointCommitted]:
    """The last checkpoint of each of some jobs."""
    table = schema.checkpoints
    newest = select(func.max(table.c.id).label("id")).group_by(table.c.job)
    ids = [row["id"] for row in rows_in(connection, newest, table.c.job, jobs)]
    return {
        row["job"]: CheckpointCommitted(
            job=JobId(row["job"]),
            run_id=RunId(row["run_id"]),
            at=row["at"],
            path=row["path"],
            step=row["step"],
            size_bytes=row["size_bytes"],
            sha256=row["sha256"],
            executed_s=row["executed_s"],
        )
        for row in rows_in(connection, select(table), table.c.id, ids)
    }


def last_progress(connection: Connection, jobs: Iterable[int]) -> dict[int, Progress]:
    """What the latest run that told any progress told, for each of some jobs."""
    runs, told = schema.runs, schema.progress
    query = select(told, runs.c.job, runs.c.run).join(runs, runs.c.run_id == told.c.run_id)
    rows = rows_in(connection, query, runs.c.job, jobs)
    rows.sort(key=lambda row: row["run"])
    return {row["job"]: progress_of(row) for row in rows}


def progress_of(row: Row) -> Progress:
    """What a run told, from its row."""
    return Progress(
        run_id=RunId(row["run_id"]),
        step=row["step"],
        executed_s=row["executed_s"],
        restart_s=row["restart_s"],
        loss=row["loss"],
    )


# -- the whole -------------------------------------------------------------------------------------


def load(connection: Connection) -> Loaded:
    """Everything that lives.

    Raises:
        StoreCorrupt: a row that cannot be read; nothing is skipped.
    """
    jobs, runs = schema.jobs, schema.runs
    rows = connection.execute(select(jobs).where(jobs.c.live).order_by(jobs.c.job)).mappings().all()
    live = connection.execute(select(runs).where(runs.c.live).order_by(runs.c.job, runs.c.run))
    run_rows = live.mappings().all()
    members = members_of(connection, [row["run_id"] for row in run_rows])
    leader = connection.execute(select(schema.leader)).mappings().one()
    next_job = select(schema.counters.c.value).where(schema.counters.c.name == "next_job")
    whole = read_jobs(connection, rows)
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
    spent = spent_in_vain(connection, rows)
    return Loaded(
        ledger=ledger,
        jobs={
            JobId(row["job"]): facts_of(
                row, saved.get(row["job"]), steps.get(row["job"]), spent.get(row["job"])
            )
            for row in rows
        },
        run_times={RunId(r["run_id"]): (r["assigned_at"], r["released_at"]) for r in run_rows},
        **_cluster(connection),
    )


def _cluster(connection: Connection) -> dict[str, Any]:
    """What is known beside jobs and runs."""
    row = connection.execute(select(schema.policy)).mappings().one_or_none()
    chosen = row["chosen"] if row is not None else None
    with of_row("policy", 1):
        policy = codec.loads(PolicySet, chosen) if chosen is not None else None
    number = connection.execute(select(func.max(schema.rounds.c.number))).scalar_one()
    return {
        "policy": policy,
        "policy_state": row["state"] if row is not None else None,
        "drained": {
            NodeName(r["node"]): Drained(
                node=NodeName(r["node"]),
                drained=True,
                reason=r["reason"],
                actor=r["actor"],
                at=r["at"],
                by_at=r["by_at"],
            )
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
        "trainings": read_trainings(connection),
    }
