"""Sweeps: the table that comes with a submission, checked; and its jobs side by side."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from dlsched.core.errors import BadInput, plural
from dlsched.daemon.cluster import Cluster
from dlsched.daemon.control import bounds
from dlsched.daemon.control.job_filters import owned_job
from dlsched.daemon.control.job_lists import ended_pages
from dlsched.daemon.control.views import word
from dlsched.daemon.reported.curves import JobCurves
from dlsched.db.reading.filters import ArrayElements, Filter
from dlsched.db.records import ArrayShape, JobSpec
from dlsched.db.rungs import RungReached
from dlsched.jobs import sweep as grammar
from dlsched.jobs.sweep import Halving, Sweep
from dlsched.protocol.ledger import Job
from dlsched.protocol.messages import JobId
from dlsched.rpc.identity import Identity
from dlsched.rpc.v1 import control_pb2

AT_ONCE = 200  # jobs whose curves are read in one transaction


# -- at the submission -----------------------------------------------------------------------------


def check_sweep(wanted: control_pb2.JobRequest, array: ArrayShape | None) -> Sweep | None:
    """The sweep that a request has, None for none.

    Raises:
        BadInput: one line that names the column, the row or the text.
    """
    if not wanted.HasField("sweep"):
        return None
    table = wanted.sweep
    if array is None or len(array.tasks) != len(table.rows):
        tasks = 0 if array is None else len(array.tasks)
        raise BadInput(f"sweep: {plural(len(table.rows), 'row')} for {plural(tasks, 'task')}")
    columns = tuple(table.columns)
    bounds.check_count("columns of the sweep", len(columns), grammar.MOST_COLUMNS)
    for column in columns:
        fault = grammar.column_fault(column)
        if fault or columns.count(column) > 1:
            raise BadInput(f"sweep: column {column[:64]!r} {fault or 'stands there twice'}")
    total = 0
    for number, row in enumerate(table.rows, 1):
        if len(row.values) != len(columns):
            raise BadInput(f"sweep: row {number} has {len(row.values)} of {len(columns)} values")
        for column, value in zip(columns, row.values, strict=True):
            what = f"sweep: row {number}, column {column}"
            bounds.check_text(what, value, grammar.LONGEST_VALUE)
            total += len(value.encode())
    bounds.check_count("bytes of the sweep's values", total, grammar.MOST_BYTES)
    for text in (*wanted.argv, wanted.name, wanted.output, wanted.error):
        if fault := grammar.text_fault(text, columns):
            raise BadInput(f"sweep: {text[:60]!r}: {fault}")
    rows = tuple(tuple(row.values) for row in table.rows)
    return Sweep(columns=columns, rows=rows, halving=_halving(table))


def _halving(table: control_pb2.SweepTable) -> Halving | None:
    if not table.HasField("halving"):
        return None
    rule = table.halving
    bounds.check_text("halving: metric", rule.metric, 64)
    if not rule.metric or rule.mode not in grammar.MODES:
        raise BadInput("halving: a metric and a mode, min or max, are needed")
    bounds.check_whole("halving: eta", rule.eta, 2, 1000)
    bounds.check_whole("halving: rung", rule.rung, 1, grammar.MOST_STEPS)
    most = rule.most if rule.HasField("most") else None
    bounds.check_whole("halving: max", most, rule.rung, grammar.MOST_STEPS)
    return Halving(metric=rule.metric, mode=rule.mode, eta=rule.eta, rung=rule.rung, most=most)


def put_table(message: control_pb2.SweepTable, sweep: Sweep, rows: Iterable[int] = ()) -> None:
    """Put a sweep's columns, its rule, and some of its rows into a message."""
    message.columns.extend(sweep.columns)
    for index in rows:
        message.rows.add(values=sweep.rows[index])
    rule = sweep.halving
    if rule is not None:
        message.halving.CopyFrom(
            control_pb2.Halving(
                metric=rule.metric, mode=rule.mode, eta=rule.eta, rung=rule.rung, most=rule.most
            )
        )


