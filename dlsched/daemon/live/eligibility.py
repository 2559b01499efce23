"""Which pending jobs a policy may see, and why it may not see the others.

Policies do not see a job that is held, has a later begin time, pauses after a failed start, depends
on other jobs, is over the limit of its array or partition, or whose tenant has used up its
GPU-hours. Verdicts on dependencies are
kept until one of the jobs that they name starts or ends. Reasons use Slurm's words where Slurm has
one.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Container, Mapping

import numpy as np

from dlsched.core.arrays import Bools
from dlsched.core.errors import plural
from dlsched.daemon.live import job_columns as c
from dlsched.daemon.live.dependencies import (
    JobOutcome,
    Verdict,
    elements_of,
    judge_dependencies,
)
from dlsched.daemon.live.job_columns import JobColumns
from dlsched.daemon.live.tenant_limits import TenantLimits
from dlsched.daemon.site_rules.partition_access import PartitionAccess
from dlsched.db.records import JobSpec
from dlsched.protocol.messages import JobId

HELD = {  # by an operator or for its prolog; else by its user
    "admin": "JobHeldAdmin",
    "launch": "launch failed requeued held",
}
Longest = Mapping[str, float]  # seconds, by partition


class Eligibility:
    """Dependencies, array limits and holds of live jobs.

    Attributes:
        held_by: "user", "admin" or "launch", of each job that is held.
        tenant_limits: quotas of users, accounts and virtual clusters.
    """

    def __init__(
        self, jobs: JobColumns, specs: Mapping[int, JobSpec], ended: Mapping[JobId, JobOutcome]
    ) -> None:
        """Begin without any job.

        `specs` is what live jobs ask for, updates included; `ended` has the outcomes of jobs that
        live ones depend on.
        """
        self.held_by: dict[int, str] = {}
        self._jobs = jobs
        self._specs = specs
        self._ended = ended
        self._dependents: set[int] = set()
        self._verdicts: dict[int, tuple[Verdict, str]] = {}
        self._dependents_of: dict[int, set[int]] = {}  # by job; 0: any job (singleton)
        self._judge_again: dict[int, float] = {}  # when a dependency's delay is over
        self._arrays: dict[int, list[int]] = {}  # live elements by the array's first element
        self.tenant_limits = TenantLimits()
        self._longest: Longest = {}
        self._access = PartitionAccess()
        self._outside: dict[int, str] = {}  # jobs that their partition is not for, or too long for
        self._stuck: dict[int, str] = {}  # jobs of which a process cannot be killed, and where

    def enter(self, job: int, spec: JobSpec) -> None:
        """Enter a new job."""
        if spec.array is not None:
            self._arrays.setdefault(job - spec.index, []).append(job)
        self.note(job, spec)

    def enter_again(self, job: int, spec: JobSpec) -> None:
        """Enter a job that starts again after its end; its array may still list it."""
        if spec.array is not None and job in (elements := self._arrays.get(job - spec.index, [])):
            elements.remove(job)
        self.enter(job, spec)
        self.judge_dependents_of(job)

    def forget(self, job: int, spec: JobSpec) -> None:
        """Remove a job that has ended; the jobs that depend on it are judged again."""
        self.judge_dependents_of(job)
        self._dependents.discard(job)
        self._verdicts.pop(job, None)
        self._judge_again.pop(job, None)
        self._outside.pop(job, None)
        self._stuck.pop(job, None)
        self.tenant_limits.forget(job)
        self.held_by.pop(job, None)
        for dependency in spec.body.dependencies:
            waiting = self._dependents_of.get(dependency.job, set())
            waiting.discard(job)
            if not waiting:
                self._dependents_of.pop(dependency.job, None)

    def note_stuck(self, job: int, why: str) -> None:
        """Note why a job waits of which a process cannot be killed; empty when there is none."""
        if why:
            self._stuck[job] = why
        else:
            self._stuck.pop(job, None)

    def outcome(self, job: JobId) -> JobOutcome | None:
        """What is known of a job that others depend on; None when nothing is."""
        row = self._jobs.row_of.get(job)
        if row is None:
            return self._ended.get(job)
        started = self._jobs.get("first_start", row)
        ended = self._jobs.get("phase", row) == c.ENDED
        return JobOutcome(
            started_at=None if math.isnan(started) else started,
            ended_at=self._jobs.get("finish", row) if ended else None,
            succeeded=ended and self._jobs.get("outcome", row) == c.COMPLETED,
            elements=elements_of(job, self._specs[job]),
        )

    def _has_earlier_namesake(self, job: int) -> bool:
        spec, row = self._specs[job], self._jobs.row_of[job]
        earlier = self._jobs["job"][:row][self._jobs["phase"][:row] != c.ENDED]
        return any(
            self._specs[other].user == spec.user and self._specs[other].name == spec.name
            for other in earlier.tolist()
        )

    def note(self, job: int, spec: JobSpec) -> None:
        """Note what a job depends on, and whether it may be in its partition."""
        self._verdicts.pop(job, None)
        self._dependents.discard(job)
        for dependency in spec.body.dependencies:
            self._dependents.add(job)
            self._dependents_of.setdefault(dependency.job, set()).add(job)
        self._check_partition(job, spec)
        self.tenant_limits.note(job, spec)

    def limit_partitions(self, longest: Longest, access: PartitionAccess) -> None:
        """Set time limits and lists of partitions; a pending job beyond them waits."""
        self._longest, self._access = longest, access
        for job, row in self._jobs.row_of.items():
            if self._jobs.get("phase", row) != c.ENDED:
                self._check_partition(job, self._specs[job])

    def _check_partition(self, job: int, spec: JobSpec) -> None:
        self._outside.pop(job, None)
        if why := self._access.refusal(spec):
            self._outside[job] = why
            return
        most, asked = self._longest.get(spec.body.partition), spec.body.time_limit_s
        if most is not None and (asked is None or asked > most):
            asks = "no time limit" if asked is None else f"{asked:g} s"
            gives = f"partition {spec.body.partition} gives {most:g} s"
            self._outside[job] = f"PartitionTimeLimit: {asks}, {gives}"

    def judge_dependents_of(self, job: int) -> None:
        """Judge anew the jobs that depend on a job, or on its array: it has started or ended."""
        for named in {*_names_of(job, self._specs.get(job)), 0}:
            for dependent in self._dependents_of.get(named, ()):
                self._verdicts.pop(dependent, None)

    def awaited_by(self, job: int, spec: JobSpec) -> list[int]:
        """The live jobs that depend on a job, or on its array."""
        found = (self._dependents_of.get(named, ()) for named in _names_of(job, spec))
        return sorted({each for some in found for each in some})

    def _judge_dependents(self, now: float) -> None:
        for job in self._dependents:
            self._verdict(job, now)

    def _verdict(self, job: int, now: float) -> tuple[Verdict, str]:
        """Whether the dependencies of one of the dependents hold, and why not."""
        known = self._verdicts.get(job)
        if known is not None and now < self._judge_again.get(job, math.inf):
            return known
        verdict, why, self._judge_again[job] = judge_dependencies(
            self._specs[job], now, self.outcome, lambda: self._has_earlier_namesake(job)
        )
        self._verdicts[job] = verdict, why
        return verdict, why

    def never_satisfied(self, now: float) -> list[tuple[JobId, str]]:
        """The pending jobs to cancel, as their dependencies can never hold, and why."""
        self._judge_dependents(now)
        return [
            (JobId(job), why)
            for job, (verdict, why) in sorted(self._verdicts.items())
            if verdict is Verdict.NEVER
            and not self._specs[job].body.keep_on_broken_dependency
            and self._jobs.get("phase", self._jobs.row_of[job]) == c.PENDING
        ]

    def judge(self, now: float, claimed: Collection[int]) -> tuple[Bools, dict[int, str]]:
        """Judge all rows at `now`, of the policy's clock; `claimed` jobs have been given GPUs.

        Returns:
            per row, whether policies may see it as waiting; and the reasons of pending jobs that
            they may not see.
        """
        jobs = self._jobs
        leaves = (jobs["phase"] == c.HOLDING) & (jobs["leaving"] != c.STAYS)
        pending = (jobs["phase"] == c.PENDING) | leaves
        pending |= (jobs["phase"] == c.AWAY) & (jobs["leaving"] == c.STAYS)
        reasons: dict[int, str] = {}
        eligible = pending.copy()
        for row in np.flatnonzero(self.hindered(now) & pending).tolist():
            eligible[row] = False
            job = jobs.get("job", row)
            reasons[job] = self.hindrance(job, now)
        self._limit_arrays(eligible, reasons, claimed)
        reasons |= self.tenant_limits.apply(jobs, eligible, claimed)
        return eligible, reasons

    def hindered(self, now: float) -> Bools:
        """Per row, whether there is a `hindrance`."""
        jobs = self._jobs
        self._judge_dependents(now)
        stopped: Bools = jobs["held"] | jobs["orphan"]
        stopped |= (jobs["begin_at"] > now) | (jobs["not_before"] > now)
        blocked = [j for j, (verdict, _) in self._verdicts.items() if verdict is not Verdict.HOLDS]
        stopped[[jobs.row_of[job] for job in (*blocked, *self._outside)]] = True
        return stopped

    def hindrance(self, job: int, now: float) -> str:
        """Why policies may not see a pending job, except its array's limit; empty if they may."""
        jobs, row = self._jobs, self._jobs.row_of[job]
        if jobs.get("held", row):
            return HELD.get(self.held_by.get(job, ""), "JobHeldUser")
        if jobs.get("orphan", row):
            return self._stuck.get(job, "Orphan: an unknown run of it is alive")
        if jobs.get("begin_at", row) > now:
            return "BeginTime"
        if jobs.get("not_before", row) > now:
            failed = jobs.get("failed_starts", row)
            return (
                f"BackOff: {plural(failed, 'start')} failed"
                if failed
                else "BackOff: it failed too soon"
            )
        if job in self._dependents:
            verdict, why = self._verdict(job, now)
            if verdict is not Verdict.HOLDS:
                return why
        return self._outside.get(job, "")

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
        """The next moment at which time alone makes a job eligible; infinite when there is none."""
        waits = [self._judge_again.get(job, math.inf) for job in self._dependents]
        moments = [np.array([m for m in waits if m > now])]
        live = self._jobs["phase"] != c.ENDED
        for name in ("begin_at", "not_before"):
            column = self._jobs[name][live]
            moments.append(column[column > now])
        every = np.concatenate(moments)
        return float(every.min()) if every.size else math.inf


def _names_of(job: int, spec: JobSpec | None) -> set[int]:
    """By which ids dependencies name a job: its own, and that of its array."""
    return {job} if spec is None or spec.array is None else {job, job - spec.index}
