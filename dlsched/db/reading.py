"""What is shown of jobs and their past: short transactions, pages by key, plain frozen values.

Environments are secrets: only `environment` reads them, for the launch of a run.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Connection, Engine, Select, case, func, select, tuple_

from dlsched.db import schema
from dlsched.db.engine import reading
from dlsched.db.filters import Filter, conditions
from dlsched.db.loading import (
    JobFacts,
    facts_of,
    last_checkpoints,
    last_progress,
    members_of,
    progress_of,
    read_bodies,
    read_jobs,
    runs_from,
)
from dlsched.db.records import Event, JobSpec, Prediction, Progress
from dlsched.db.rows import Row, of_row
from dlsched.db.statements import rows_in
from dlsched.db.submitting import seal_fits
from dlsched.db.told import Came, came_true, first_predictions, spent_in_vain
from dlsched.db.trainings import TrainingTold, read_trainings
from dlsched.protocol.ledger import Job, Request, Run
from dlsched.protocol.messages import JobId, NodeName, RequestId, RunId

__all__ = [
    "After",
    "KnownRequest",
    "Reads",
    "Spent",
    "StoredEvent",
    "StoredJob",
    "StoredRun",
    "Usage",
]

T = TypeVar("T")
PAGE = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class After:
    """Where a page ended: the next one begins behind it."""

    ended_at: float
    job: JobId


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredJob:
    """A job as the database knows it; its spec has no environment."""

    job: Job
    facts: JobFacts
    state: str  # the word that users see
    nodes: tuple[NodeName, ...] = ()  # of the latest run
    end: str = ""  # why the latest run is over
    foretold: Prediction | None = None  # what was said first of when it would start

    @property
    def spec(self) -> JobSpec | None:
        """What the job is."""
        spec = self.job.request.spec
        return spec if isinstance(spec, JobSpec) else None

    @property
    def after(self) -> After:
        """Where a page of ended jobs ends that ends with this one."""
        return After(ended_at=self.facts.ended_at or 0.0, job=self.job.job)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRun:
    """A run as the database knows it."""

    run: Run
    assigned_at: float
    released_at: float | None
    ended_at: float | None
    end: str
    executed_s: float
    gpu_s: float
    progress: Progress | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredEvent:
    """An event and its place in the order in which events were stored."""

    id: int
    event: Event


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What the ended runs of a user, an account or a virtual cluster have used."""

    name: str
    gpu_s: float
    jobs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What one ended run has used, and whose it was."""

    user: str
    account: str
    vc: str
    began_at: float
    ended_at: float
    gpu_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownRequest:
    """A request that was accepted before: its job, and whether another one says the same."""

    job: JobId
    request: Request
    seal: str | None

    def is_same(self, other: Request) -> bool:
        """Whether a request has the same content; when it was sent does not matter."""
        mine, its = self.request.spec, other.spec
        if not isinstance(mine, JobSpec) or not isinstance(its, JobSpec):
            return self.request == other
        bare = replace(its, submitted_at=mine.submitted_at, body=replace(its.body, environment={}))
        fits = self.seal is not None and seal_fits(self.seal, its.body)
        return fits and self.request == replace(other, spec=bare)


class Reads:
    """The reads of a store; each is one short transaction, from any thread."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def _read(self, query: Callable[[Connection], T]) -> T:
        with reading(self.engine) as connection:
            return query(connection)

    # -- lists ------------------------------------------------------------------------------------

    def jobs(self, ids: Iterable[JobId]) -> list[StoredJob]:
        """Jobs by id, in order; unknown ones are left out."""
        wanted = sorted(set(ids))
        table = schema.jobs

        def query(connection: Connection) -> list[StoredJob]:
            rows = rows_in(connection, select(table), table.c.job, wanted)
            return _stored(connection, sorted(rows, key=lambda row: int(row["job"])))

        return self._read(query)

    def queue(
        self, wanted: Filter | None = None, *, after: JobId | None = None, limit: int = PAGE
    ) -> list[StoredJob]:
        """Live jobs by id; the next page begins `after` the last one's."""
        table = schema.jobs
        query = select(table).where(table.c.live, *conditions(wanted or Filter()))
        if after is not None:
            query = query.where(table.c.job > after)
        return self._page(query.order_by(table.c.job).limit(limit))

    def history(
        self,
        wanted: Filter | None = None,
        *,
        since: float | None = None,
        until: float | None = None,
        after: After | None = None,
        limit: int = PAGE,
        newest_first: bool = False,
    ) -> list[StoredJob]:
        """Ended jobs by their end; the next page begins `after` the last one of this."""
        table = schema.jobs
        key = tuple_(table.c.ended_at, table.c.job)
        query = select(table).where(table.c.ended_at.is_not(None), *conditions(wanted or Filter()))
        if since is not None:
            query = query.where(table.c.ended_at >= since)
        if until is not None:
            query = query.where(table.c.ended_at < until)
        if after is not None:
            place = tuple_(after.ended_at, after.job)
            query = query.where(key < place if newest_first else key > place)
        order = [table.c.ended_at, table.c.job]
        query = query.order_by(*(c.desc() for c in order) if newest_first else order)
        return self._page(query.limit(limit))

    def _page(self, query: Select[Any]) -> list[StoredJob]:
        return self._read(lambda c: _stored(c, c.execute(query).mappings().all()))

    def events(
        self,
        job: JobId | None = None,
        *,
        node: NodeName | None = None,
        after: int = 0,
        limit: int = PAGE,
    ) -> list[StoredEvent]:
        """Events in the order in which they were stored, of a job or a node or of all."""
        table = schema.events
        query = select(table).where(table.c.id > after).order_by(table.c.id).limit(limit)
        if job is not None:
            query = query.where(table.c.job == job)
        if node is not None:
            query = query.where(table.c.node == node)
        return self._read(lambda c: [_event(row) for row in c.execute(query).mappings()])

    def runs(self, job: JobId) -> list[StoredRun]:
        """All runs of a job."""
        table = schema.runs
        query = select(table).where(table.c.job == job).order_by(table.c.run, table.c.assigned_at)

        def read(connection: Connection) -> list[StoredRun]:
            rows = connection.execute(query).mappings().all()
            ids = [row["run_id"] for row in rows]
            told = schema.progress
            steps = {
                r["run_id"]: progress_of(r)
                for r in rows_in(connection, select(told), told.c.run_id, ids)
            }
            members = members_of(connection, ids)
            runs = runs_from(rows, members)
            return [_run(row, run, steps) for row, run in zip(rows, runs, strict=True)]

        return self._read(read)

    def training(self, job: JobId) -> TrainingTold | None:
        """What a job has told of its training, also when it has ended."""
        return next(iter(self._read(lambda c: read_trainings(c, [job]))), None)

    def predictions(self, job: JobId) -> list[Prediction]:
        """When a job was thought to start, in the order in which that was said."""
        table = schema.predictions
        query = select(table).where(table.c.job == job).order_by(table.c.id)
        return self._read(
            lambda c: [
                Prediction(
                    job=JobId(row["job"]),
                    made_at=row["made_at"],
                    start_at=row["start_at"],
                    basis=row["basis"],
                )
                for row in c.execute(query).mappings()
            ]
        )

    def came_true(self, since: float = 0.0, *, most: int = 100_000) -> list[Came]:
        """First predictions of jobs that have started since a moment, and when they did."""
        return self._read(lambda c: came_true(c, since, most))

    def usage(self, *, by: str = "vc", since: float | None = None) -> list[Usage]:
        """GPU time of runs that have ended, by virtual cluster, account or user.

        Args:
            by: vc, account or user.
            since: what was used before does not count, in runs that span this moment neither.
        """
        jobs, runs = schema.jobs.c, schema.runs.c
        name = {"vc": jobs.vc, "account": jobs.account, "user": jobs.user_name}[by]
        used: ColumnElement[float] = runs.gpu_s
        if since is not None:
            took, counts = runs.ended_at - runs.assigned_at, runs.ended_at - since
            used = case((runs.assigned_at >= since, runs.gpu_s), else_=runs.gpu_s * counts / took)
        query = (
            select(name, func.sum(used), func.count(jobs.job.distinct()))
            .join_from(schema.runs, schema.jobs, runs.job == jobs.job)
            .where(runs.ended_at.is_not(None) if since is None else runs.ended_at >= since)
            .group_by(name)
            .order_by(name)
        )
        return self._read(
            lambda c: [Usage(name=n, gpu_s=g or 0.0, jobs=k) for n, g, k in c.execute(query)]
        )

    def spent(self, since: float) -> list[Spent]:
        """The runs that have ended since a moment, for adding up what windows of time have seen."""
        jobs, runs = schema.jobs.c, schema.runs.c
        columns = (jobs.user_name, jobs.account, jobs.vc, runs.assigned_at, runs.ended_at)
        query = (
            select(*columns, runs.gpu_s)
            .join_from(schema.runs, schema.jobs, runs.job == jobs.job)
            .where(runs.ended_at >= since, runs.gpu_s > 0)
        )
        return self._read(
            lambda c: [
                Spent(user=user, account=account, vc=vc, began_at=a, ended_at=b, gpu_s=gpu_s)
                for user, account, vc, a, b, gpu_s in c.execute(query)
            ]
        )

    # -- single things ----------------------------------------------------------------------------

    def run_lookup(self, run_ids: Iterable[RunId]) -> list[tuple[Job, Run]]:
        """The runs that the database knows among some, over or not, each with its job."""
        wanted = sorted(set(run_ids))
        if not wanted:
            return []
        runs, jobs = schema.runs, schema.jobs

        def query(connection: Connection) -> list[tuple[Job, Run]]:
            rows = rows_in(connection, select(runs), runs.c.run_id, wanted)
            members = members_of(connection, [row["run_id"] for row in rows])
            ids = {row["job"] for row in rows}
            job_rows = rows_in(connection, select(jobs), jobs.c.job, ids)
            known = read_jobs(connection, job_rows)
            return [(known[run.key.job], run) for run in runs_from(rows, members)]

        return self._read(query)

    def protocol_jobs(self, ids: Iterable[JobId]) -> dict[JobId, Job]:
        """Whole rows of the protocol, ended or not, with their story."""
        table = schema.jobs
        wanted = sorted(set(ids))
        return self._read(lambda c: read_jobs(c, rows_in(c, select(table), table.c.job, wanted)))

    def request_lookup(self, user: str, request_id: RequestId) -> KnownRequest | None:
        """The job that a user's request id stands for, ended or not."""
        table, bodies = schema.jobs, schema.job_bodies
        query = select(table).where(table.c.user_name == user, table.c.request_id == request_id)

        def read(connection: Connection) -> KnownRequest | None:
            rows = connection.execute(query).mappings().all()
            if not rows:
                return None
            (number,), (job,) = zip(*_without_secrets(read_jobs(connection, rows)), strict=True)
            seal = select(bodies.c.seal).where(bodies.c.body == rows[0]["body"])
            return KnownRequest(
                job=number,
                request=job.request,
                seal=connection.execute(seal).scalar_one_or_none(),
            )

        return self._read(read)

    def environment(self, job: JobId) -> Mapping[str, str]:
        """A live job's environment; empty once it has ended."""
        table = schema.jobs
        query = select(table.c.body).where(table.c.job == job)

        def read(connection: Connection) -> Mapping[str, str]:
            key = connection.execute(query).scalar_one_or_none()
            return {} if key is None else read_bodies(connection, [key])[key].environment

        return self._read(read)

    def dependents(self, job: JobId) -> list[JobId]:
        """Live jobs that wait for what a job does."""
        jobs, needs = schema.jobs.c, schema.dependencies.c
        query = (
            select(jobs.job)
            .join_from(schema.jobs, schema.dependencies, jobs.body == needs.body)
            .where(jobs.live, needs.on_job == job)
            .distinct()
            .order_by(jobs.job)
        )
        return self._read(lambda c: [JobId(found) for found in c.execute(query).scalars()])


