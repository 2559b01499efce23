"""Jobs that take any number of nodes of a range (`-N 2-4`): how many they are offered now.

As with Slurm, such a job starts as soon as the smaller number fits, on as many nodes of the range
as fit then. Policies see one number: the largest that is free at the snapshot. A number that the
job did not get, because of jobs before it or of a quota, is followed by one less, down to the
smallest; when other nodes are free, the count begins anew.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping

from dlsched.core.cluster.occupancy import Placement
from dlsched.daemon.live import job_columns as c
from dlsched.daemon.live.job_columns import JobColumns
from dlsched.daemon.live.job_requests import JobRequests
from dlsched.daemon.live.nodes import LiveNodes
from dlsched.daemon.live.placement_constraints import PlacementConstraints
from dlsched.daemon.live.pool_nodes import GB
from dlsched.protocol.messages import JobId


class NodeRanges:
    """The numbers of nodes that jobs with a range are offered, or have."""

    def __init__(
        self,
        jobs: JobColumns,
        nodes: LiveNodes,
        requests: JobRequests,
        constraints: PlacementConstraints,
    ) -> None:
        self._jobs, self._nodes = jobs, nodes
        self._requests, self._constraints = requests, constraints
        self._offered: dict[int, tuple[int, int]] = {}  # nodes that were free then, and the number

    def offer(
        self,
        *,
        unreserved: Callable[[JobId], int],
        is_seen: Callable[[int], bool],
        claimed: Container[int],
        where: Mapping[int, Placement],
    ) -> None:
        """Set the number of nodes of each pending job with a range.

        Args:
            unreserved: returns the nodes, as bits, that reservations leave to a job.
            is_seen: whether policies may see a pending job.
            claimed: jobs that have been given GPUs already.
            where: the GPUs of runs; those of a run that is ending count as free for its job.
        """
        ranges = self._constraints.ranges
        self._offered = {job: each for job, each in self._offered.items() if job in ranges}
        for job in ranges:
            row = self._jobs.row_of[job]
            phase, leaving = self._jobs.get("phase", row), self._jobs.get("leaving", row)
            waits = phase == c.PENDING or (phase == c.HOLDING and leaving != c.STAYS)
            if not waits or job in claimed or not is_seen(job):
                self._offered.pop(job, None)
                continue
            free = self._free_nodes(job, row, unreserved(JobId(job)), where.get(job))
            before, last = self._offered.get(job, (-1, 0))
            number = min(free, last - 1) if before == free else free
            self._offered[job] = (free, self._take(job, number))

    def keep(self, job: int, nodes: int) -> None:
        """Note on how many nodes a job has started."""
        if job in self._constraints.ranges:
            self._take(job, nodes)

    def _free_nodes(self, job: int, row: int, unreserved: int, own: Placement | None) -> int:
        body = self._requests.specs[job].body
        each = (body.gang or (1,))[0]
        usable = unreserved & self._constraints.pool_mask(self._jobs.get("pool", row), self._nodes)
        mine = {} if own is None else dict(zip(own.nodes, own.masks, strict=True))
        found = 0
        for index, node in enumerate(self._nodes.all()):
            taken = self._nodes.gpu_use.taken(index) & ~mine.get(index, 0)
            idle = len(node.gpus) - (taken | node.closed).bit_count()
            if usable >> index & 1 and node.is_open and idle >= each:
                found += not (body.exclusive and taken)
        return found

    def _take(self, job: int, nodes: int) -> int:
        """Have a job ask for so many nodes, within its range; returns their number."""
        body = self._requests.specs[job].body
        gang, most = body.gang or (1,), self._constraints.ranges[job]
        number = max(len(gang), min(nodes, most))
        row, each = self._jobs.row_of[job], gang[0]
        self._constraints.shapes[job] = (max(each, 1),) * number
        whole: dict[str, float] = {}  # of all its nodes
        if body.cpus is not None:
            whole["cpus"] = body.cpus * number / len(gang)
        if body.memory_bytes is not None:
            whole["memory_gb"] = body.memory_bytes / GB * number
        self._jobs.set(row, gang=each * number, **whole)
        return number
