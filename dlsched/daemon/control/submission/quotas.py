"""Quotas on submission: a job that could never run within one, and too many jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from dlsched.core.errors import BadInput, plural
from dlsched.core.sharing.gpu_limits import EACH_USER, REASONS, Holder, in_words, too_many
from dlsched.daemon.cluster import Cluster
from dlsched.daemon.control.submission.job_validation import ValidJob
from dlsched.daemon.rpc_errors import TooMuch
from dlsched.db.records import JobBody
from dlsched.protocol.gpu_shares import part_of
from dlsched.protocol.ledger import Ledger
from dlsched.rpc.request_bounds import COLUMN_VALUES_OF_ONE, COLUMNS, COLUMNS_OF_ONE

Tenants = tuple[str, str, str, str]  # user, account, VC and priority class of a job
OWNERS = ("account", "vc", "priority_class")
JOBS = {
    "user": "QOSMaxSubmitJobPerUserLimit",
    "account": "AssocGrpSubmitJobsLimit",
    "vc": "QOSGrpSubmitJobsLimit",
    "class": "QOSGrpSubmitJobsLimit",
    EACH_USER: "QOSMaxSubmitJobPerUserLimit",
}


def refuse_beyond_quota(cluster: Cluster, user: str, body: JobBody) -> None:
    """Refuse a job that needs more GPUs than a tenant may have at once.

    An elastic job counts with the GPUs that it asks for, not with its fewest: policies see it when
    the quota has room for all of them.

    Raises:
        BadInput: one line that names the quota.
    """
    limits = cluster.live.eligibility.tenant_limits
    least = body.gpus if body.min_gpus is None else body.min_gpus
    for holder in limits.holders_of(user, body.account, body.vc, body.priority_class):
        quota = limits.quota(holder)
        if quota.gpus is not None and body.gpus * part_of(body.gpu_share) > quota.gpus:
            fewer = f" (--gpus {quota.gpus} would do)" if least <= quota.gpus < body.gpus else ""
            why = too_many(holder, body.gpus, quota.gpus)
            raise BadInput(f"{REASONS[holder[0]]}: {why}{fewer}")


class JobQuotas:
    """Checks jobs that are to come; live jobs are counted once for each state of the ledger."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._counted: Ledger | None = None
        self._live: Counter[Holder] = Counter()

    def check(self, asked: Mapping[Tenants, int]) -> None:
        """Refuse more live jobs than a tenant may have; `asked` is how many are to come of each.

        Raises:
            TooMuch: one line that names the quota.
        """
        limits = self._cluster.live.eligibility.tenant_limits
        more: Counter[Holder] = Counter()
        for tenants, count in asked.items():
            for holder in limits.holders_of(*tenants):
                if limits.quota(holder).jobs is not None:
                    more[holder] += count
        live = self._live_jobs() if more else self._live
        for holder, count in more.items():
            most = limits.quota(holder).jobs
            if most is not None and live[holder] + count > most:
                has = plural(live[holder], "live job")
                raise TooMuch(f"{JOBS[holder[0]]}: {in_words(holder)} has {has}, at most {most}")

    def _live_jobs(self) -> Counter[Holder]:
        cluster, limits = self._cluster, self._cluster.live.eligibility.tenant_limits
        if self._counted is not cluster.driver.reserved:
            self._counted, self._live = cluster.driver.reserved, Counter()
            for tenants, count in cluster.live.requests.live_jobs().items():
                for holder in limits.holders_of(*tenants):
                    self._live[holder] += count
        return self._live


def check_room(cluster: Cluster, user: str, more: int, more_bytes: int = 0) -> None:
    """Refuse more live jobs than one user, or all users together, may have.

    The same holds for the bytes of what jobs execute.

    Raises:
        TooMuch: one line that names the bound.
    """
    limits, jobs = cluster.settings.limits, cluster.driver.reserved.jobs
    if len(jobs) + more > limits.jobs:
        raise TooMuch(f"the cluster has {len(jobs)} live jobs, at most {limits.jobs}")
    if len(jobs) + more > limits.jobs_per_user:  # else no user can have so many
        owners = cluster.live.requests.live_jobs().items()
        live = sum(number for (owner, *_), number in owners if owner == user)
        if live + more > limits.jobs_per_user:
            raise TooMuch(
                f"{user} would have {live + more} live jobs, at most {limits.jobs_per_user}"
            )
    if not more_bytes:
        return
    for whose, live, most in (
        (user, cluster.live.requests.live_bytes(user), limits.bytes_per_user),
        ("all users", cluster.live.requests.live_bytes(), limits.bytes),
    ):
        if live + more_bytes > most:
            raise TooMuch(
                f"the live jobs of {whose} would have {live + more_bytes} bytes of scripts, "
                f"environments, dependencies and layouts, at most {most} (see --export)"
            )


def check_columns(cluster: Cluster, user: str, asked: Iterable[ValidJob]) -> None:
    """Refuse more further columns (`extra`) than live jobs may have: each round has them all.

    Raises:
        TooMuch: one line that names the bound.
    """
    more: Counter[str] = Counter()
    for each in asked:
        for name in each.body.extra:
            more[name] += each.elements
    if not more:
        return
    live = cluster.live
    mine = live.requests.live_columns(user) + more
    named = live.constraints.named_columns | more.keys()
    for whose, what, count, most in (
        (user, "further columns", len(mine), COLUMNS_OF_ONE),
        (user, "values in further columns", mine.total(), COLUMN_VALUES_OF_ONE),
        ("all users", "further columns", len(named), COLUMNS),
    ):
        if count > most:
            raise TooMuch(f"the live jobs of {whose} would have {count} {what}, at most {most}")
