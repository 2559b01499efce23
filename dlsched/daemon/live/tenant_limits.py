"""Quotas of users, accounts and virtual clusters, as reasons why a job waits.

Policies do not see a job that would take a tenant over its GPUs at once, or whose tenant has used
up its GPU-hours; reasons use Slurm's words. Jobs are admitted in the policy's order; a later job
that still fits may pass an earlier one that does not. Running jobs are never stopped for a quota.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from dlsched.core.arrays import Bools
from dlsched.core.sharing.gpu_limits import (
    EACH_USER,
    GpusInUse,
    Holder,
    RowLimits,
    holders_of,
    in_words,
    limit_of,
)
from dlsched.daemon.live import job_columns as c
from dlsched.daemon.live.job_columns import JobColumns
from dlsched.db.records import JobSpec
from dlsched.db.tenants import PriorityClass, Quota

HOURS = {
    "user": "AssocGrpGRESMinutes",
    "account": "AssocGrpGRESMinutes",
    "vc": "QOSGrpGRESMinutes",
}


def limits_of_classes(classes: Iterable[PriorityClass]) -> dict[Holder, Quota]:
    """The limits of classes as quotas: of a class as a whole, and of each user in it."""
    found: dict[Holder, Quota] = {}
    for each in classes:
        for kind, gpus, jobs in (
            ("class", each.gpus, each.jobs),
            (EACH_USER, each.gpus_per_user, each.jobs_per_user),
        ):
            if gpus is not None or jobs is not None:
                found[kind, each.name] = Quota(kind=kind, name=each.name, gpus=gpus, jobs=jobs)
    return found


@dataclass(slots=True, kw_only=True)
class TenantLimits:
    """Quotas, and the jobs that count against them.

    Attributes:
        quotas: by kind and name.
        parents: of accounts; a quota holds for all below.
        used_hours: GPU-hours in each quota's window, as far as known.
        most: GPUs that elastic jobs may have at most, as of the last `apply`. What a quota leaves
            is divided evenly among them, so that no round can give them more than the quota.
    """

    quotas: Mapping[Holder, Quota] = field(default_factory=dict)
    parents: Mapping[str, str] = field(default_factory=dict)
    used_hours: Mapping[Holder, float] = field(default_factory=dict)
    most: dict[int, int] = field(default_factory=dict)
    _holders: dict[int, tuple[Holder, ...]] = field(default_factory=dict)

    def holders_of(
        self, user: str, account: str, vc: str, priority_class: str = ""
    ) -> tuple[Holder, ...]:
        """The holders of all quotas that a job counts against."""
        return holders_of(self.quotas, self.parents, user, account, vc, priority_class)

    def quota(self, holder: Holder) -> Quota:
        """A holder's own quota, or else the quota of every user."""
        return limit_of(holder, self.quotas)

    def on_gpus(self, row_of: Mapping[int, int]) -> RowLimits:
        """The quotas on GPUs at once, and the rows of jobs that count against them."""
        most = {each: q.gpus for each, q in self.quotas.items() if q.gpus is not None}
        found: dict[int, tuple[Holder, ...]] = {}
        for job, holders in self._holders.items():
            kept = tuple(each for each in holders if self.quota(each).gpus is not None)
            if kept and job in row_of:
                found[row_of[job]] = kept
        return RowLimits(most, found)

    def note(self, job: int, spec: JobSpec) -> None:
        """Note against which quotas a job counts."""
        body = spec.body
        whose = (spec.user, body.account, body.vc, body.priority_class)
        holders = self.holders_of(*whose) if self.quotas else ()
        if holders:
            self._holders[job] = holders
        else:
            self._holders.pop(job, None)

    def forget(self, job: int) -> None:
        """Remove a job that has ended."""
        self._holders.pop(job, None)

    def change(
        self,
        quotas: Mapping[Holder, Quota],
        parents: Mapping[str, str],
        specs: Iterable[tuple[int, JobSpec]],
    ) -> None:
        """Set other quotas by kind and name, and parents of accounts, for the live jobs too."""
        self.quotas, self.parents = quotas, parents
        self._holders.clear()
        for job, spec in specs:
            self.note(job, spec)

    def apply(
        self,
        jobs: JobColumns,
        eligible: Bools,
        claimed: Iterable[int],
        positions: Mapping[int, int],
    ) -> dict[int, str]:
        """Take those rows from the eligible ones that a quota forbids; returns the reasons, by job.

        Args:
            jobs: the job columns.
            eligible: per row, whether policies would see it; changed in place.
            claimed: jobs that have been given GPUs and have not started.
            positions: the places of jobs in the policy's order, from 1.
        """
        self.most = {}
        if not self._holders:
            return {}
        given = set(claimed)
        holds = (jobs["phase"] == c.HOLDING) & (jobs["leaving"] != c.GIVES_WAY)
        used = GpusInUse(lambda holder: self.quota(holder).gpus)
        base: dict[int, int] = {}  # GPUs that count already, of jobs that have some or may get some
        candidates: list[tuple[int, int]] = []
        for job, holders in self._holders.items():
            row = jobs.row_of.get(job)
            if row is None:
                continue
            if holds[row] or job in given:
                gpus = jobs.get("gpus_now", row) if holds[row] else jobs.get("gang", row)
                used.add(holders, gpus * jobs.get("gpu_share", row))
                base[job] = gpus
            elif eligible[row]:
                candidates.append((positions.get(job, 1 << 60), job))
        reasons: dict[int, str] = {}
        for _, job in sorted(candidates):
            row = jobs.row_of[job]
            gang = jobs.get("gang", row)
            needs = gang * jobs.get("gpu_share", row)
            why = self._forbids(self._holders[job], needs, used)
            if why:
                eligible[row] = False
                reasons[job] = why
            else:
                used.add(self._holders[job], needs)
                base[job] = gang
        self._share_out(jobs, base, used)
        return reasons

    def _share_out(self, jobs: JobColumns, base: Mapping[int, int], used: GpusInUse) -> None:
        """Set how many GPUs elastic jobs may have."""
        elastic = [job for job in base if jobs.get("max_gpus", jobs.row_of[job]) >= 0]
        count = Counter(holder for job in elastic for holder in self._holders[job])
        for job in elastic:
            for holder in self._holders[job]:
                quota = self.quota(holder).gpus
                if quota is not None:
                    more = int(max(quota - used[holder], 0) // count[holder])
                    self.most[job] = min(self.most.get(job, base[job] + more), base[job] + more)

    def _forbids(self, holders: tuple[Holder, ...], gpus: float, used: GpusInUse) -> str:
        full = used.full(holders, gpus)
        if full is not None:
            return used.why(full, gpus)
        for holder in holders:
            quota, spent = self.quota(holder), self.used_hours.get(holder, 0.0)
            if quota.gpu_hours is not None and spent >= quota.gpu_hours:
                has = f"{in_words(holder)} has used {spent:.1f} of {quota.gpu_hours:g} GPU-hours"
                return f"{HOURS[holder[0]]}: {has}"
        return ""
