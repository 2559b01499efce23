"""What becomes of jobs: their runs begin, are suspended, go on, are asked to leave and are over.

Clocks are lazy, as in core: a row has what was true at its run's last beginning, and whoever looks
adds what has passed since. What a run did and did not save is lost when it leaves.
"""

from __future__ import annotations

import math

from dlsched.core.occupancy import Placement
from dlsched.daemon.round import columns as c
from dlsched.daemon.round.columns import JobColumns
from dlsched.daemon.round.machines import Machines
from dlsched.protocol.ledger import Ledger, Run
from dlsched.protocol.messages import ExitReason, JobId, RunId, Share, StopReason

__all__ = ["LONGEST_BACK_OFF_S", "Lives"]

# a run that was asked so has given its GPUs to others, though it may still hold them
TAKEN_BACK = frozenset(
    {StopReason.PREEMPT, StopReason.MIGRATE, StopReason.RESIZE, StopReason.REQUEUE}
)
COUNTED_AS = {
    StopReason.PREEMPT: "preemptions",
    StopReason.MIGRATE: "migrations",
    StopReason.RESIZE: "resizes",
}
LONGEST_BACK_OFF_S = 60.0


class Lives:
    """The runs of live jobs, in their rows and on the machines.

    Attributes:
        where: where each live run is, suspended ones too.
        there: the same, by place: whose runs have the very same GPUs.
        run_ids: the live run of each job.
        suspending: jobs that are to give way by a suspension, and have not left their GPUs yet.
    """

    def __init__(self, jobs: JobColumns, machines: Machines) -> None:
        self.where: dict[int, Placement] = {}
        self.there: dict[Placement, set[int]] = {}
        self.run_ids: dict[int, RunId] = {}
        self.jobs = jobs
        self.machines = machines
        self.suspending: set[int] = set()

    def begin(self, job: JobId, run: Run, now: float, *, counts: bool) -> None:
        """A run has its GPUs."""
        row = self.jobs.row_of[job]
        members = run.members.values()
        where = self.machines.placement(Share(node=m.node, gpus=m.gpus) for m in members)
        gpus = sum(len(member.gpus) for member in members)
        self.run_ids[job] = run.key.run_id
        self.where[job] = where
        self.there.setdefault(where, set()).add(job)
        phase = c.HOLDING
        if run.is_away:
            phase = c.AWAY
        elif run.gives_way:
            self.suspending.add(job)
        elif run.suspended:
            phase = c.SUSPENDED
        if phase != c.AWAY:
            self.machines.room.take(where, self.jobs.get("gpu_share", row))
        self.jobs.set(
            row,
            phase=phase,
            leaving=c.GIVES_WAY if job in self.suspending else c.STAYS,
            since=now,
            progress_from=now,
            gpus_now=gpus if phase == c.HOLDING else 0,
            runs=run.key.run,
            largest_scale=max(self.jobs.get("largest_scale", row), gpus),
        )
        if counts:
            self.jobs.set(row, starts=self.jobs.get("starts", row) + 1)
        if math.isnan(self.jobs.get("first_start", row)):
            self.jobs.set(row, first_start=now)

    def follow(self, job: JobId, run: Run, now: float) -> None:
        """A run is suspended, resumed, or asked to stop."""
        row = self.jobs.row_of[job]
        phase = self.jobs.get("phase", row)
        if run.gives_way and phase == c.HOLDING:
            if job not in self.suspending:
                self.suspending.add(job)
                preemptions = self.jobs.get("preemptions", row) + 1
                self.jobs.set(row, preemptions=preemptions, leaving=c.GIVES_WAY)
            if run.is_away:
                self.suspending.discard(job)
                self._settle(row, now)
                self._leave_gpus(job, row)
                self.jobs.set(row, phase=c.AWAY, leaving=c.STAYS)
        elif run.suspended and phase == c.HOLDING:
            self._settle(row, now)
            self.jobs.set(row, phase=c.SUSPENDED)
        elif not run.suspended and job in self.suspending:  # before it had left its GPUs
            self.suspending.discard(job)
            self.jobs.set(row, leaving=c.STAYS)
        elif not run.suspended and phase in (c.SUSPENDED, c.AWAY):
            if phase == c.AWAY:
                self.machines.room.take(self.where[job], self.jobs.get("gpu_share", row))
            gpus = self.where[job].gpus
            self.jobs.set(
                row,
                phase=c.HOLDING,
                since=now,
                progress_from=now,
                gpus_now=gpus,
                starts=self.jobs.get("starts", row) + 1,
            )
        if run.stop is not None:
            leaving = c.GIVES_WAY if run.stop in TAKEN_BACK else c.IS_ENDING
            column = COUNTED_AS.get(run.stop, "")
            if column and self.jobs.get("leaving", row) == c.STAYS:
                self.jobs.set(row, **{column: self.jobs.get(column, row) + 1})
            self.jobs.set(row, leaving=leaving)

    def _leave_gpus(self, job: JobId, row: int) -> None:
        self.machines.room.give_back(self.where[job], self.jobs.get("gpu_share", row))

    def _settle(self, row: int, now: float) -> None:
        """Bring a row's clocks up to now; it holds nothing after."""
        since, gpus = self.jobs.get("since", row), self.jobs.get("gpus_now", row)
        held = max(now - since, 0.0)
        worked = max(now - self.jobs.get("progress_from", row), 0.0)
        self.jobs.set(
            row,
            held_s=self.jobs.get("held_s", row) + held,
            attained=self.jobs.get("attained", row) + held * gpus,
            executed=self.jobs.get("executed", row) + worked,
            overhead_s=self.jobs.get("overhead_s", row) + held - worked,
            since=now,
            gpus_now=0,
        )

    def leave(self, job: JobId, now: float, ledger: Ledger | None = None) -> None:
        """A run is over: its GPUs are free, and what it did not save is lost."""
        row = self.jobs.row_of[job]
        if self.jobs.get("phase", row) == c.HOLDING:
            self._settle(row, now)
        if self.jobs.get("phase", row) != c.AWAY:
            self._leave_gpus(job, row)
        self.suspending.discard(job)
        lost = self.jobs.get("executed", row) - self.jobs.get("saved", row)
        gave_way = self.jobs.get("leaving", row) == c.GIVES_WAY
        where = self.where.pop(job)
        self.there[where].discard(job)
        if not self.there[where]:
            del self.there[where]
        run_id = self.run_ids.pop(job)
        self.jobs.set(
            row,
            phase=c.PENDING,
            leaving=c.STAYS,
            since=now,
            executed=self.jobs.get("saved", row),
            lost_s=self.jobs.get("lost_s", row) + lost,
        )
        run = None if ledger is None else ledger.runs.get(run_id)
        failed = run is not None and not gave_way and _never_began(run)
        failures = self.jobs.get("failed_starts", row) + 1 if failed else 0
        pause = min(2.0 ** (failures - 1), LONGEST_BACK_OFF_S) if failures else 0.0
        self.jobs.set(
            row, failed_starts=failures, not_before=now + pause if failures else -math.inf
        )

    def restarted(self, ledger: Ledger, run_id: RunId, restart_s: float) -> None:
        """A run says how long it took to be where it was."""
        run = ledger.runs.get(run_id)
        job = None if run is None else run.key.job
        if job is None or self.run_ids.get(job) != run_id:
            return
        row = self.jobs.row_of[job]
        since = self.jobs.get("since", row)
        if self.jobs.get("progress_from", row) == since:
            self.jobs.set(
                row,
                progress_from=since + restart_s,
                restart_s=self.jobs.get("restart_s", row) + restart_s,
            )

    def checkpoint(self, job: JobId, run_id: RunId, now: float) -> None:
        """All that was done so far is saved."""
        row = self.jobs.row_of.get(job)
        if row is None or self.run_ids.get(job) != run_id:
            return
        worked = 0.0
        if self.jobs.get("phase", row) == c.HOLDING:
            worked = max(now - self.jobs.get("progress_from", row), 0.0)
        self.jobs.set(row, saved=self.jobs.get("executed", row) + worked)


def _never_began(run: Run) -> bool:
    """Did a start fail, before anything was executed?"""
    exits = [member.exit for member in run.members.values() if member.exit is not None]
    return not run.released or any(exit.reason is ExitReason.NOT_STARTED for exit in exits)
