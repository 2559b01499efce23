"""Reads of jobs and their history for users: short transactions, pages by key, frozen values.

Environments are secret: only `environment` returns them, for the launch of a run.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from sqlalchemy import (
    ColumnElement,
    Connection,
    Engine,
    Select,
    and_,
    case,
    func,
    select,
    true,
    tuple_,
)

from dlsched.core.service_clock import Received
from dlsched.db import schema
from dlsched.db.checkpoints import (
    DOOMED,
    HELD,
    RegisteredCheckpoint,
    StoredUnsaved,
    read_checkpoints,
    read_unsaved,
)
from dlsched.db.contents import JobContent, read_contents
from dlsched.db.engine import reading
from dlsched.db.gpu_work import read_gpu_use
from dlsched.db.notices import DueNotices, Notice, due_notices, oldest_notices
from dlsched.db.reading.events import AuditFilter, StoredEvent, read_audit, stored_event
from dlsched.db.reading.filters import Filter, conditions
from dlsched.db.reading.loading import (
    JobFacts,
    facts_of,
    last_checkpoints,
    last_progress,
    members_of,
    read_jobs,
    runs_from,
)
from dlsched.db.reading.outcomes import (
    PredictedStart,
    StoredFailedStarts,
    causes_of_failures,
    failed_starts,
    first_predictions,
    predicted_starts,
)
from dlsched.db.records import JobSpec, Prediction, Progress
from dlsched.db.retention import has_old_lines, removable_jobs
from dlsched.db.rows import Row, record_of
from dlsched.db.rungs import RungReached, read_rungs
from dlsched.db.served import read_received, read_served, received_of
from dlsched.db.statements import rows_in
from dlsched.db.stored_bytes import read_stored_bytes
from dlsched.db.task_runs import TaskCounts, TaskRun, count_tasks, read_task_runs
from dlsched.db.trainings import CurvesRow, TrainingRow, read_trainings
from dlsched.protocol.ledger import Job, Run
from dlsched.protocol.messages import JobId, NodeName, RequestId, RunId

T = TypeVar("T")
PAGE = 500
PAGE_BYTES = 4 << 20  # of what a page's jobs ask for, beside its first job


@dataclass(frozen=True, slots=True, kw_only=True)
class After:
    """The last job of a page; the next page begins after it."""

    ended_at: float
    job: JobId


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredJob:
    """A job as the database knows it; its spec has no environment."""

    job: Job
    facts: JobFacts
    state: str  # as users see it
    nodes: tuple[NodeName, ...] = ()  # of the latest run
    end: str = ""  # why the latest run is over
    cause: str = ""  # of its failure, where its output has told one
    first_prediction: Prediction | None = None  # of the job's start
    gpu_used: float | None = None  # mean utilisation of its GPUs, 0 to 1

    @property
    def spec(self) -> JobSpec | None:
        """The job's spec."""
        spec = self.job.request.spec
        return spec if isinstance(spec, JobSpec) else None

    @property
    def after(self) -> After:
        """The position of this job in pages of ended jobs."""
        return After(ended_at=self.facts.ended_at or 0.0, job=self.job.job)


