"""Claims: GPUs that a round gave to jobs which cannot start on them yet.

What a policy takes from a job counts as taken at once, though the job may still be leaving. When a
decision gives such GPUs to another job, this job has a claim on them, and starts when they are
free.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from dlsched.core.cluster.occupancy import Placement
from dlsched.daemon.live import job_columns as c
from dlsched.daemon.live.job_columns import JobColumns
from dlsched.daemon.live.nodes import LiveNodes
from dlsched.daemon.live.run_accounting import RunAccounting
from dlsched.protocol.messages import JobId


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """GPUs that a round gave to a job and that it cannot start on yet."""

    run: int  # the number of the run that is to start there
    placement: Placement


class Claims(Mapping[int, Claim]):
    """The claims of live jobs, by job."""

    def __init__(self, jobs: JobColumns, nodes: LiveNodes, accounting: RunAccounting) -> None:
        """Begin without any claim."""
        self._jobs = jobs
        self._nodes = nodes
        self._accounting = accounting
        self._claims: dict[int, Claim] = {}

    def __getitem__(self, job: int) -> Claim:
        return self._claims[job]

    def __contains__(self, job: object) -> bool:
        return job in self._claims

    def __iter__(self) -> Iterator[int]:
        return iter(self._claims)

    def __len__(self) -> int:
        return len(self._claims)

    def add(self, job: int, run: int, placement: Placement) -> None:
        """Note a claim, unless it is void."""
        if not self._is_void(job, run, placement):
            self._claims[job] = Claim(run=run, placement=placement)

    def restore(self, claims: Iterable[tuple[int, int, Placement]]) -> None:
        """Note claims of before a restart: jobs, the numbers of their runs, and placements."""
        for job, run, placement in claims:
            self.add(job, run, placement)

    def drop(self, job: int) -> None:
        """Remove a job's claim, if it has one."""
        self._claims.pop(job, None)

    def drop_void(self) -> bool:
        """Remove claims that became void; returns whether there were any."""
        void = [j for j, claim in self.items() if self._is_void(j, claim.run, claim.placement)]
        for job in void:
            del self._claims[job]
        return bool(void)

    def _is_void(self, job: int, run: int, placement: Placement) -> bool:
        """Whether a job can no longer start that run there, whatever becomes free."""
        jobs, row = self._jobs, self._jobs.row_of.get(job)
        if row is None or jobs.get("phase", row) == c.ENDED or run <= jobs.get("runs", row):
            return True
        if self.home(job) not in (None, placement):
            return True
        return bool(self._nodes.out_of_service(placement))

    def ready(self) -> list[tuple[JobId, Placement]]:
        """Claims that can become starts now: their GPUs are free, and nothing holds their job."""
        found: list[tuple[JobId, Placement]] = []
        for job, claim in self.items():
            jobs, row = self._jobs, self._jobs.row_of[job]
            phase, stays = jobs.get("phase", row), jobs.get("leaving", row) == c.STAYS
            may_start = phase == c.PENDING or (phase == c.AWAY and stays)
            may_start = may_start and not jobs.get("held", row) and not jobs.get("orphan", row)
            share = jobs.get("gpu_share", row)
            if may_start and not self._nodes.hindrance(claim.placement, share):
                found.append((JobId(job), claim.placement))
        return found

    # -- suspended jobs that have given way can only resume where they are -------------------------

    def home(self, job: int) -> Placement | None:
        """Where a job is that has given way by a suspension, or is about to; None for others."""
        row = self._jobs.row_of.get(job)
        away = row is not None and self._jobs.get("phase", row) == c.AWAY
        if away or job in self._accounting.suspending:
            return self._accounting.where.get(job)
        return None

    def homes(self) -> list[tuple[int, Placement]]:
        """All jobs that have given way by a suspension, or are about to, and where they are."""
        away = self._jobs["job"][self._jobs["phase"] == c.AWAY].tolist()
        jobs = sorted({*away, *self._accounting.suspending})
        return [(job, self._accounting.where[job]) for job in jobs]
