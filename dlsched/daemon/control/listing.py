"""The queue and the history, in pages; waiting elements of one array are one line."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial

from dlsched.daemon.clock import wall
from dlsched.daemon.cluster import Cluster
from dlsched.daemon.control.arrays import fold_tasks
from dlsched.daemon.control.choosing import each_page, live, stored_filter
from dlsched.daemon.control.views import Views, foretell, stored_view
from dlsched.protocol.ledger import Job, JobStatus
from dlsched.protocol.messages import JobId
from dlsched.rpc.identity import Identity
from dlsched.rpc.v1 import control_pb2

__all__ = ["history", "queue", "summary"]

PAGE = 250  # views made before others are served


def summary(cluster: Cluster) -> control_pb2.QueueSummary:
    """The cluster in one line."""
    ledger = cluster.shell.committed
    running = pending = running_gpus = pending_gpus = 0
    for row in ledger.jobs.values():
        if row.status is JobStatus.PENDING:
            pending += 1
            pending_gpus += sum(row.request.gang)
        elif not row.status.is_terminal:
            running += 1
            running_gpus += sum(row.request.gang)
    gpus = sum(len(node.gpus) for node in ledger.nodes.values())
    busy = sum(len(ledger.busy(name)) for name in ledger.nodes)
    rounds = cluster.rounds
    return control_pb2.QueueSummary(
        running=running,
        running_gpus=running_gpus,
        pending=pending,
        pending_gpus=pending_gpus,
        gpus=gpus,
        busy_gpus=busy,
        policy=cluster.board.settings.policy,
        round=cluster.board.round_number,
        round_s=rounds.last_wall_s if rounds is not None else 0.0,
    )


async def queue(
    cluster: Cluster, views: Views, request: control_pb2.QueueRequest, caller: Identity
) -> AsyncIterator[control_pb2.QueuePage]:
    """The live jobs that a filter means: pending in the policy's order, then the running."""
    starts = await cluster.predictions.starts() if request.predict else {}
    ends = cluster.predictions.ends if request.predict else {}
    rows, others = live(cluster, request.filter, caller)
    waiting = [row for row in rows if row.status is JobStatus.PENDING]
    present = [row for row in rows if row.status is not JobStatus.PENDING]
    position = cluster.board.position
    waiting.sort(key=lambda row: (position(row.job) or 1 << 60, row.job))
    facts = cluster.shell.table.of
    present.sort(key=lambda row: (facts(row.job).started_at or 0.0, row.job))
    views.forget()
    folded: list[control_pb2.FoldedView] = []
    if not request.unfold:
        waiting, folded = _fold(cluster, views, waiting)
    for some in each_page([*waiting, *present], PAGE):
        page = control_pb2.QueuePage()
        jobs = cluster.shell.committed.jobs  # those that end meanwhile leave the list
        page.jobs.extend(
            views.of(jobs[row.job])
            for row in some
            if row.job in jobs and not jobs[row.job].status.is_terminal
        )
        if starts or ends:
            for view in page.jobs:
                foretell(view, starts, ends)
        yield page
        await asyncio.sleep(0)
    for line in folded:
        foretell(line.first, starts, ends)
    last = summary(cluster)
    last.others = others
    yield control_pb2.QueuePage(folded=folded, summary=last)


def _fold(
    cluster: Cluster, views: Views, rows: list[Job]
) -> tuple[list[Job], list[control_pb2.FoldedView]]:
    """Elements that wait alike together; an element alone stays a job."""
    groups: dict[tuple[JobId, str], list[Job]] = {}
    plain: list[Job] = []
    for row in rows:
        spec = cluster.shell.table.spec(row)
        if spec.array is None:
            plain.append(row)
        else:
            first = JobId(row.job - spec.index)
            groups.setdefault((first, views.reason(row)), []).append(row)
    folded = []
    for group in groups.values():
        if len(group) == 1:
            plain += group
            continue
        specs = [cluster.shell.table.spec(row) for row in group]
        tasks = [spec.task for spec in specs if spec.task is not None]
        limit = cluster.shell.table.array_limit(group[0])
        folded.append(
            control_pb2.FoldedView(
                first=views.of(group[0]), tasks=fold_tasks(tasks, limit), count=len(group)
            )
        )
    return plain, folded


async def history(
    cluster: Cluster, views: Views, request: control_pb2.HistoryRequest, caller: Identity
) -> AsyncIterator[control_pb2.HistoryPage]:
    """Ended jobs by their end, from the store; live ones behind when asked for."""
    store, wanted = cluster.shell.store, stored_filter(request.filter, caller)
    since = request.since if request.HasField("since") else None
    until = request.until if request.HasField("until") else None
    left = request.limit if request.limit > 0 else None
    after = None
    while left is None or left > 0:
        size = PAGE if left is None else min(PAGE, left)
        found = await cluster.shell.read(
            partial(store.history, wanted, since=since, until=until, after=after, limit=size)
        )
        if found:
            yield control_pb2.HistoryPage(jobs=[stored_view(stored) for stored in found])
            after = found[-1].after
            left = None if left is None else left - len(found)
        if len(found) < size:
            break
    if request.live_too and (until is None or until >= wall()):
        rows, _ = live(cluster, request.filter, caller)
        for some in each_page(rows, PAGE):
            jobs = cluster.shell.committed.jobs
            present = [jobs[row.job] for row in some if row.job in jobs]
            yield control_pb2.HistoryPage(
                jobs=[views.of(row) for row in present if not row.status.is_terminal]
            )
            await asyncio.sleep(0)