# -- rows ------------------------------------------------------------------------------------------


def _without_secrets(jobs: Mapping[JobId, Job]) -> list[tuple[JobId, Job]]:
    return [(number, _without_secret(job)) for number, job in jobs.items()]


def _without_secret(job: Job) -> Job:
    spec = job.request.spec
    if not isinstance(spec, JobSpec) or not spec.body.environment:
        return job
    bare = replace(spec, body=replace(spec.body, environment={}))
    return replace(job, request=replace(job.request, spec=bare))


def _stored(connection: Connection, rows: Sequence[Row]) -> list[StoredJob]:
    jobs = dict(_without_secrets(read_jobs(connection, rows)))
    ids = [row["job"] for row in rows]
    saved, steps = last_checkpoints(connection, ids), last_progress(connection, ids)
    where = _where(connection, ids)
    spent, told = spent_in_vain(connection, rows), first_predictions(connection, ids)
    found = []
    for row in rows:
        nodes, end = where.get(row["job"], ((), ""))
        job = row["job"]
        found.append(
            StoredJob(
                job=jobs[JobId(job)],
                facts=facts_of(row, saved.get(job), steps.get(job), spent.get(job)),
                state=row["state"],
                nodes=nodes,
                end=end,
                foretold=told.get(job),
            )
        )
    return found


