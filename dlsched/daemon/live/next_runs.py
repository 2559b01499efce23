"""Runs that are made ready beside the present runs of their jobs: resizes and moves in place.

The GPUs that such a run has beyond those of the present one are closed to all jobs. Whether a run
takes over is decided in the ledger (`dlsched.protocol.ledger.applying`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from dlsched.core.cluster.occupancy import Placement
from dlsched.daemon.live import job_columns as c
from dlsched.daemon.live.job_columns import JobColumns
from dlsched.daemon.live.job_requests import JobRequests
from dlsched.daemon.live.nodes import LiveNodes
from dlsched.daemon.live.run_accounting import RunAccounting
from dlsched.protocol.ledger import Ledger
from dlsched.protocol.messages import JobId, NodeName, RunId


@dataclass(frozen=True, slots=True)
class NextRun:
    """A run that is being made ready.

    Attributes:
        run_id: its own.
        since: when this daemon has first seen it, in seconds of the policy's clock.
        nodes: of it.
    """

    run_id: RunId
    since: float
    nodes: frozenset[NodeName]


class NextRuns:
    """The runs that are being made ready, by job."""

    def __init__(
        self,
        jobs: JobColumns,
        requests: JobRequests,
        nodes: LiveNodes,
        accounting: RunAccounting,
    ) -> None:
        self._jobs, self._requests, self._nodes = jobs, requests, nodes
        self._accounting = accounting
        self.ready_soon: dict[JobId, NextRun] = {}
        self._failed: dict[JobId, RunId] = {}  # the run whose next one has failed

    def see(self, ledger: Ledger, job: JobId, now: float) -> None:
        """Bring a job's next run, and its GPUs, to what the ledger has."""
        run, known = ledger.next_run(job), self.ready_soon.get(job)
        if run is None and known is None:
            return
        if run is None or known is None or known.run_id != run.key.run_id:
            self.ready_soon.pop(job, None)
            if run is not None:
                members = frozenset(run.members)
                self.ready_soon[job] = NextRun(run.key.run_id, now, members)
        present = ledger.live_run(job)
        if present is None:
            self._failed.pop(job, None)
        elif run is None and known is not None and present.key.run_id != known.run_id:
            self._failed[job] = present.key.run_id
        for name in {*(run.members if run else ()), *(known.nodes if known else ())}:
            self._nodes.refresh(ledger, name)

    def late(self, now: float, longest_s: float) -> list[RunId]:
        """The runs that have not taken over in time."""
        return [each.run_id for each in self.ready_soon.values() if now - each.since > longest_s]

    def may_begin(self, job: JobId, to: Placement) -> bool:
        """Whether a job's next run can be made ready there, beside its present one.

        The job must have asked for it, and the GPUs that are new to it must be free. After one
        that has failed, the next resize is a restart.
        """
        row, where = self._jobs.row_of[job], self._accounting.where.get(job)
        if where is None or job in self.ready_soon or not self._requests.specs[job].body.in_place:
            return False
        if self._failed.get(job) == self._accounting.run_ids.get(job):
            return False
        holds = self._jobs.get("phase", row) == c.HOLDING
        stays = self._jobs.get("leaving", row) == c.STAYS
        new = without(to, where)
        return holds and stays and not self._nodes.hindrance(new, self._jobs.get("gpu_share", row))

    def gives_later(self, jobs: Collection[int], launched: Mapping[int, Placement]) -> set[int]:
        """Which other jobs were given GPUs that some jobs have until their next run takes over.

        These jobs wait for another round.
        """
        kept = [self._accounting.where[job] for job in jobs if job in self._accounting.where]
        return {
            other
            for other, where in launched.items()
            if other not in jobs and any(_overlap(where, each) for each in kept)
        }


def without(placement: Placement, other: Placement) -> Placement:
    """The GPUs of a placement that another one does not have."""
    has = dict(zip(other.nodes, other.masks, strict=True))
    left = {
        node: mask & ~has.get(node, 0)
        for node, mask in zip(placement.nodes, placement.masks, strict=True)
    }
    left = {node: mask for node, mask in left.items() if mask}
    return Placement(tuple(left), tuple(left.values()))


def _overlap(one: Placement, other: Placement) -> bool:
    has = dict(zip(other.nodes, other.masks, strict=True))
    return any(mask & has.get(node, 0) for node, mask in zip(one.nodes, one.masks, strict=True))