# -- as a listing ----------------------------------------------------------------------------------


async def sweep(
    cluster: Cluster, request: control_pb2.SweepRequest, caller: Identity
) -> control_pb2.SweepReply:
    """The jobs of a sweep by task, live or ended, with their parameters and newest values.

    Raises:
        NotFound: there is no such job.
        NotAllowed: it is another user's.
        BadInput: the job is no sweep.
    """
    driver, named = cluster.driver, JobId(request.job)
    jobs = driver.committed.jobs
    spec = driver.table.spec(await owned_job(cluster, request.job, caller))
    if spec.array is None or spec.sweep is None:
        raise BadInput(f"job {request.job}: not a sweep; `dlsched submit --sweep` makes one")
    first, count = JobId(named - spec.index), len(spec.array.tasks)
    whole = Filter(elements=(ArrayElements(array_job=first),))
    elements: dict[JobId, control_pb2.SweepElement] = {}
    async for ended in ended_pages(driver, whole):
        for stored in ended:
            elements[stored.job.job] = _element(stored.job, stored.state, stored.end)
    for job in map(JobId, range(first, first + count)):
        if job in jobs:
            elements[job] = _element(jobs[job], word(jobs[job], driver.committed.live_run(job)))
    await _put_values(cluster, elements)
    rule = spec.sweep.halving
    reached = [] if rule is None else await driver.read(partial(driver.store.rungs, first))
    for at in reached:
        if rule is not None and at.job in elements:
            _put_rung(elements[at.job], at, rule.metric)
    reply = control_pb2.SweepReply(job=first, name=spec.body.name)
    put_table(reply.table, spec.sweep)
    reply.elements.extend(elements[job] for job in sorted(elements))
    return reply


def _element(row: Job, state: str, end: str = "") -> control_pb2.SweepElement:
    spec = row.request.spec
    if not isinstance(spec, JobSpec):
        return control_pb2.SweepElement(job=row.job, state=state)
    reason = row.reason or (end if state != "COMPLETED" else "")
    return control_pb2.SweepElement(
        job=row.job,
        task=spec.task or 0,
        values=spec.parameters.values(),
        state=state,
        reason=reason,
    )


async def _put_values(cluster: Cluster, elements: dict[JobId, control_pb2.SweepElement]) -> None:
    """Put the newest values of jobs in, from memory or from the database."""
    driver, known = cluster.driver, cluster.curves.jobs
    stored = [job for job in elements if job not in known]
    for start in range(0, len(stored), AT_ONCE):
        some = stored[start : start + AT_ONCE]
        for job, mine in await driver.read(partial(_newest, cluster, some)):
            _put(elements[job], mine)
    for job in elements.keys() & known.keys():
        _put(elements[job], known[job])


def _newest(cluster: Cluster, jobs: list[JobId]) -> list[tuple[JobId, JobCurves]]:
    """The stored curves of some jobs; called in a reader's thread."""
    rows = cluster.driver.store.curves_of(jobs)
    return [(row.job, JobCurves.of_known(row.known)) for row in rows]


def _put(element: control_pb2.SweepElement, mine: JobCurves) -> None:
    element.metrics.update(mine.newest)
    element.not_finite.extend(sorted(mine.not_finite))
    if mine.step is not None:
        element.step = mine.step


def _put_rung(element: control_pb2.SweepElement, at: RungReached, metric: str) -> None:
    """Put a rung in; it says how far a job was whose curves a killed daemon has not stored."""
    element.rungs.add(rung=at.rung, step=at.step, value=at.value, stopped=at.stopped)
    if element.HasField("step") and element.step >= at.step:
        return
    element.step = at.step
    if metric in element.not_finite:
        element.not_finite.remove(metric)
    if at.value is None:
        element.not_finite.append(metric)
    else:
        element.metrics[metric] = at.value
