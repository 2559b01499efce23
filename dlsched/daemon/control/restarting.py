"""Jobs that start again after their end: recalled from the database, with an environment.

The environment of an ended job is deleted, so its user gives another one with the request.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from dlsched.daemon.cluster import Cluster
from dlsched.daemon.control.submission.job_dependencies import resolved
from dlsched.daemon.control.submission.job_validation import checked_environment
from dlsched.daemon.control.submission.quotas import Tenants
from dlsched.daemon.rpc_errors import NotPossible
from dlsched.db.checkpoints import ASIDE, KEPT, CheckpointsMarked, RegisteredCheckpoint
from dlsched.db.reading.filters import Filter
from dlsched.db.reading.queries import StoredJob
from dlsched.db.records import EnvironmentGiven, JobSpec
from dlsched.protocol.ledger import Job, Run
from dlsched.rpc.identity import Identity
from dlsched.rpc.v1 import control_pb2


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedJob:
    """An ended job, as the database has it."""

    stored: StoredJob
    run: Run | None  # the last one
    checkpoints: tuple[RegisteredCheckpoint, ...]

    @property
    def tenants(self) -> Tenants:
        """Its user, account and VC."""
        spec, updated = self.stored.spec, self.stored.facts.updated
        account, vc = ("", "") if spec is None else (spec.body.account, spec.body.vc)
        user = self.stored.job.request.user
        return user, updated.get("account", account) or "", updated.get("vc", vc) or ""

    def restart(
        self, cluster: Cluster, request: control_pb2.ActRequest, caller: Identity
    ) -> tuple[tuple[object, ...], tuple[Job, Run | None]]:
        """The rows of its restart, and the job and run that the leader is to know again.

        Raises:
            NotPossible: its environment is deleted, and the caller is another user.
        """
        driver, job = cluster.driver, self.stored.job
        spec, newest = job.request.spec, self.stored.facts.checkpoint
        if not isinstance(spec, JobSpec):
            raise NotPossible("what it was to run is not known")
        in_memory = driver.reserved.jobs.get(job.job)
        if in_memory is not None:
            variables = driver.table.spec(in_memory).body.environment
        elif caller.name != job.request.user:
            raise NotPossible(f"its environment is deleted; only {job.request.user} can give one")
        else:
            most = cluster.settings.limits.environment_bytes
            variables = checked_environment({}, request.environment, most)
        if newest is not None and not request.fresh and cluster.checkpoints.is_doomed(newest.path):
            raise NotPossible("its checkpoint is being deleted; ask again")
        rows: list[object] = [EnvironmentGiven(job=job.job, variables=variables)]
        kept = [row for row in self.checkpoints if row.state == KEPT] if request.fresh else []
        if kept:
            ids, paths = tuple(row.id for row in kept), tuple(row.path for row in kept)
            rows.append(CheckpointsMarked(job=job.job, ids=ids, paths=paths, state=ASIDE))
        driver.table.recall(self.stored.facts)
        again = replace(spec, body=replace(spec.body, environment=variables))
        known = replace(job, request=replace(job.request, spec=again))
        return tuple(rows), (known, self.run)


async def look_up(cluster: Cluster, row: Job) -> EndedJob:
    """What the database has of an ended job.

    Raises:
        NotPossible: its end is not stored yet.
    """
    driver = cluster.driver
    found = await driver.read(partial(driver.store.jobs, [row.job]))
    if not found or not found[0].job.status.is_terminal:
        raise NotPossible("it is about to end; ask again")
    spec = found[0].spec
    if spec is not None:  # how the jobs ended that it depends on
        needs = spec.body.dependencies
        await resolved(cluster, needs, [None] * len(needs))
    runs = await driver.read(partial(driver.store.runs, row.job))
    saved = await driver.read(partial(driver.store.checkpoints, Filter(jobs=(row.job,))))
    last = runs[-1].run if runs else None
    return EndedJob(stored=found[0], run=last, checkpoints=tuple(saved))
