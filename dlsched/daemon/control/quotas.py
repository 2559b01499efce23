"""Quotas at the door: jobs that could never run within one, and more jobs than one allows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from dlsched.core.errors import BadInput
from dlsched.daemon.cluster import Cluster
from dlsched.daemon.control.door import Asked
from dlsched.daemon.refusals import TooMuch
from dlsched.daemon.round.tenant_limits import GPUS, Ward
from dlsched.db.records import JobBody

__all__ = ["check_job_quotas", "refuse_beyond_quota"]

JOBS = {
    "user": "QOSMaxSubmitJobPerUserLimit",
    "account": "AssocGrpSubmitJobsLimit",
    "vc": "QOSGrpSubmitJobsLimit",
}


def refuse_beyond_quota(cluster: Cluster, user: str, body: JobBody) -> None:
    """Refuse a gang that is larger than all that a tenant may have at once.

    Raises:
        BadInput: naming the quota.
    """
    limits = cluster.board.eligibility.tenant_limits
    least = body.min_gpus if body.min_gpus is not None else body.gpus
    for kind, name in limits.wards_of(user, body.account, body.vc):
        quota = limits.quota((kind, name))
        if quota.gpus is not None and least > quota.gpus:
            raise BadInput(
                f"{GPUS[kind]}: needs {least} GPUs, and {kind} {name} may have {quota.gpus}"
            )


def check_job_quotas(cluster: Cluster, user: str, asked: Sequence[Asked]) -> None:
    """Refuse jobs beyond the number that a tenant may have live.

    Raises:
        TooMuch: naming the quota.
    """
    limits = cluster.board.eligibility.tenant_limits
    more: Counter[Ward] = Counter()
    for each in asked:
        count = len(each.array.tasks) if each.array is not None else 1
        for ward in limits.wards_of(user, each.body.account, each.body.vc):
            if limits.quota(ward).jobs is not None:
                more[ward] += count
    if not more:
        return
    table = cluster.shell.table
    live: Counter[Ward] = Counter()
    for row in cluster.shell.reserved.jobs.values():
        if not row.status.is_terminal:
            account, vc = table.field(row, "account") or "", table.field(row, "vc") or ""
            live.update(limits.wards_of(row.request.user, account, vc))
    for (kind, name), count in more.items():
        most = limits.quota((kind, name)).jobs
        if most is not None and live[kind, name] + count > most:
            raise TooMuch(
                f"{JOBS[kind]}: {kind} {name} has {live[kind, name]} live jobs, at most {most}"
            )
