"""The queue and the history, in pages; waiting elements of one array are one line."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

from dlsched.daemon.cluster import Cluster
from dlsched.daemon.control.job_filters import (
    check_filter,
    each_page,
    live_jobs,
    stored_filter,
)
from dlsched.daemon.control.views import LiveViews, Views, stored_views
from dlsched.daemon.leader_driver import LeaderDriver
from dlsched.daemon.predictions import Predictions
from dlsched.daemon.rounds import Rounds
from dlsched.db.reading.filters import Filter
from dlsched.db.reading.queries import After, StoredJob
from dlsched.db.records import JobSpec
from dlsched.jobs.task_sets import fold_tasks
from dlsched.protocol.ledger import Job, JobStatus
from dlsched.protocol.messages import JobId
from dlsched.rpc.columns import pack
from dlsched.rpc.identity import Identity
from dlsched.rpc.v1 import control_pb2
from dlsched.system.clock import wall

PAGE = 250  # jobs of a page of messages; other requests are served between two pages
COLUMNS = 1000  # jobs of a page of columns


@dataclass(eq=False, slots=True)
class JobLists:
    """Lists of live jobs and of ended ones."""

    cluster: Cluster
    views: LiveViews
    predictions: Predictions
    rounds: Rounds

    async def queue(
        self, request: control_pb2.QueueRequest, caller: Identity
    ) -> AsyncIterator[control_pb2.QueuePage]:
        """The live jobs that a filter means: pending ones in the policy's order, then running."""
        cluster, predictions = self.cluster, self.predictions
        starts = await predictions.starts() if request.predict else {}
        ends = predictions.ends if request.predict else {}
        check_filter(request.filter)
        rows, others = await live_jobs(cluster, request.filter, caller)
        waiting = [row for row in rows if row.status is JobStatus.PENDING]
        present = [row for row in rows if row.status is not JobStatus.PENDING]
        position = cluster.live.position
        waiting.sort(key=lambda row: (position(row.job) or 1 << 60, row.job))
        facts = cluster.driver.table.of
        present.sort(key=lambda row: (facts(row.job).started_at or 0.0, row.job))
        folded: list[_Folded] = []
        if not request.unfold:
            waiting, folded = self._fold(waiting)

        def views_of(rows: list[Job]) -> Views:
            views = self.views.of(rows, brief=request.brief)
            views.hide_from(caller)
            if request.predict:
                views.predict(starts, ends)
            return views

        def page_of(rows: list[Job]) -> control_pb2.QueuePage:
            jobs = cluster.driver.committed.jobs  # jobs that end meanwhile leave the list
            now = [jobs[row.job] for row in rows if row.job in jobs]
            views = views_of([row for row in now if not row.status.is_terminal])
            if not request.columns:
                return control_pb2.QueuePage(jobs=views.messages())
            page = control_pb2.QueuePage()
            pack(views.count, views, page.columns)
            return page

        firsts = views_of([each.first for each in folded])
        size = COLUMNS if request.columns else PAGE
        *pages, rest = [*each_page([*waiting, *present], size)] or [[]]
        for some in pages:
            yield page_of(some)
            await asyncio.sleep(0)
        last = page_of(rest)
        for first, (_, tasks, count) in zip(firsts.messages(), folded, strict=True):
            last.folded.add(first=first, tasks=tasks, count=count)
        last.summary.CopyFrom(self._summary())
        last.summary.others = others
        yield last

    def _summary(self) -> control_pb2.QueueSummary:
        """The cluster in one line."""
        ledger, state = self.cluster.driver.committed, self.cluster.round_state
        running = pending = running_gpus = pending_gpus = 0
        for row in ledger.jobs.values():
            if row.status is JobStatus.PENDING:
                pending += 1
                pending_gpus += sum(row.request.gang)
            elif not row.status.is_terminal:
                running += 1
                run = ledger.live_run(row.job)
                shares = () if run is None else run.shares
                running_gpus += sum(len(share.gpus) for share in shares)
        return control_pb2.QueueSummary(
            running=running,
            running_gpus=running_gpus,
            pending=pending,
            pending_gpus=pending_gpus,
            gpus=sum(len(node.gpus) for node in ledger.nodes.values()),
            busy_gpus=sum(len(ledger.busy(name)) for name in ledger.nodes),
            policy=state.settings.policy,
            round=state.number,
            round_s=self.rounds.last_wall_s,
            policy_failure=self.rounds.trouble,
        )

    def _fold(self, rows: list[Job]) -> tuple[list[Job], list[_Folded]]:
        """Fold elements of an array that wait for the same reason; returns the other jobs first."""
        table = self.cluster.driver.table
        plain = [row for row in rows if table.spec(row).array is None]
        elements = [row for row in rows if table.spec(row).array is not None]
        groups: dict[tuple[JobId, str], list[Job]] = {}
        for row, why in zip(elements, self.views.reasons(elements), strict=True):
            first = JobId(row.job - table.spec(row).index)
            groups.setdefault((first, why), []).append(row)
        folded = []
        for group in groups.values():
            if len(group) == 1:
                plain += group
                continue
            specs = [table.spec(row) for row in group]
            tasks = [spec.task for spec in specs if spec.task is not None]
            limit = table.array_limit(group[0])
            folded.append(_Folded(group[0], fold_tasks(tasks, limit), len(group)))
        return plain, folded

    async def history(
        self, request: control_pb2.HistoryRequest, caller: Identity
    ) -> AsyncIterator[control_pb2.HistoryPage]:
        """Ended jobs by their end, from the store; live ones behind when asked for.

        A job that ends while the store is read may be in none of the pages that were read: jobs
        that were live before and are so no longer are read once more, by their ids.
        """
        driver, wanted = self.cluster.driver, stored_filter(request.filter, caller)
        since = request.since if request.HasField("since") else None
        until = request.until if request.HasField("until") else None
        live_too = request.live_too and (until is None or until >= wall())
        rows = (await live_jobs(self.cluster, request.filter, caller))[0] if live_too else []
        unsent = dict.fromkeys(row.job for row in rows)
        left = request.limit if request.limit > 0 else None
        after = None
        if left is not None:  # the last ones, in the order of their ends
            store = driver.store
            after = await driver.read(
                partial(store.before_last, wanted, left, since=since, until=until)
            )
        async for found in ended_pages(
            driver, wanted, since=since, until=until, after=after, most=left
        ):
            yield _stored_page(found, caller)
            for stored in found:
                unsent.pop(stored.job.job, None)
        for some in each_page(list(unsent), PAGE):
            jobs = driver.committed.jobs
            live = [jobs[job] for job in some if job in jobs and not jobs[job].status.is_terminal]
            yield _page(self.views.of(live), map(driver.table.spec, live), caller)
            over = tuple(set(some).difference(row.job for row in live))
            if over:
                ended = replace(wanted, jobs=over, elements=())
                async for found in ended_pages(driver, ended):
                    yield _stored_page(found, caller)
            await asyncio.sleep(0)


