"""The runs of jobs in numbers: they begin, are suspended, resume, are asked to stop and end.

Clocks are lazy, as in core: a row has what was true when its run last began or resumed, and a
reader adds the time since. Work that a run has not saved is lost when it ends.
"""

from __future__ import annotations

import math

from dlsched.core.cluster.occupancy import Placement
from dlsched.core.parts import part_of
from dlsched.core.service_clock import NOTHING, Received, Segment
from dlsched.daemon.live import job_columns as c
from dlsched.daemon.live.job_columns import JobColumns
from dlsched.daemon.live.nodes import LiveNodes
from dlsched.protocol.ledger import Ledger, Run, pause_after, pause_of_retry
from dlsched.protocol.messages import ExitReason, JobId, RunId, Share, StopReason

# a run that was asked to stop for one of these has lost its GPUs, though it may still hold them
TAKEN_BACK = frozenset(
    {StopReason.PREEMPT, StopReason.MIGRATE, StopReason.RESIZE, StopReason.REQUEUE}
)
COUNTED_AS = {
    StopReason.PREEMPT: "preemptions",
    StopReason.MIGRATE: "migrations",
    StopReason.RESIZE: "resizes",
}
REPORTED = -math.inf  # when a start ends, which its run reports itself


class RunAccounting:
    """Where the live runs are, and what they have done, in the rows of their jobs.

    Attributes:
        where: the placement of each job's live run, suspended runs too.
        sharing: the same by placement: the jobs that have the very same GPUs.
        run_ids: the live run of each job.
        suspending: jobs that are to give way by a suspension, and have not left their GPUs yet.
        received: the latest run of each job, and what it has received until its job's clock was
            settled last.
        unstored: jobs of which something was counted since it was stored last.
        unstored_runs: likewise, what runs have received.
    """

    def __init__(self, jobs: JobColumns, nodes: LiveNodes) -> None:
        self.where: dict[int, Placement] = {}
        self.sharing: dict[Placement, set[int]] = {}
        self.run_ids: dict[int, RunId] = {}
        self.jobs = jobs
        self.nodes = nodes
        self.suspending: set[int] = set()
        self.received: dict[int, tuple[RunId, Received]] = {}
        self.unstored: set[int] = set()
        self.unstored_runs: dict[RunId, Received] = {}

    def begin(self, job: JobId, run: Run, now: float, *, counts: bool) -> None:
        """Enter a run that has its GPUs.

        Args:
            job: of the run.
            run: as the ledger has it.
            now: seconds of the policy's clock.
            counts: whether it counts as one more start; false for a run that was loaded.
        """
        row = self.jobs.row_of[job]
        gpus = sum(len(member.gpus) for member in run.members.values())
        self.jobs.clock.begin(row, now, gpus, ready=now, counts=counts)
        self.take(job, run)
        if self.jobs.get("phase", row) != c.HOLDING:
            self.jobs.set(row, gpus_now=0)
            counted = gpus * part_of(self.jobs.get("gpu_share", row))
            self.jobs.usage.change(self.jobs.get("owner", row), -counted, now)
        self.unstored.add(job)

    def take(self, job: JobId, run: Run) -> None:
        """Note where a run is and how it stands; its clock goes on as it is."""
        row = self.jobs.row_of[job]
        where = self.nodes.placement(Share(node=m.node, gpus=m.gpus) for m in run.members.values())
        self.run_ids[job] = run.key.run_id
        if job not in self.received or self.received[job][0] != run.key.run_id:
            self.received[job] = run.key.run_id, NOTHING
        self.where[job] = where
        self.sharing.setdefault(where, set()).add(job)
        phase = c.HOLDING
        if run.is_away:
            phase = c.AWAY
        elif run.gives_way:
            self.suspending.add(job)
        elif run.suspended:
            phase = c.SUSPENDED
        if phase != c.AWAY:
            self.nodes.gpu_use.take(where, self.jobs.get("gpu_share", row))
        leaving = c.GIVES_WAY if job in self.suspending else c.STAYS
        if run.stop is not None:
            leaving = _leaving(run.stop)
        self.jobs.set(row, phase=phase, leaving=leaving)

    def follow(self, job: JobId, run: Run, now: float) -> None:
        """Follow a run that is suspended, resumed, or asked to stop."""
        self.unstored.add(job)
        row = self.jobs.row_of[job]
        phase = self.jobs.get("phase", row)
        if run.gives_way and phase == c.HOLDING:
            if job not in self.suspending:
                self.suspending.add(job)
                preemptions = self.jobs.get("preemptions", row) + 1
                self.jobs.set(row, preemptions=preemptions, leaving=c.GIVES_WAY)
            if run.is_away:
                self.suspending.discard(job)
                self._settle(job, row, now)
                self._leave_gpus(job, row)
                self.jobs.set(row, phase=c.AWAY, leaving=c.STAYS)
        elif run.suspended and phase == c.HOLDING:
            self._settle(job, row, now)
            self.jobs.set(row, phase=c.SUSPENDED)
        elif not run.suspended and job in self.suspending:  # before it had left its GPUs
            self.suspending.discard(job)
            self.jobs.set(row, leaving=c.STAYS)
        elif not run.suspended and phase in (c.SUSPENDED, c.AWAY):
            if phase == c.AWAY:
                self.nodes.gpu_use.take(self.where[job], self.jobs.get("gpu_share", row))
            self.jobs.clock.begin(row, now, self.where[job].gpus, ready=now)
            self.jobs.set(row, phase=c.HOLDING)
        if run.stop is not None:
            column = COUNTED_AS.get(run.stop, "")
            if column and self.jobs.get("leaving", row) == c.STAYS:
                self.jobs.set(row, **{column: self.jobs.get(column, row) + 1})
            self.jobs.set(row, leaving=_leaving(run.stop))

    def _leave_gpus(self, job: JobId, row: int) -> None:
        self.nodes.gpu_use.give_back(self.where[job], self.jobs.get("gpu_share", row))

    def _settle(self, job: JobId, row: int, now: float) -> None:
        """Bring a row's clocks up to now; from then on it holds no GPUs."""
        now, worked = max(now, self.jobs.get("since", row)), self._worked(row, now)
        self._count(job, self.jobs.clock.leave(row, now, Segment(worked, 0.0, worked, REPORTED)))

    def _count(self, job: JobId, more: Received) -> None:
        """Count what a job's clock has counted for its latest run, too."""
        run_id, before = self.received[job]
        self.received[job] = run_id, before.plus(more)
        self.unstored_runs[run_id] = self.received[job][1]
        self.unstored.add(job)

    def fall_back(self, job: JobId) -> None:
        """What a job's latest run did and has not saved is lost."""
        self._count(job, self.jobs.clock.fall_back(self.jobs.row_of[job]))

    def ended_at(self, job: JobId, run: Run | None, now: float, origin: float) -> float:
        """When a job's run has ended that is over, as far as its nodes say, in policy seconds.

        A node's clock may be behind: a run has executed for as long as its nodes have measured.

        Args:
            job: of the run.
            run: as the ledger has it; None: it is not there any more.
            now: when the daemon has learnt of it.
            origin: seconds since the epoch at which the policy's clock shows 0.
        """
        row, before = self.jobs.row_of[job], self.received[job][1]
        since: float = self.jobs.get("since", row)
        ends = [] if run is None else [member.exit for member in run.members.values()]
        times = [end.at for end in ends if end is not None and end.at is not None]
        if not times or len(times) < len(ends) or self.jobs.get("phase", row) != c.HOLDING:
            return now
        ran_s = max(end.ran_s for end in ends if end is not None) - before.held_s
        return min(now, max(max(times) - origin, since + ran_s))

    def _worked(self, row: int, now: float) -> float:
        """Seconds at work since a run has started or resumed."""
        return max(now - float(self.jobs.get("progress_from", row)), 0.0)

    def leave(
        self,
        job: JobId,
        now: float,
        ended: float,
        ledger: Ledger | None = None,
        *,
        keeps: bool = False,
    ) -> None:
        """Remove a run that is over: its GPUs are free.

        Args:
            job: of the run.
            now: seconds of the policy's clock.
            ended: when it has ended, likewise.
            ledger: with the run, where its job has no other.
            keeps: whether what it did and has not saved lasts: the job ends with it, or the next
                run has its state. Else it is lost.
        """
        self.unstored.add(job)
        row = self.jobs.row_of[job]
        if self.jobs.get("phase", row) == c.HOLDING:
            self._settle(job, row, ended)
        if self.jobs.get("phase", row) != c.AWAY:
            self._leave_gpus(job, row)
        self.suspending.discard(job)
        gave_way = self.jobs.get("leaving", row) == c.GIVES_WAY
        where = self.where.pop(job)
        self.sharing[where].discard(job)
        if not self.sharing[where]:
            del self.sharing[where]
        if not keeps:
            self.fall_back(job)
        run_id = self.run_ids.pop(job)
        self.jobs.set(row, phase=c.PENDING, leaving=c.STAYS, since=ended)
        run = None if ledger is None else ledger.runs.get(run_id)
        failed = run is not None and not gave_way and _never_began(run)
        failures = self.jobs.get("failed_starts", row) + 1 if failed else 0
        pause = pause_after(failures) if failures else 0.0
        if run is not None and ledger is not None and not failed:
            pause = pause_of_retry(run, ledger.jobs[job])
        self.jobs.set(row, failed_starts=failures, not_before=now + pause if pause else -math.inf)

    def restarted(self, ledger: Ledger, run_id: RunId, restart_s: float) -> None:
        """Note how long a run's start took, in seconds: it made no progress in that time."""
        run = ledger.runs.get(run_id)
        job = None if run is None else run.key.job
        if job is None or self.run_ids.get(job) != run_id:
            return
        row = self.jobs.row_of[job]
        told = self.jobs.clock.restarted(row, restart_s)
        if told.restart_s:
            self.jobs.set(row, measured_starts=self.jobs.get("measured_starts", row) + 1)
            self._count(job, told)

    def checkpoint(self, job: JobId, run_id: RunId, now: float) -> None:
        """Note that a checkpoint has saved all work so far."""
        row = self.jobs.row_of.get(job)
        if row is None or self.run_ids.get(job) != run_id:
            return
        worked = self._worked(row, now) if self.jobs.get("phase", row) == c.HOLDING else 0.0
        self.jobs.clock.checkpoint(row, self.jobs.get("executed", row) + worked)
        self.unstored.add(job)


def _leaving(stop: StopReason) -> int:
    """How a run that was asked to stop leaves."""
    return c.GIVES_WAY if stop in TAKEN_BACK else c.IS_ENDING


def _never_began(run: Run) -> bool:
    """Whether a start failed, on one node at least."""
    exits = [member.exit for member in run.members.values() if member.exit is not None]
    return not run.released or any(
        exit.reason is ExitReason.NOT_STARTED or exit.start_fault is not None for exit in exits
    )
