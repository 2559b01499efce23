"""Waiting for ends: one message a job, as soon as its end is committed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial

from dlsched.daemon.cluster import Cluster
from dlsched.daemon.control.job_filters import (
    check_filter,
    chosen_ids,
    live_jobs,
    names_jobs,
    no_such,
)
from dlsched.daemon.control.views import LiveViews, Views, stored_views
from dlsched.daemon.leader_driver import LedgerFollower
from dlsched.daemon.rpc_errors import NotTaken
from dlsched.protocol.ledger import Changes
from dlsched.protocol.messages import JobId
from dlsched.rpc.identity import Identity
from dlsched.rpc.v1 import control_pb2


class JobEnds(LedgerFollower):
    """The clients that wait for ends of jobs; commits wake them."""

    def __init__(self, cluster: Cluster, views: LiveViews) -> None:
        self._cluster = cluster
        self._views = views
        self._queues: dict[JobId, set[asyncio.Queue[JobId]]] = {}
        cluster.driver.follow(self)

    def committed(self, changed: set[JobId], changes: Changes) -> None:
        """Wake the clients that wait for jobs which have ended."""
        jobs = self._cluster.driver.committed.jobs
        for job in changed & self._queues.keys():
            if job in jobs and jobs[job].status.is_terminal:
                for queue in self._queues[job]:
                    queue.put_nowait(job)

    async def wait(
        self, request: control_pb2.WaitRequest, caller: Identity
    ) -> AsyncIterator[control_pb2.WaitReply]:
        """Each of the jobs, when it has ended; jobs that have ended already at once.

        Raises:
            NotFound: when one of them does not exist.
        """
        cluster, driver, views = self._cluster, self._cluster.driver, self._views
        if not driver.leading:
            raise NotTaken("this daemon does not lead")
        check_filter(request.filter)
        missing: list[tuple[str, JobId]] = []
        if names_jobs(request.filter):
            found = chosen_ids(cluster, request.filter)
            rows, missing = list(found.rows.values()), found.missing
        else:
            rows, _ = await live_jobs(cluster, request.filter, caller)
        waiting = {row.job for row in rows if not row.status.is_terminal}
        queue = self._watch(waiting)
        left = set(waiting)
        try:
            ids = [job for _, job in missing]
            stored = {s.job.job: s for s in await driver.read(partial(driver.store.jobs, ids))}
            for name, job in missing:
                if job not in stored:
                    raise no_such(name)
            for job in ids:
                yield _reply(stored_views([stored[job]]), caller)
            for row in rows:
                if row.job not in waiting:
                    yield _reply(views.of([row]), caller)
            while left:
                job = await queue.get()
                if job in left:
                    left.discard(job)
                    yield _reply(views.of([driver.committed.jobs[job]]), caller)
        finally:
            self._forget(waiting, queue)

    def _watch(self, jobs: set[JobId]) -> asyncio.Queue[JobId]:
        """A queue of the jobs that end from now on."""
        queue: asyncio.Queue[JobId] = asyncio.Queue()
        for job in jobs:
            self._queues.setdefault(job, set()).add(queue)
        return queue

    def _forget(self, jobs: set[JobId], queue: asyncio.Queue[JobId]) -> None:
        for job in jobs:
            mine = self._queues.get(job, set())
            mine.discard(queue)
            if not mine:
                self._queues.pop(job, None)


def _reply(views: Views, caller: Identity) -> control_pb2.WaitReply:
    """The message of one job's view, with what the caller may see."""
    views.hide_from(caller)
    return control_pb2.WaitReply(job=views.messages()[0])
