"""GPU types of waiting jobs, when nodes have joined that have a job's type alone.

A job of one type that only nodes with several types had is stored for those nodes. Once nodes of
the type alone could run it, it is left to them, as if it were submitted now.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

from dlsched.core.errors import DlschedError
from dlsched.daemon.cluster import Cluster
from dlsched.daemon.control.submission.fitting import check_fits
from dlsched.daemon.control.submission.gpu_types import changed_gpu_types
from dlsched.daemon.leader_driver import LedgerFollower
from dlsched.db.records import Event, FieldsChanged, JobBody, NodeDescribed
from dlsched.protocol.ledger import Changes, JobStatus
from dlsched.protocol.ledger import writes as change
from dlsched.protocol.messages import JobId
from dlsched.system.clock import wall

_CAUSES = (NodeDescribed, change.RegisterNode, change.MemberOver)  # also of jobs that wait again


class TypesOfWaitingJobs(LedgerFollower):
    """Changes what waiting jobs of one type are stored as, where nodes have it alone by now."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        cluster.driver.follow(self)

    def committed(self, changed: set[JobId], changes: Changes) -> None:
        """Look again soon, if nodes have changed or jobs may wait again."""
        if self._cluster.live.constraints.by_type and any(map(changes.of, _CAUSES)):
            asyncio.get_running_loop().call_soon(self._look)

    def _look(self) -> None:
        driver = self._cluster.driver
        for job, wanted in list(self._cluster.live.constraints.by_type.items()):
            row = driver.reserved.jobs.get(JobId(job))
            if len(wanted) > 1 or row is None or row.status is not JobStatus.PENDING:
                continue
            if not (fields := self._for_new_nodes(driver.table.body(row))):
                continue
            text = f"GPU type {wanted[0][0]}: on the nodes that have it alone, which have joined"
            driver.note(
                FieldsChanged(job=row.job, fields=fields, actor="daemon"),
                Event(at=wall(), kind="update", actor="daemon", job=row.job, text=text),
            )

    def _for_new_nodes(self, body: JobBody) -> dict[str, object]:
        """The fields that leave a job to nodes of its type alone; none: they cannot run it."""
        capacity = self._cluster.capacity()
        try:
            fields = changed_gpu_types(body, {}, capacity)
            if fields["gpus_by_type"]:
                return {}
            check_fits(replace(body, **fields), capacity)
        except DlschedError:
            return {}
        return {name: value for name, value in fields.items() if value != getattr(body, name)}
