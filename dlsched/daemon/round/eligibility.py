"""Which pending jobs a policy may see, and why it may not see the others.

Held, not begun, backing off after a failed start, waiting for other jobs, over the limit of an
array or of a partition: such a job is no policy's business until it no longer is. Verdicts on
dependencies are kept and thrown away when one of the jobs waited for starts or ends. The words are
Slurm's where Slurm has one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Container, Mapping

import numpy as np

from dlsched.core.arrays import Bools
from dlsched.daemon.round import columns as c
from dlsched.daemon.round.columns import JobColumns
from dlsched.daemon.round.tenant_limits import TenantLimits
from dlsched.daemon.round.waiting import Fate, Verdict, judge_dependencies
from dlsched.db.records import JobSpec
from dlsched.protocol.messages import JobId

__all__ = ["Eligibility"]

HELD = {"admin": "JobHeldAdmin"}  # by who holds it; else its user does
Longest = Mapping[str, float]  # seconds, by partition


class Eligibility:
    """Dependencies, arrays and holds of live jobs.

    Attributes:
        held_by: who holds a job: its user, or an operator.
        tenant_limits: quotas of users, accounts and virtual clusters.
    """

    def __init__(
        self,
        jobs: JobColumns,
        specs: dict[int, JobSpec],
        fate_of: Callable[[JobId], Fate | None],
    ) -> None:
        """Nobody yet.

        Args:
            jobs: the job columns.
            specs: what live jobs ask for, as it stands.
            fate_of: what the database knows of a job that is live no more.
        """
        self.held_by: dict[int, str] = {}
        self._jobs = jobs
        self._specs = specs
        self._fate_of = fate_of
        self._dependents: set[int] = set()
        self._verdicts: dict[int, tuple[Verdict, str]] = {}
        self._waited_for: dict[int, set[int]] = {}  # by job; 0: any job (singleton)
        self._again: dict[int, float] = {}  # when a dependency's delay is over
        self._arrays: dict[int, list[int]] = {}  # live elements by the array's first element
        self.tenant_limits = TenantLimits()
        self._longest: Longest = {}
        self._too_long: dict[int, str] = {}  # jobs above their partition's limit, and how far

    def enter(self, job: int, spec: JobSpec) -> None:
        """A job has come."""
        if spec.array is not None:
            self._arrays.setdefault(job - spec.index, []).append(job)
        self.note(job, spec)

    def forget(self, job: int, spec: JobSpec) -> None:
        """A job has ended; whoever waits for it looks again."""
        self.stir(job)
        self._dependents.discard(job)
        self._verdicts.pop(job, None)
        self._again.pop(job, None)
        self._too_long.pop(job, None)
        self.tenant_limits.forget(job)
        self.held_by.pop(job, None)
        for dependency in spec.body.dependencies:
            waiting = self._waited_for.get(dependency.job, set())
            waiting.discard(job)
            if not waiting:
                self._waited_for.pop(dependency.job, None)

    def fate(self, job: JobId) -> Fate | None:
        """What is known of a job that others wait for."""
        row = self._jobs.row_of.get(job)
        if row is None:
            return self._fate_of(job)
        spec = self._specs[job]
        elements: tuple[JobId, ...] = ()
        if spec.array is not None and spec.index == 0:
            elements = tuple(JobId(job + k) for k in range(len(spec.array.tasks)))
        started = self._jobs.get("first_start", row)
        ended = self._jobs.get("phase", row) == c.ENDED
        return Fate(
            started_at=None if math.isnan(started) else started,
            ended_at=self._jobs.get("finish", row) if ended else None,
            succeeded=ended and self._jobs.get("outcome", row) == c.COMPLETED,
            elements=elements,
        )

    def _earlier_namesakes(self, job: int) -> bool:
        spec, row = self._specs[job], self._jobs.row_of[job]
        earlier = self._jobs["job"][:row][self._jobs["phase"][:row] != c.ENDED]
        return any(
            self._specs[other].user == spec.user and self._specs[other].body.name == spec.body.name
            for other in earlier.tolist()
        )

    def note(self, job: int, spec: JobSpec) -> None:
        """Note whom a job waits for, and whether it may run for so long."""
        self._verdicts.pop(job, None)
        self._dependents.discard(job)
        for dependency in spec.body.dependencies:
            self._dependents.add(job)
            self._waited_for.setdefault(dependency.job, set()).add(job)
        self._measure(job, spec)
        self.tenant_limits.note(job, spec)

    def limit_times(self, longest: Longest) -> None:
        """Partitions let jobs run for so long now; who asks for more waits."""
        self._longest = longest
        for job, row in self._jobs.row_of.items():
            if self._jobs.get("phase", row) != c.ENDED:
                self._measure(job, self._specs[job])

    def _measure(self, job: int, spec: JobSpec) -> None:
        self._too_long.pop(job, None)
        most, asked = self._longest.get(spec.body.partition), spec.body.time_limit_s
        if most is not None and (asked is None or asked > most):
            told = "no time limit" if asked is None else f"{asked:g} s"
            self._too_long[job] = f"{told}, partition {spec.body.partition} gives {most:g} s"

    def stir(self, job: int) -> None:
        """A job has started or ended: those that wait for it, or for its array, look again."""
        spec = self._specs.get(job)
        first = job if spec is None or spec.array is None else job - spec.index
        for waited_for in {job, first, 0}:
            for dependent in self._waited_for.get(waited_for, ()):
                self._verdicts.pop(dependent, None)

    def _judge_dependents(self, now: float) -> None:
        for job in self._dependents:
            due = self._again.get(job, math.inf)
            if job in self._verdicts and now < due:
                continue
            verdict, why, again = judge_dependencies(
                self._specs[job],
                now,
                self.fate,
                lambda job=job: self._earlier_namesakes(job),  # type: ignore[misc]
            )
            self._verdicts[job] = (verdict, why)
            self._again[job] = again

    def never_satisfied(self, now: float) -> list[tuple[JobId, str]]:
        """Pending jobs whose dependencies can never hold, and whether that ends them."""
        self._judge_dependents(now)
        return [
            (JobId(job), why)
            for job, (verdict, why) in sorted(self._verdicts.items())
            if verdict is Verdict.NEVER
            and not self._specs[job].body.keep_on_broken_dependency
            and self._jobs.get("phase", self._jobs.row_of[job]) == c.PENDING
        ]

    def judge(
        self,
        now: float,
        claimed: Collection[int],
        place: Callable[[int], int | None] = lambda job: None,
    ) -> tuple[Bools, dict[int, str]]:
        """Per row: may policies see it as waiting? And the reasons of those that they may not.

        Args:
            now: seconds of the policy's clock.
            claimed: jobs that have been given GPUs already.
            place: a job's place in the policy's order.
        """
        jobs = self._jobs
        leaves = (jobs["phase"] == c.HOLDING) & (jobs["leaving"] != c.STAYS)
        pending = (jobs["phase"] == c.PENDING) | leaves
        pending |= (jobs["phase"] == c.AWAY) & (jobs["leaving"] == c.STAYS)
        reasons: dict[int, str] = {}
        eligible = pending.copy()
        self._judge_dependents(now)
        stopped = jobs["held"] | jobs["orphan"]
        stopped |= (jobs["begin_at"] > now) | (jobs["not_before"] > now)
        blocked = [j for j, (verdict, _) in self._verdicts.items() if verdict is not Verdict.HOLDS]
        stopped[[jobs.row_of[job] for job in (*blocked, *self._too_long)]] = True
        for row in np.flatnonzero(stopped & pending).tolist():
            eligible[row] = False
            job = jobs.get("job", row)
            reasons[job] = self.hindrance(job, now)
        self._limit_arrays(eligible, reasons, claimed)
        reasons |= self.tenant_limits.apply(jobs, eligible, claimed, place)
        return eligible, reasons

    def hindrance(self, job: int, now: float) -> str:
        """Why policies may not see a pending job, its array aside; empty when they may."""
        jobs, row = self._jobs, self._jobs.row_of[job]
        if jobs.get("held", row):
            return HELD.get(self.held_by.get(job, ""), "JobHeldUser")
        if jobs.get("orphan", row):
            return "Orphan: an unknown run of it is alive"
        if jobs.get("begin_at", row) > now:
            return "BeginTime"
        if jobs.get("not_before", row) > now:
            return f"BackOff: {jobs.get('failed_starts', row)} starts failed"
        if job in self._dependents:
            self._judge_dependents(now)
            verdict, why = self._verdicts[job]
            if verdict is not Verdict.HOLDS:
                return why
        too_long = self._too_long.get(job)
        return f"PartitionTimeLimit: {too_long}" if too_long else ""

    def _limit_arrays(
        self, eligible: Bools, reasons: dict[int, str], claimed: Container[int]
    ) -> None:
        for first, elements in list(self._arrays.items()):
            live = [job for job in elements if job in self._jobs.row_of]
            live = [j for j in live if self._jobs.get("phase", self._jobs.row_of[j]) != c.ENDED]
            if not live:
                del self._arrays[first]
                continue
            self._arrays[first] = live
            spec = self._specs[live[0]]
            limit = spec.array.limit if spec.array is not None else 0
            if not limit:
                continue
            rows = [self._jobs.row_of[job] for job in live]
            may = [r for r in rows if eligible[r] and self._jobs.get("job", r) not in claimed]
            on = sum(1 for r in rows if not eligible[r] and self._jobs.get("phase", r) == c.HOLDING)
            left = max(limit - on - sum(1 for job in live if job in claimed), 0)
            for row in may[left:]:
                eligible[row] = False
                reasons[self._jobs.get("job", row)] = f"JobArrayTaskLimit: {limit} at once"

    def next_moment(self, now: float) -> float:
        """When somebody becomes eligible although nothing happens; inf for never."""
        waits = [self._again.get(job, math.inf) for job in self._dependents]
        moments = [np.array([m for m in waits if m > now])]
        live = self._jobs["phase"] != c.ENDED
        for name in ("begin_at", "not_before"):
            column = self._jobs[name][live]
            moments.append(column[column > now])
        every = np.concatenate(moments)
        return float(every.min()) if every.size else math.inf
