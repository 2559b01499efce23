"""GPU types of waiting jobs, when nodes have joined that have a job's type alone.

A job of one type that only nodes with several types had is stored for those nodes. Once nodes of
the type alone could run it, it is left to them, as if it were submitted now.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

from dlsched.core.errors import DlschedError
from dlsched.daemon.capacity import Capacity
from dlsched.daemon.cluster import Cluster
from dlsched.daemon.control.submission.fitting import check_fits
from dlsched.daemon.control.submission.gpu_types import changed_gpu_types
from dlsched.daemon.leader_driver import LedgerFollower
from dlsched.db.records import Event, FieldsChanged, JobBody, NodeDescribed
from dlsched.protocol.ledger import Changes, JobStatus
from dlsched.protocol.ledger import writes as change
from dlsched.protocol.messages import JobId
from dlsched.system.clock import wall

AT_ONCE = 20  # jobs that are looked at before anything else may happen
_OF_NODES = (NodeDescribed, change.RegisterNode)


class TypesOfWaitingJobs(LedgerFollower):
    """Changes what waiting jobs of one type are stored as, where nodes have it alone by now."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        cluster.driver.follow(self)

    def committed(self, changed: set[JobId], changes: Changes) -> None:
        """Look again soon, at all jobs if nodes have changed, else at those that wait again."""
        by_type = self._cluster.live.constraints.by_type
        if any(map(changes.of, _OF_NODES)):
            self._look_soon([JobId(job) for job in by_type])
        elif changes.of(change.MemberOver):
            self._look_soon([job for job in changed if job in by_type])

    def _look_soon(self, jobs: list[JobId]) -> None:
        if jobs:
            asyncio.get_running_loop().call_soon(self._look, jobs)

    def _look(self, jobs: list[JobId]) -> None:
        cluster, driver = self._cluster, self._cluster.driver
        capacity, by_type = cluster.capacity(), cluster.live.constraints.by_type
        alone = capacity.types
        may_change = [
            job
            for job in jobs
            if len(wanted := by_type.get(job, ())) == 1 and wanted[0][0] in alone
        ]
        for job in may_change[:AT_ONCE]:
            row = driver.reserved.jobs.get(job)
            if row is None or row.status is not JobStatus.PENDING:
                continue
            if not (fields := self._for_new_nodes(driver.table.body(row), capacity)):
                continue
            kind = by_type[job][0][0]
            text = f"GPU type {kind}: on the nodes that have it alone, which have joined"
            driver.note(
                FieldsChanged(job=job, fields=fields, actor="daemon"),
                Event(at=wall(), kind="update", actor="daemon", job=job, text=text),
            )
        self._look_soon(may_change[AT_ONCE:])

    @staticmethod
    def _for_new_nodes(body: JobBody, capacity: Capacity) -> dict[str, object]:
        """The fields that leave a job to nodes of its type alone; none: they cannot run it."""
        try:
            fields = changed_gpu_types(body, {}, capacity)
            if fields["gpus_by_type"]:
                return {}
            check_fits(replace(body, **fields), capacity)
        except DlschedError:
            return {}
        return {name: value for name, value in fields.items() if value != getattr(body, name)}
