"""Ends runs and jobs that may not go on: broken dependencies, deadlines, time limits, drains."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import chain, islice

import numpy as np

from dlsched.core.arrays import Bools
from dlsched.core.deadlines import STRICT
from dlsched.daemon.cluster import Cluster
from dlsched.db.records import Event, TenantRemoved
from dlsched.protocol import leader
from dlsched.protocol.ledger import Job, JobStatus
from dlsched.protocol.messages import JobId, StopReason
from dlsched.system.clock import boottime, wall

LATE_S = 60.0  # the node's keeper ends a run at its time limit; so long after it the daemon asks
AT_ONCE = 200  # jobs and runs that are ended in one transaction, and one turn of the event loop
Asked = leader.StopAsked | leader.CancelAsked | leader.AttachAsked | leader.FollowerGivenUp
Ending = tuple[Asked, ...]  # of one job or run


async def enforce(cluster: Cluster) -> None:
    """Note which nodes are late, and end what may not go on; called once a second by the leader."""
    cluster.note_silence()
    evict(cluster)
    _drop_reservations(cluster)
    driver, live = cluster.driver, cluster.live
    found = chain(
        _never_satisfied(cluster),
        _past_deadline(cluster),
        _over_limit(cluster),
        _without_client(cluster),
        _not_ready(cluster),
    )
    while some := list(islice(found, AT_ONCE)):
        driver.step(leader.Together(boottime(), tuple(chain.from_iterable(some))))
        await asyncio.sleep(0)  # thousands may depend on one job that was cancelled
        if not driver.leading or cluster.live is not live:
            return  # another term has begun


def _drop_reservations(cluster: Cluster) -> None:
    """Remove reservations that are over; jobs that name them wait for their users."""
    now = wall()
    over = [each.name for each in cluster.tenants.reservations().values() if each.end_at <= now]
    for name in over if cluster.driver.leading else ():
        removed = TenantRemoved(kind="reservation", name=name, actor="daemon", at=now)
        text = f"reservation {name}: is over"
        cluster.driver.note(removed, Event(at=now, kind="remove-tenant", actor="daemon", text=text))


def evict(cluster: Cluster) -> None:
    """Ask runs to leave nodes whose drain is due."""
    driver, now = cluster.driver, wall()
    if not driver.leading:
        return
    leaving: dict[JobId, None] = {}
    for name, row in cluster.drained.items():
        if row.by_at is not None and now >= row.by_at:
            for run in driver.reserved.runs_on(name):
                if run.stop is None:
                    leaving[run.key.job] = None
    if leaving:
        moment = boottime()
        stops = tuple(leader.StopAsked(moment, job, StopReason.MIGRATE) for job in leaving)
        driver.step(leader.Together(moment, stops))


def _never_satisfied(cluster: Cluster) -> Iterator[Ending]:
    """Cancel pending jobs whose dependencies can never hold."""
    for job, why in cluster.live.eligibility.never_satisfied(cluster.now):
        row = cluster.driver.reserved.jobs.get(job)
        if row is not None and row.status is JobStatus.PENDING:
            yield _cancel(job, "DependencyNeverSatisfied", why)


def _past_deadline(cluster: Cluster) -> Iterator[Ending]:
    """Cancel jobs whose strict deadline has passed; a running job is asked to stop."""
    driver, now, jobs = cluster.driver, wall(), cluster.live.jobs
    strict = np.nan_to_num(jobs["deadline_kind"]) == STRICT
    for row in _rows(cluster, np.isfinite(jobs["deadline"]) & strict):
        if row.status.is_terminal or row.reason == "Deadline":
            continue
        deadline = driver.table.field(row, "deadline_at")
        if deadline is None or now <= deadline:
            continue
        run = driver.reserved.live_run(row.job)
        if run is None or run.stop is not StopReason.CANCEL:
            yield _cancel(row.job, "Deadline", "its deadline has passed")


def _without_client(cluster: Cluster) -> Iterator[Ending]:
    """Cancel interactive jobs whose client has left before their start."""
    for job in cluster.interactive.abandoned():
        run = cluster.driver.reserved.live_run(job)
        if run is None or run.stop is not StopReason.CANCEL:
            yield _cancel(job, "NoClient", "its client has left before the start")


def _not_ready(cluster: Cluster) -> Iterator[Ending]:
    """Give up runs in place whose ranks have not become ready in time."""
    late = cluster.live.next_runs.late(cluster.now, cluster.settings.round.ready_s)
    for run_id in late:
        yield (leader.FollowerGivenUp(boottime(), run_id),)


def _cancel(job: JobId, reason: str, text: str) -> Ending:
    now = boottime()
    note = Event(at=wall(), kind="cancel", actor="daemon", job=job, text=text)
    return leader.AttachAsked(now, (note,)), leader.CancelAsked(now, -1, job, reason)


def _over_limit(cluster: Cluster) -> Iterator[Ending]:
    """Stop runs that are still there long after their time limit."""
    driver, now = cluster.driver, boottime()
    for row in _rows(cluster, np.isfinite(cluster.live.jobs["time_limit"])):
        run = driver.reserved.live_run(row.job)
        if run is None or run.stop is not None or not run.released:
            continue
        limit = row.terms.limits.time_s
        if limit is not None and driver.table.of(row.job).clock.seconds(now) > limit + LATE_S:
            yield (leader.StopAsked(now, row.job, StopReason.TIME_LIMIT),)


def _rows(cluster: Cluster, chosen: Bools) -> Iterator[Job]:
    """The ledger's rows of the live jobs for which a column holds."""
    for job in cluster.live.jobs["job"][chosen].tolist():
        row = cluster.driver.reserved.jobs.get(JobId(job))  # it changes while some are ended
        if row is not None:
            yield row
