"""Quotas of users, accounts and virtual clusters, as reasons why a job waits.

Policies do not see a job that would take a tenant over its GPUs at once, or whose tenant has used
up its GPU-hours; reasons use Slurm's words. Jobs are admitted in the policy's order; a later job
that still fits may pass an earlier one that does not. Running jobs are never stopped for a quota.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from dlsched.core.arrays import Bools
from dlsched.core.errors import plural
from dlsched.daemon.live import job_columns as c
from dlsched.daemon.live.job_columns import JobColumns
from dlsched.db.records import JobSpec
from dlsched.db.tenants import EVERY_USER, PriorityClass, Quota

# kind (user, account, vc, class) and name of a tenant with a quota
QuotaHolder = tuple[str, str]
EACH_USER = "class user"  # the kind of a limit on each user in a class: "urgent ann" has the name
ROUNDED = 1e-9  # of a GPU: ten tenths must make one
GPUS = {
    "user": "QOSMaxGRESPerUser",
    "account": "AssocGrpGRES",
    "vc": "QOSGrpGRES",
    "class": "QOSGrpGRES",
    EACH_USER: "QOSMaxGRESPerUser",
}
HOURS = {
    "user": "AssocGrpGRESMinutes",
    "account": "AssocGrpGRESMinutes",
    "vc": "QOSGrpGRESMinutes",
}


def limits_of_classes(classes: Iterable[PriorityClass]) -> dict[QuotaHolder, Quota]:
    """The limits of classes as quotas: of a class as a whole, and of each user in it."""
    found: dict[QuotaHolder, Quota] = {}
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

    quotas: Mapping[QuotaHolder, Quota] = field(default_factory=dict)
    parents: Mapping[str, str] = field(default_factory=dict)
    used_hours: Mapping[QuotaHolder, float] = field(default_factory=dict)
    most: dict[int, int] = field(default_factory=dict)
    _holders: dict[int, tuple[QuotaHolder, ...]] = field(default_factory=dict)

    def holders_of(
        self, user: str, account: str, vc: str, priority_class: str = ""
    ) -> tuple[QuotaHolder, ...]:
        """The holders of all quotas that a job counts against."""
        found: list[QuotaHolder] = []
        if ("user", user) in self.quotas or ("user", EVERY_USER) in self.quotas:
            found.append(("user", user))
        seen: set[str] = set()
        while account and account not in seen:
            seen.add(account)
            if ("account", account) in self.quotas:
                found.append(("account", account))
            account = self.parents.get(account, "")
        if ("vc", vc) in self.quotas:
            found.append(("vc", vc))
        if ("class", priority_class) in self.quotas:
            found.append(("class", priority_class))
        if (EACH_USER, priority_class) in self.quotas:
            found.append((EACH_USER, f"{priority_class} {user}"))
        return tuple(found)

    def quota(self, holder: QuotaHolder) -> Quota:
        """A holder's own quota, or else the quota of every user."""
        kind, name = holder
        if kind == EACH_USER:
            return self.quotas[kind, name.partition(" ")[0]]
        own = self.quotas.get(holder)
        return own if own is not None else self.quotas["user", EVERY_USER]

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
        quotas: Mapping[QuotaHolder, Quota],
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
        used: defaultdict[QuotaHolder, float] = defaultdict(float)
        base: dict[int, int] = {}  # GPUs that count already, of jobs that have some or may get some
        candidates: list[tuple[int, int]] = []
        for job, holders in self._holders.items():
            row = jobs.row_of.get(job)
            if row is None:
                continue
            if holds[row] or job in given:
                gpus = jobs.get("gpus_now", row) if holds[row] else jobs.get("gang", row)
                _add(used, holders, gpus * jobs.get("gpu_share", row))
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
                _add(used, self._holders[job], needs)
                base[job] = gang
        self._share_out(jobs, base, used)
        return reasons

    def _share_out(
        self, jobs: JobColumns, base: Mapping[int, int], used: Mapping[QuotaHolder, float]
    ) -> None:
        """Set how many GPUs elastic jobs may have."""
        elastic = [job for job in base if jobs.get("max_gpus", jobs.row_of[job]) >= 0]
        count = Counter(holder for job in elastic for holder in self._holders[job])
        for job in elastic:
            for holder in self._holders[job]:
                quota = self.quota(holder).gpus
                if quota is not None:
                    more = int(max(quota - used[holder], 0) // count[holder])
                    self.most[job] = min(self.most.get(job, base[job] + more), base[job] + more)

    def _forbids(
        self, holders: tuple[QuotaHolder, ...], gpus: float, used: Mapping[QuotaHolder, float]
    ) -> str:
        for holder in holders:
            kind, name = holder
            quota = self.quota(holder)
            if quota.gpus is not None and used[holder] + gpus > quota.gpus + ROUNDED:
                has = f"{kind} {name} has {used[holder]:.9g} of {plural(quota.gpus, 'GPU')}"
                return f"{GPUS[kind]}: {has}, needs {gpus:.9g}"
            spent = self.used_hours.get(holder, 0.0)
            if quota.gpu_hours is not None and spent >= quota.gpu_hours:
                has = f"{kind} {name} has used {spent:.1f} of {quota.gpu_hours:g} GPU-hours"
                return f"{HOURS[kind]}: {has}"
        return ""


def _add(
    used: defaultdict[QuotaHolder, float], holders: Iterable[QuotaHolder], gpus: float
) -> None:
    for holder in dict.fromkeys(holders):
        used[holder] += gpus
