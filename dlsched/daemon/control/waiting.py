"""Waiting for ends: one message a job, as soon as its end is committed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import Any

from dlsched.core.errors import Unavailable
from dlsched.daemon.cluster import Cluster
from dlsched.daemon.control.choosing import chosen_ids, live, names_jobs, no_such
from dlsched.daemon.control.views import Views, stored_view
from dlsched.protocol.ledger import Write
from dlsched.protocol.messages import JobId
from dlsched.rpc.identity import Identity
from dlsched.rpc.v1 import control_pb2

__all__ = ["Ends", "wait"]


class Ends:
    """Who waits for which jobs; woken by commits."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._queues: dict[JobId, set[asyncio.Queue[JobId]]] = {}
        cluster.shell.on_commit.append(self._committed)

    def _committed(self, changed: set[JobId], writes: Sequence[Write]) -> None:
        jobs = self._cluster.shell.committed.jobs
        for job in changed & self._queues.keys():
            if job in jobs and jobs[job].status.is_terminal:
                for queue in self._queues[job]:
                    queue.put_nowait(job)

    def watch(self, jobs: set[JobId]) -> asyncio.Queue[JobId]:
        """A queue of those that end from now on."""
        queue: asyncio.Queue[JobId] = asyncio.Queue()
        for job in jobs:
            self._queues.setdefault(job, set()).add(queue)
        return queue

    def forget(self, jobs: set[JobId], queue: asyncio.Queue[JobId]) -> None:
        """Nobody listens any more."""
        for job in jobs:
            mine = self._queues.get(job, set())
            mine.discard(queue)
            if not mine:
                self._queues.pop(job, None)


async def wait(
    cluster: Cluster,
    views: Views,
    ends: Ends,
    request: control_pb2.WaitRequest,
    caller: Identity,
) -> AsyncIterator[control_pb2.WaitReply]:
    """Each of the jobs, when it has ended; those that have, at once.

    Raises:
        NotFound: when one of them does not exist.
    """
    shell = cluster.shell
    if not shell.leading:
        raise Unavailable("this daemon does not lead")
    if names_jobs(request.filter):
        found = chosen_ids(cluster, request.filter)
        rows = list(found.rows.values())
        missing = found.missing
    else:
        rows, missing = live(cluster, request.filter, caller)[0], []
    waiting = {row.job for row in rows if not row.status.is_terminal}
    queue = ends.watch(waiting)
    left = set(waiting)
    try:
        for name, job in missing:
            stored: list[Any] = []
            if job:
                stored = await shell.read(partial(shell.store.jobs, [job]))
            if not stored:
                raise no_such(name)
            yield control_pb2.WaitReply(job=stored_view(stored[0]))
        for row in rows:
            if row.job not in waiting:
                yield control_pb2.WaitReply(job=views.of(row))
        while left:
            job = await queue.get()
            if job in left:
                left.discard(job)
                yield control_pb2.WaitReply(job=views.of(shell.committed.jobs[job]))
    finally:
        ends.forget(waiting, queue)