def _where(
    connection: Connection, ids: Sequence[int]
) -> dict[int, tuple[tuple[NodeName, ...], str]]:
    """Nodes and end of the latest run of each of some jobs."""
    runs, members, jobs = schema.runs.c, schema.run_members.c, schema.jobs.c
    query = (
        select(runs.job, runs.end, members.node)
        .join_from(schema.runs, schema.jobs, jobs.job == runs.job)
        .join(schema.run_members, members.run_id == runs.run_id)
        .where(runs.run == jobs.runs)
        .order_by(runs.job, members.position)
    )
    nodes: dict[int, list[NodeName]] = defaultdict(list)
    ends: dict[int, str] = {}
    for row in rows_in(connection, query, runs.job, ids):
        nodes[row["job"]].append(NodeName(row["node"]))
        ends[row["job"]] = row["end"]
    return {job: (tuple(names), ends[job]) for job, names in nodes.items()}


def _run(row: Row, run: Run, steps: Mapping[str, Progress]) -> StoredRun:
    return StoredRun(
        run=run,
        assigned_at=row["assigned_at"],
        released_at=row["released_at"],
        ended_at=row["ended_at"],
        end=row["end"],
        executed_s=row["executed_s"],
        gpu_s=row["gpu_s"],
        progress=steps.get(row["run_id"]),
    )


def _event(row: Row) -> StoredEvent:
    with of_row("events", row["id"]):
        return StoredEvent(
            id=row["id"],
            event=Event(
                at=row["at"],
                kind=row["kind"],
                actor=row["actor"],
                job=row["job"],
                run_id=row["run_id"],
                node=row["node"],
                text=row["text"],
            ),
        )