class _Folded(NamedTuple):
    """Elements of an array that wait alike: the first, the numbers of all, how many."""

    first: Job
    tasks: str
    elements: int


def _page(
    views: Views, specs: Iterable[JobSpec | None], caller: Identity
) -> control_pb2.HistoryPage:
    """A page of views, with what the caller may see."""
    views["working_directory"] = [
        None if each is None else each.body.working_directory for each in specs
    ]
    views.hide_from(caller)
    return control_pb2.HistoryPage(jobs=views.messages())


def _stored_page(found: list[StoredJob], caller: Identity) -> control_pb2.HistoryPage:
    """A page of ended jobs."""
    return _page(stored_views(found), (each.spec for each in found), caller)


async def ended_pages(
    driver: LeaderDriver,
    wanted: Filter,
    *,
    since: float | None = None,
    until: float | None = None,
    after: After | None = None,
    most: int | None = None,
) -> AsyncIterator[list[StoredJob]]:
    """Ended jobs by their end, in pages; see `Reads.history`."""
    while most is None or most > 0:
        size = PAGE if most is None else min(PAGE, most)
        page = partial(
            driver.store.history, wanted, since=since, until=until, after=after, limit=size
        )
        found = await driver.read(page)
        if not found:
            return
        yield found
        after = found[-1].after
        most = None if most is None else most - len(found)
