"""Quotas of users, accounts and virtual clusters, as reasons why a job waits.

A job that would take a tenant over its GPUs at once, or whose tenant has used up its GPU-hours, is
not shown to policies, as one that is held is not; the words are Slurm's. Room is given in the
policy's order; whoever fits what is left may pass one who does not. What runs is never taken back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from dlsched.core.arrays import Bools, Rows
from dlsched.daemon.round import columns as c
from dlsched.daemon.round.columns import JobColumns
from dlsched.db.records import JobSpec
from dlsched.db.tenants import EVERYBODY, Quota

__all__ = ["TenantLimits", "Ward"]

Ward = tuple[str, str]  # kind and name of who has a quota
GPUS = {"user": "QOSMaxGRESPerUser", "account": "AssocGrpGRES", "vc": "QOSGrpGRES"}
HOURS = {
    "user": "AssocGrpGRESMinutes",
    "account": "AssocGrpGRESMinutes",
    "vc": "QOSGrpGRESMinutes",
}


@dataclass(slots=True, kw_only=True)
class TenantLimits:
    """Who has which quota.

    Attributes:
        quotas: by kind and name.
        parents: of accounts; a quota holds for all below.
        used_hours: GPU-hours in each quota's window, as far as known.
        most: GPUs that elastic jobs may have at most, as of the last `apply`. What a quota leaves
            is shared out evenly, so that a round that gives all of it to all breaks none.
    """

    quotas: Mapping[Ward, Quota] = field(default_factory=dict)
    parents: Mapping[str, str] = field(default_factory=dict)
    used_hours: Mapping[Ward, float] = field(default_factory=dict)
    most: dict[int, int] = field(default_factory=dict)
    _wards: dict[int, tuple[Ward, ...]] = field(default_factory=dict)

    def wards_of(self, user: str, account: str, vc: str) -> tuple[Ward, ...]:
        """Everybody with a quota that a job counts against."""
        found: list[Ward] = []
        if ("user", user) in self.quotas or ("user", EVERYBODY) in self.quotas:
            found.append(("user", user))
        seen: set[str] = set()
        while account and account not in seen:
            seen.add(account)
            if ("account", account) in self.quotas:
                found.append(("account", account))
            account = self.parents.get(account, "")
        if ("vc", vc) in self.quotas:
            found.append(("vc", vc))
        return tuple(found)

    def quota(self, ward: Ward) -> Quota:
        """A ward's own quota, or everybody's."""
        own = self.quotas.get(ward)
        return own if own is not None else self.quotas["user", EVERYBODY]

    def note(self, job: int, spec: JobSpec) -> None:
        """Note against whom a job counts."""
        wards = self.wards_of(spec.user, spec.body.account, spec.body.vc) if self.quotas else ()
        if wards:
            self._wards[job] = wards
        else:
            self._wards.pop(job, None)

    def forget(self, job: int) -> None:
        """A job has ended."""
        self._wards.pop(job, None)

    def change(
        self,
        quotas: Mapping[Ward, Quota],
        parents: Mapping[str, str],
        specs: Iterable[tuple[int, JobSpec]],
    ) -> None:
        """Other quotas hold from now on, for the live jobs too."""
        self.quotas, self.parents = quotas, parents
        self._wards.clear()
        for job, spec in specs:
            self.note(job, spec)

    def apply(
        self,
        jobs: JobColumns,
        eligible: Bools,
        claimed: Iterable[int],
        place: Callable[[int], int | None],
    ) -> dict[int, str]:
        """Take from the eligible rows those that a quota forbids; the reasons, by job.

        Args:
            jobs: the job columns.
            eligible: which rows policies would see; changed.
            claimed: jobs that have been given GPUs and have not started.
            place: a job's place in the policy's order, from 1.
        """
        self.most = {}
        if not self._wards:
            return {}
        given = set(claimed)
        holds = (jobs["phase"] == c.HOLDING) & (jobs["leaving"] != c.GIVES_WAY)
        used: Counter[Ward] = Counter()
        base: dict[int, int] = {}  # GPUs that count already, of jobs that have some or may get some
        candidates: list[tuple[int, int]] = []
        for job, wards in self._wards.items():
            row = jobs.row_of.get(job)
            if row is None:
                continue
            if holds[row] or job in given:
                gpus = jobs.get("gpus_now", row) if holds[row] else jobs.get("gang", row)
                used.update(dict.fromkeys(wards, gpus))
                base[job] = gpus
            elif eligible[row]:
                candidates.append((place(job) or 1 << 60, job))
        reasons: dict[int, str] = {}
        for _, job in sorted(candidates):
            row = jobs.row_of[job]
            gang = jobs.get("gang", row)
            why = self._forbids(self._wards[job], gang, used)
            if why:
                eligible[row] = False
                reasons[job] = why
            else:
                used.update(dict.fromkeys(self._wards[job], gang))
                base[job] = gang
        self._share_out(jobs, base, used)
        return reasons

    def _share_out(self, jobs: JobColumns, base: Mapping[int, int], used: Counter[Ward]) -> None:
        """How far elastic jobs may grow."""
        elastic = [job for job in base if jobs.get("max_gpus", jobs.row_of[job]) >= 0]
        count = Counter(ward for job in elastic for ward in self._wards[job])
        for job in elastic:
            for ward in self._wards[job]:
                quota = self.quota(ward).gpus
                if quota is not None:
                    more = max(quota - used[ward], 0) // count[ward]
                    self.most[job] = min(self.most.get(job, base[job] + more), base[job] + more)

    def _forbids(self, wards: tuple[Ward, ...], gang: int, used: Counter[Ward]) -> str:
        for ward in wards:
            kind, name = ward
            quota = self.quota(ward)
            if quota.gpus is not None and used[ward] + gang > quota.gpus:
                has = f"{kind} {name} has {used[ward]} of {quota.gpus} GPUs"
                return f"{GPUS[kind]}: {has}, needs {gang}"
            spent = self.used_hours.get(ward, 0.0)
            if quota.gpu_hours is not None and spent >= quota.gpu_hours:
                has = f"{kind} {name} has used {spent:.1f} of {quota.gpu_hours:g} GPU-hours"
                return f"{HOURS[kind]}: {has}"
        return ""

    def holding(self, jobs: JobColumns) -> Counter[Ward]:
        """GPUs that each ward holds now."""
        used: Counter[Ward] = Counter()
        rows: Rows = np.flatnonzero(jobs["phase"] == c.HOLDING)
        for row in rows.tolist():
            for ward in self._wards.get(jobs.get("job", row), ()):
                used[ward] += jobs.get("gpus_now", row)
        return used
