"""Jobs that start again after their end: recalled from the database, with an environment.

The environment of an ended job is deleted, so its user gives another one with the request.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from dlsched.daemon.cluster import Cluster
from dlsched.daemon.control.submission.job_dependencies import resolved
from dlsched.daemon.control.submission.job_validation import checked_environment
from dlsched.daemon.control.submission.quotas import OWNERS, JobQuotas, Tenants, check_room
from dlsched.daemon.rpc_errors import NotPossible
from dlsched.db.checkpoints import ASIDE, KEPT, CheckpointsMarked, RegisteredCheckpoint
from dlsched.db.reading.filters import Filter
from dlsched.db.reading.queries import StoredJob
from dlsched.db.records import EnvironmentGiven, JobSpec
from dlsched.protocol.ledger import Job, Run
from dlsched.protocol.messages import JobId
from dlsched.rpc.identity import Identity
from dlsched.rpc.v1 import control_pb2


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedJob:
    """An ended job, as the database has it."""

    stored: StoredJob
    run: Run | None  # the last one
    environment: Mapping[str, str]  # empty once no live job shares it
    checkpoints: tuple[RegisteredCheckpoint, ...]

    @property
    def tenants(self) -> Tenants:
        """Its user, account, VC and priority class."""
        spec, updated = self.stored.spec, self.stored.facts.updated
        asked = ("" if spec is None else getattr(spec.body, name) for name in OWNERS)
        account, vc, priority_class = (
            updated.get(name, said) or "" for name, said in zip(OWNERS, asked, strict=True)
        )
        return self.stored.job.request.user, account, vc, priority_class


class Restarts:
    """The restarts of one call, in parts: a part is looked up, then asked for as one."""

    def __init__(self, cluster: Cluster, request: control_pb2.ActRequest, caller: Identity) -> None:
        self._cluster, self._request, self._caller = cluster, request, caller
        self._quotas = JobQuotas(cluster)
        self._ended: dict[JobId, EndedJob] = {}
        self._coming: Counter[Tenants] = Counter()  # of this part, which do not count as live yet
        self._given: Mapping[str, str] | None = None  # the environment in the request

    async def look_up(self, jobs: Sequence[JobId]) -> None:
        """Read what the database has of the next part; each table once for all its jobs."""
        driver, store = self._cluster.driver, self._cluster.driver.store
        self._ended, self._coming = {}, Counter()
        stored = await driver.read(partial(store.jobs, jobs)) if jobs else []
        found = [each for each in stored if each.job.status.is_terminal]
        if not found:
            return
        needs = [need for each in found if each.spec for need in each.spec.body.dependencies]
        await resolved(self._cluster, needs, [None] * len(needs))  # how these jobs ended
        ids = [each.job.job for each in found]
        runs = await driver.read(partial(store.last_runs, ids))
        contents = await driver.read(partial(store.contents, ids))
        saved: dict[JobId, list[RegisteredCheckpoint]] = defaultdict(list)
        for row in await driver.read(partial(store.checkpoints, Filter(jobs=tuple(ids)))):
            saved[row.job].append(row)
        for each in found:
            job = each.job.job
            self._ended[job] = EndedJob(
                stored=each,
                run=runs.get(job),
                environment=contents[job].environment if job in contents else {},
                checkpoints=tuple(saved[job]),
            )

    def restart(self, row: Job) -> tuple[tuple[object, ...], tuple[Job, Run | None]]:
        """The rows of a job's restart, and the job and run that the leader is to know again.

        Raises:
            DlschedError: why it cannot start again.
        """
        ended = self._ended.get(row.job)
        if ended is None:
            raise NotPossible("it is about to end; ask again")
        if row.job in self._cluster.leaving:
            raise NotPossible("it is being removed from the history")
        coming = self._coming + Counter([ended.tenants])
        mine = sum(count for (user, *_), count in coming.items() if user == ended.tenants[0])
        check_room(self._cluster, row.request.user, mine)
        self._quotas.check(coming)
        found = self._restart(ended)
        self._coming = coming
        return found

    def _restart(self, ended: EndedJob) -> tuple[tuple[object, ...], tuple[Job, Run | None]]:
        cluster, stored = self._cluster, ended.stored
        driver, job = cluster.driver, stored.job
        newest = stored.facts.checkpoint
        if not isinstance(job.request.spec, JobSpec):
            raise NotPossible("what it was to run is not known")
        fresh = self._request.fresh
        variables = ended.environment or self._environment(job)
        if newest is not None and not fresh and cluster.checkpoints.is_doomed(newest.path):
            raise NotPossible("its checkpoint is being deleted; ask again")
        rows: list[object] = [EnvironmentGiven(job=job.job, variables=variables)]
        kept = [row for row in ended.checkpoints if row.state == KEPT] if fresh else []
        if kept:
            ids, paths = tuple(row.id for row in kept), tuple(row.path for row in kept)
            rows.append(CheckpointsMarked(job=job.job, ids=ids, paths=paths, state=ASIDE))
        driver.table.recall(stored.facts)
        return tuple(rows), (job, ended.run)

    def _environment(self, job: Job) -> Mapping[str, str]:
        """The environment that comes with the request, for a job's next runs."""
        user = job.request.user
        if self._caller.name != user:
            raise NotPossible(f"its environment is deleted; only {user} can give one")
        if self._given is None:
            most = self._cluster.settings.limits.environment_bytes
            self._given = checked_environment({}, self._request.environment, most)
        return self._given
