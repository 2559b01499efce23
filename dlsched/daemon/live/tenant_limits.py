"""Quotas of users, accounts and virtual clusters, as reasons why a job waits.

Rounds keep the quotas of GPUs at once (see `core/walk/room_under_limits.py`). Policies do not see
a job whose tenant has used up its GPU-hours. Reasons use Slurm's words. Running jobs are never
stopped for a quota.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import repeat

import numpy as np

from dlsched.core.arrays import Bools, Ints
from dlsched.core.sharing.gpu_limits import (
    EACH_USER,
    Holder,
    RowLimits,
    holders_of,
    in_words,
    limit_of,
    limits_of,
)
from dlsched.daemon.live import job_columns as c
from dlsched.daemon.live.job_columns import JobColumns
from dlsched.db.records import JobSpec
from dlsched.tenants.fields import PriorityClass, Quota

HOURS = {
    "user": "AssocGrpGRESMinutes",
    "account": "AssocGrpGRESMinutes",
    "vc": "QOSGrpGRESMinutes",
}


def limits_of_classes(classes: Collection[PriorityClass]) -> dict[Holder, Quota]:
    """The limits of classes as quotas: of a class as a whole, and of each user in it."""
    gpus = limits_of(classes)
    jobs = {("class", each.name): each.jobs for each in classes}
    jobs |= {(EACH_USER, each.name): each.jobs_per_user for each in classes}
    return {
        holder: Quota(kind=holder[0], name=holder[1], gpus=gpus.get(holder), jobs=most)
        for holder, most in jobs.items()
        if most is not None or holder in gpus
    }


@dataclass(slots=True, kw_only=True)
class TenantLimits:
    """Quotas, and the jobs that count against them.

    Attributes:
        quotas: by kind and name.
        parents: of accounts; a quota holds for all below.
        used_hours: GPU-hours in each quota's window, as far as known.
    """

    quotas: Mapping[Holder, Quota] = field(default_factory=dict)
    parents: Mapping[str, str] = field(default_factory=dict)
    used_hours: Mapping[Holder, float] = field(default_factory=dict)
    _holders: dict[int, tuple[Holder, ...]] = field(default_factory=dict)
    _sets: dict[tuple[Holder, ...], int] = field(default_factory=dict)  # of quotas on GPUs
    _set_of: dict[int, int] = field(default_factory=dict)  # by job

    def holders_of(
        self, user: str, account: str, vc: str, priority_class: str = ""
    ) -> tuple[Holder, ...]:
        """The holders of all quotas that a job counts against."""
        return holders_of(self.quotas, self.parents, user, account, vc, priority_class)

    def quota(self, holder: Holder) -> Quota:
        """A holder's own quota, or else the quota of every user."""
        return limit_of(holder, self.quotas)

    def on_gpus(self, jobs: Ints) -> RowLimits:
        """The quotas on GPUs at once, and which of them jobs count against, in this order."""
        if not self._set_of:
            return RowLimits()
        most = {each: q.gpus for each, q in self.quotas.items() if q.gpus is not None}
        set_of = np.fromiter(map(self._set_of.get, jobs.tolist(), repeat(-1)), np.int64, len(jobs))
        return RowLimits.of(most, list(self._sets), set_of)

    def note(self, job: int, spec: JobSpec) -> None:
        """Note against which quotas a job counts."""
        self.forget(job)
        body = spec.body
        whose = (spec.user, body.account, body.vc, body.priority_class)
        holders = self.holders_of(*whose) if self.quotas else ()
        if holders:
            self._holders[job] = holders
        on_gpus = tuple(each for each in holders if self.quota(each).gpus is not None)
        if on_gpus:
            self._set_of[job] = self._sets.setdefault(on_gpus, len(self._sets))

    def forget(self, job: int) -> None:
        """Remove a job that has ended."""
        self._holders.pop(job, None)
        self._set_of.pop(job, None)

    def change(
        self,
        quotas: Mapping[Holder, Quota],
        parents: Mapping[str, str],
        specs: Iterable[tuple[int, JobSpec]],
    ) -> None:
        """Set other quotas by kind and name, and parents of accounts, for the live jobs too."""
        self.quotas, self.parents = quotas, parents
        self._holders.clear()
        self._set_of.clear()
        self._sets.clear()
        for job, spec in specs:
            self.note(job, spec)

    def apply(self, jobs: JobColumns, eligible: Bools, claimed: Iterable[int]) -> dict[int, str]:
        """Take those rows from the eligible ones whose tenants have used up their GPU-hours.

        Args:
            jobs: the job columns.
            eligible: per row, whether policies would see it; changed in place.
            claimed: jobs that have been given GPUs and have not started.

        Returns:
            the reasons, by job.
        """
        spent = {holder: self._spent(holder) for holder in self.used_hours}
        spent = {holder: why for holder, why in spent.items() if why}
        if not spent:
            return {}
        given = set(claimed)
        runs = (jobs["phase"] == c.HOLDING) & (jobs["leaving"] != c.GIVES_WAY)
        reasons: dict[int, str] = {}
        for job, holders in self._holders.items():
            row = jobs.row_of.get(job)
            if row is None or not eligible[row] or runs[row] or job in given:
                continue
            why = next((spent[holder] for holder in holders if holder in spent), "")
            if why:
                eligible[row] = False
                reasons[job] = why
        return reasons

    def _spent(self, holder: Holder) -> str:
        """Why the jobs of a holder wait that has used up its GPU-hours; empty if it has not."""
        try:
            quota = self.quota(holder)
        except KeyError:  # the quota was removed since the hours were summed
            return ""
        spent = self.used_hours[holder]
        if quota.gpu_hours is None or spent < quota.gpu_hours:
            return ""
        has = f"{in_words(holder)} has used {spent:.1f} of {quota.gpu_hours:g} GPU-hours"
        return f"{HOURS[holder[0]]}: {has}"