class NamedJob(NamedTuple):
    """The ids of a job."""

    job: JobId
    array_job: JobId | None
    array_task: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRun:
    """A run as the database knows it."""

    run: Run
    assigned_at: float
    released_at: float | None
    ended_at: float | None
    end: str
    received: Received
    progress: Progress | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """GPU time of the ended runs of a user, an account or a virtual cluster."""

    name: str
    gpu_s: float
    jobs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunUsage:
    """GPU time of one run, and its user, account and virtual cluster."""

    run_id: RunId
    user: str
    account: str
    vc: str
    began_at: float
    ended_at: float
    gpu_s: float

    def since(self, begin: float) -> float:
        """The GPU-seconds from a moment on; those of a run are spread evenly over its time."""
        took = self.ended_at - self.began_at
        if took <= 0 or self.ended_at <= begin:
            return 0.0
        return self.gpu_s * min((self.ended_at - begin) / took, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPast:
    """The runs of a job, its first events, and what is known of its training and its GPUs."""

    runs: list[StoredRun]
    events: list[StoredEvent]
    training: TrainingRow | None
    gpu_used: float | None  # mean utilisation of its GPUs, 0 to 1
    unsaved: StoredUnsaved | None  # its latest checkpoint, if it could not be written


class Reads:
    """The reads of a store; each is one short transaction and works in any thread."""

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

    def last_ended(self, ids: Iterable[JobId], limit: int) -> list[JobId]:
        """Those of some jobs that have ended, the last ones in the order of their ends."""
        jobs = schema.jobs.c
        query = select(jobs.job, jobs.ended_at).where(jobs.ended_at.is_not(None))
        rows = self._read(lambda connection: rows_in(connection, query, jobs.job, set(ids)))
        found = sorted((row["ended_at"], row["job"]) for row in rows)
        return [JobId(job) for _, job in found[-limit:]]

    def last_completed(self, limit: int) -> list[JobId]:
        """The last jobs that have completed, latest first."""
        jobs = schema.jobs.c
        query = select(jobs.job).where(jobs.ended_at.is_not(None), jobs.state == "COMPLETED")
        query = query.order_by(jobs.ended_at.desc(), jobs.job.desc()).limit(limit)
        return self._read(lambda connection: [JobId(job) for (job,) in connection.execute(query)])

    def named(self, wanted: Filter) -> list[NamedJob]:
        """The jobs that a filter names, ended or not, by id."""
        jobs = schema.jobs.c
        query = select(jobs.job, jobs.array_job, jobs.array_task).where(*conditions(wanted))
        return self._read(lambda c: [NamedJob(*row) for row in c.execute(query.order_by(jobs.job))])

    def queue(
        self, wanted: Filter | None = None, *, after: JobId | None = None, limit: int = PAGE
    ) -> list[StoredJob]:
        """Live jobs by id; `after` is the last job of the page before.

        A page is shorter where its jobs ask for much; only an empty one is the last.
        """
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
        """Ended jobs by their end, one page.

        A page is shorter where its jobs ask for much; only an empty one is the last.

        Args:
            wanted: a filter; None: all jobs.
            since: only jobs that ended at or after this time, in seconds since the epoch.
            until: only jobs that ended before this time.
            after: the last job of the page before.
            limit: of the page.
            newest_first: the order.
        """
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

    def before_last(
        self,
        wanted: Filter,
        count: int,
        *,
        since: float | None = None,
        until: float | None = None,
    ) -> After | None:
        """After which job of the history its last `count` jobs begin; None: with the first one.

        Args:
            wanted: which jobs.
            count: how many.
            since: only jobs that ended at or after this time, in seconds since the epoch.
            until: only jobs that ended before this time.
        """
        jobs = schema.jobs.c
        query = select(jobs.ended_at, jobs.job).where(
            jobs.ended_at.is_not(None), *conditions(wanted)
        )
        if since is not None:
            query = query.where(jobs.ended_at >= since)
        if until is not None:
            query = query.where(jobs.ended_at < until)
        query = query.order_by(jobs.ended_at.desc(), jobs.job.desc()).offset(count).limit(1)
        row = self._read(lambda c: c.execute(query).first())
        return None if row is None else After(ended_at=row.ended_at, job=JobId(row.job))

    def _page(self, query: Select[Any]) -> list[StoredJob]:
        return self._read(lambda c: _stored(c, _bounded(c, c.execute(query).mappings().all())))

    def events(
        self,
        job: JobId | None = None,
        *,
        node: NodeName | None = None,
        after: int = 0,
        limit: int = PAGE,
    ) -> list[StoredEvent]:
        """Events in the order of storing, one page.

        Args:
            job: only events of this job.
            node: only events of this node.
            after: the number of the last event of the page before.
            limit: of the page.
        """
        table = schema.events
        query = select(table).where(table.c.id > after).order_by(table.c.id).limit(limit)
        if job is not None:
            query = query.where(table.c.job == job)
        if node is not None:
            query = query.where(table.c.node == node)
        return self._read(lambda c: [stored_event(row) for row in c.execute(query).mappings()])

    def audit(
        self, wanted: AuditFilter, before: int | None = None, *, limit: int = PAGE
    ) -> tuple[list[StoredEvent], int]:
        """Events, the newest first, of a bounded stretch of the table.

        Args:
            wanted: which events.
            before: only events with a smaller number; None: from the newest on.
            limit: how many at most.

        Returns:
            the events, and the number before which the next stretch begins; 0: there is none.
        """
        return self._read(lambda c: read_audit(c, wanted, before, limit))

    def due_notices(self, now: float, limit: int) -> DueNotices:
        """The notices that are due at `now`, in seconds since the epoch; at most `limit`."""
        return self._read(lambda c: due_notices(c, now, limit))

    def oldest_notices(self, user: str, count: int) -> list[Notice]:
        """So many of the oldest notices of a user that wait."""
        return self._read(lambda c: oldest_notices(c, user, count))

    def runs(self, job: JobId) -> list[StoredRun]:
        """All runs of a job."""
        return self._read(lambda c: _runs_by_job(c, [job])).get(job, [])

    def last_runs(self, jobs: Sequence[JobId]) -> dict[JobId, Run]:
        """The last run of each of some hundred jobs that has one."""
        found = self._read(lambda c: _runs_by_job(c, jobs))
        return {job: runs[-1].run for job, runs in found.items() if runs}

    def training(self, job: JobId) -> TrainingRow | None:
        """The reports of a job on its training, also after its end; None: there are none."""
        return next(iter(self._read(lambda c: read_trainings(c, TrainingRow, [job]))), None)

    def pasts(self, jobs: Sequence[JobId]) -> dict[JobId, JobPast]:
        """What has happened to each of some jobs, in one transaction."""
        table = schema.events
        place = func.row_number().over(partition_by=table.c.job, order_by=table.c.id)
        ranked = select(table, place.label("place")).where(table.c.job.in_(jobs)).subquery()
        query = select(ranked).where(ranked.c.place <= PAGE).order_by(ranked.c.id)

        def read(connection: Connection) -> dict[JobId, JobPast]:
            events: dict[JobId, list[StoredEvent]] = defaultdict(list)
            for row in connection.execute(query).mappings():
                events[JobId(row["job"])].append(stored_event(row))
            runs = _runs_by_job(connection, jobs)
            trainings = {each.job: each for each in read_trainings(connection, TrainingRow, jobs)}
            used = read_gpu_use(connection, jobs)
            unsaved = read_unsaved(connection, schema.unsaved.c.job.in_(jobs))
            without = {each.unsaved.job: each for each in unsaved}
            return {
                job: JobPast(
                    runs=runs.get(job, []),
                    events=events[job],
                    training=trainings.get(job),
                    gpu_used=used.get(job),
                    unsaved=without.get(job),
                )
                for job in jobs
            }

        return self._read(read)

    def curves(self, job: JobId) -> CurvesRow | None:
        """The course of a job's loss and metrics, also after its end; None: there is none."""
        return next(iter(self.curves_of([job])), None)

    def curves_of(self, jobs: Sequence[JobId]) -> tuple[CurvesRow, ...]:
        """The courses of the losses and metrics of some hundred jobs, of those that have any."""
        return self._read(lambda c: read_trainings(c, CurvesRow, jobs))

    def rungs(self, array: JobId) -> list[RungReached]:
        """What the jobs of a sweep have reached, by job and rung."""
        return self._read(lambda c: read_rungs(c, array))

    def task_runs(
        self,
        array: JobId,
        *,
        after: int = 0,
        up_to: int | None = None,
        failed: int | None = None,
    ) -> list[TaskRun]:
        """The short tasks of an array that were given to a run; see `task_runs.read_task_runs`."""
        return self._read(
            lambda c: read_task_runs(c, array, after=after, up_to=up_to, failed=failed)
        )

    def task_counts(self, array: JobId) -> TaskCounts:
        """How the short tasks of an array stand."""
        return self._read(lambda c: count_tasks(c, array))

    def checkpoints(
        self, wanted: Filter, *, states: Sequence[str] = HELD, limit: int | None = None
    ) -> list[RegisteredCheckpoint]:
        """The registered checkpoints of the jobs of a filter, latest first."""
        match = and_(true(), *conditions(wanted))
        return self._read(lambda c: read_checkpoints(c, match, states=states, limit=limit))

    def unsaved(self, wanted: Filter, limit: int) -> list[StoredUnsaved]:
        """The jobs of a filter whose latest checkpoint could not be written, latest first."""
        chosen = and_(true(), *conditions(wanted))
        return self._read(lambda connection: read_unsaved(connection, chosen, limit))

    def checkpoints_of_ended(self, *, doomed: bool) -> list[RegisteredCheckpoint]:
        """The checkpoints of ended jobs that are there; `doomed`: those to be deleted instead."""
        ended = schema.jobs.c.ended_at.is_not(None)
        states = (DOOMED,) if doomed else HELD
        return self._read(lambda c: read_checkpoints(c, ended, states=states))

    def removable_jobs(self, before: float, most: int) -> list[JobId]:
        """Ended jobs that the history may let go of; see `retention`."""
        return self._read(lambda c: removable_jobs(c, before, most))

    def has_old_lines(self, before: float) -> bool:
        """Whether an event or a round is from before a moment, in seconds since the epoch."""
        return self._read(lambda c: has_old_lines(c, before))

    def failed_starts(self, since: float, now: float) -> StoredFailedStarts:
        """The starts that have failed since a moment, and what was done about them."""
        return self._read(lambda connection: failed_starts(connection, since, now))

    def predictions(self, job: JobId) -> list[Prediction]:
        """The predicted starts of a job, oldest prediction first."""
        table = schema.predictions
        query = select(table).where(table.c.job == job).order_by(table.c.id)
        return self._read(
            lambda c: [record_of(Prediction, row) for row in c.execute(query).mappings()]
        )

    def predicted_starts(self, since: float = 0.0, *, most: int = 100_000) -> list[PredictedStart]:
        """The first predictions and the true starts of jobs that started since a moment."""
        return self._read(lambda c: predicted_starts(c, since, most))

    def usage(
        self, *, by: str = "vc", since: float | None = None, live: Iterable[RunId] = ()
    ) -> tuple[list[Usage], frozenset[RunId]]:
        """GPU time of ended runs, and which of some runs have ended at this moment.

        Args:
            by: vc, account or user.
            since: seconds since the epoch; None: since the beginning.
            live: runs that may have ended meanwhile.
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

        def whole(connection: Connection) -> tuple[list[Usage], frozenset[RunId]]:
            found = connection.execute(query)
            ended = select(runs.run_id).where(runs.ended_at.is_not(None))
            over = frozenset(row["run_id"] for row in rows_in(connection, ended, runs.run_id, live))
            return [Usage(name=n, gpu_s=g or 0.0, jobs=k) for n, g, k in found], over

        return self._read(whole)

    def run_usage(self, since: float) -> list[RunUsage]:
        """The GPU time of each run that has ended since a moment."""
        jobs, runs = schema.jobs.c, schema.runs.c
        query = (
            select(
                runs.run_id, jobs.user_name.label("user"), jobs.account, jobs.vc,
                runs.assigned_at.label("began_at"), runs.ended_at, runs.gpu_s,
            )
            .join_from(schema.runs, schema.jobs, runs.job == jobs.job)
            .where(runs.ended_at >= since, runs.gpu_s > 0)
        )  # fmt: skip
        return self._read(lambda c: [RunUsage(**row) for row in c.execute(query).mappings()])

    # -- single things ----------------------------------------------------------------------------

    def run_lookup(self, run_ids: Iterable[RunId]) -> list[tuple[Job, Run]]:
        """Those of some runs that the database knows, over or not, each with its job."""
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
        """Whole jobs of the ledger, ended or not, with their story."""
        table = schema.jobs
        wanted = sorted(set(ids))
        return self._read(lambda c: read_jobs(c, rows_in(c, select(table), table.c.job, wanted)))

    def last_leader(self) -> tuple[str, int]:
        """The name of the last daemon that began to lead, and its epoch."""
        query = select(schema.leader.c.name, schema.leader.c.epoch)
        name, epoch = self._read(lambda c: c.execute(query).one())
        return name or "", epoch

    def request_lookup(self, user: str, request_id: RequestId) -> Job | None:
        """The job of the accepted request with a user's request id; None: it is new."""
        table = schema.jobs
        query = select(table).where(table.c.user_name == user, table.c.request_id == request_id)

        def read(connection: Connection) -> Job | None:
            rows = connection.execute(query).mappings().all()
            return next(iter(read_jobs(connection, rows).values()), None)

        return self._read(read)

    def contents(self, jobs: Iterable[JobId]) -> dict[JobId, JobContent]:
        """What jobs execute; environments of jobs that have ended are empty."""
        return self._read(lambda connection: read_contents(connection, jobs))

    def stored_bytes(self, user: str) -> int:
        """How many bytes the database keeps of a user's jobs, live or ended."""
        return self._read(lambda connection: read_stored_bytes(connection, user))


# -- rows ------------------------------------------------------------------------------------------


def _bounded(connection: Connection, rows: Sequence[Row]) -> Sequence[Row]:
    """The first of some jobs' rows, of which what they ask for fits into a page; at least one."""
    sizes: dict[tuple[str, int], int] = {}
    for name, table, text in (
        ("body", schema.job_bodies.c.body, schema.job_bodies.c.content),
        ("array", schema.arrays.c.array, schema.arrays.c.shape),
    ):
        query = select(table, func.length(text).label("length"))
        keys = {row[name] for row in rows if row[name] is not None}
        for found in rows_in(connection, query, table, keys):
            sizes[name, found[name]] = found["length"]
    total = 0
    for place, row in enumerate(rows):
        total += len(row["updated"] or "")
        total += sum(sizes.pop((name, row[name]), 0) for name in ("body", "array"))
        if place and total > PAGE_BYTES:
            return rows[:place]
    return rows


def _stored(connection: Connection, rows: Sequence[Row]) -> list[StoredJob]:
    jobs = read_jobs(connection, rows)
    ids = [row["job"] for row in rows]
    saved, steps = last_checkpoints(connection, ids), last_progress(connection, ids)
    where, used = _where(connection, ids), read_gpu_use(connection, ids)
    received, predictions = read_received(connection, ids), first_predictions(connection, ids)
    causes, served = causes_of_failures(connection, rows), read_served(connection, ids)
    found = []
    for row in rows:
        nodes, end = where.get(row["job"], ((), ""))
        job = row["job"]
        found.append(
            StoredJob(
                job=jobs[JobId(job)],
                facts=facts_of(
                    row, saved.get(job), steps.get(job), received.get(job), served.get(job)
                ),
                state=row["state"],
                nodes=nodes,
                end=end,
                cause=causes.get(job, ""),
                first_prediction=predictions.get(job),
                gpu_used=used.get(job),
            )
        )
    return found


def _where(
    connection: Connection, ids: Sequence[int]
) -> dict[int, tuple[tuple[NodeName, ...], str]]:
    """Nodes and end of the latest run of each of some jobs."""
    runs, members, jobs = schema.runs.c, schema.run_members.c, schema.jobs.c
    began = schema.runs.alias().c  # those that have only followed another one have not
    is_of_job = (began.job == jobs.job, began.follows.is_(None))
    query = (
        select(runs.job, runs.end, members.node)
        .join_from(schema.runs, schema.jobs, jobs.job == runs.job)
        .join(schema.run_members, members.run_id == runs.run_id)
        .where(runs.run == select(func.max(began.run)).where(*is_of_job).scalar_subquery())
        .order_by(runs.job, members.position)
    )
    nodes: dict[int, list[NodeName]] = defaultdict(list)
    ends: dict[int, str] = {}
    for row in rows_in(connection, query, runs.job, ids):
        nodes[row["job"]].append(NodeName(row["node"]))
        ends[row["job"]] = row["end"]
    return {job: (tuple(names), ends[job]) for job, names in nodes.items()}


def _runs_by_job(connection: Connection, jobs: Iterable[JobId]) -> dict[JobId, list[StoredRun]]:
    table, reports = schema.runs, schema.progress
    rows = rows_in(connection, select(table), table.c.job, list(jobs))
    rows = sorted(rows, key=lambda row: (row["job"], row["run"], row["assigned_at"]))
    ids = [row["run_id"] for row in rows]
    steps = {
        r["run_id"]: record_of(Progress, r)
        for r in rows_in(connection, select(reports), reports.c.run_id, ids)
    }
    found: dict[JobId, list[StoredRun]] = defaultdict(list)
    for row, run in zip(rows, runs_from(rows, members_of(connection, ids)), strict=True):
        found[run.key.job].append(_run(row, run, steps))
    return found


def _run(row: Row, run: Run, steps: Mapping[str, Progress]) -> StoredRun:
    received = received_of(row)
    return record_of(StoredRun, row, run=run, received=received, progress=steps.get(row["run_id"]))
