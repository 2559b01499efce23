"""Which jobs a filter means, and whether the caller may touch them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase

from dlsched.daemon.cluster import Cluster
from dlsched.daemon.control.views import word
from dlsched.daemon.refusals import NotFound
from dlsched.db import filters
from dlsched.protocol.ledger import Job
from dlsched.protocol.messages import JobId, NodeName
from dlsched.rpc.identity import Identity
from dlsched.rpc.v1 import control_pb2

__all__ = ["Chosen", "chosen_ids", "live", "names_jobs", "owner_of", "stored_filter", "subject"]


def names_jobs(wanted: control_pb2.Filter) -> bool:
    """Whether a filter names jobs one by one."""
    return bool(wanted.jobs or wanted.elements)


def owner_of(cluster: Cluster, row: Job) -> str:
    """Whose a job is."""
    return row.request.user or cluster.shell.table.spec(row).user


def subject(row: Job, cluster: Cluster) -> str:
    """A job as users name it: 17, or 17_3."""
    spec = cluster.shell.table.spec(row)
    if spec.array is None:
        return str(row.job)
    return f"{row.job - spec.index}_{spec.task}"


class Chosen:
    """Jobs that were named and those that do not exist."""

    def __init__(self) -> None:
        self.rows: dict[JobId, Job] = {}
        self.missing: list[tuple[str, JobId]] = []  # as named, and the id to look for


def chosen_ids(cluster: Cluster, wanted: control_pb2.Filter) -> Chosen:
    """The jobs that a filter names; an array's first element stands for the whole array."""
    jobs, found = cluster.shell.committed.jobs, Chosen()
    for number in wanted.jobs:
        row = jobs.get(JobId(number))
        rows = _array(cluster, JobId(number)) if _may_be_array(cluster, JobId(number), row) else []
        if row is not None and not rows:
            rows = [row]
        if not rows:
            found.missing.append((str(number), JobId(number)))
        found.rows.update((each.job, each) for each in rows)
    for some in wanted.elements:
        rows = _array(cluster, JobId(some.array_job))
        tasks = frozenset(some.tasks)
        seen = set()
        for each in rows:
            task = cluster.shell.table.spec(each).task
            if not tasks or task in tasks:
                seen.add(task)
                found.rows[each.job] = each
        for task in sorted(tasks - seen):
            found.missing.append((f"{some.array_job}_{task}", JobId(0)))
        if not rows and not tasks:
            found.missing.append((str(some.array_job), JobId(some.array_job)))
    return found


def _may_be_array(cluster: Cluster, job: JobId, row: Job | None) -> bool:
    if row is None:
        return True
    spec = cluster.shell.table.spec(row)
    return spec.array is not None and spec.index == 0


def _array(cluster: Cluster, first: JobId) -> list[Job]:
    """The elements of an array that are in memory; its ids are consecutive."""
    jobs, table = cluster.shell.committed.jobs, cluster.shell.table
    row = jobs.get(first)
    if row is not None:
        spec = table.spec(row)
        if spec.array is None or spec.index:
            return []
        ids: Iterable[int] = range(first, first + len(spec.array.tasks))
        return [jobs[JobId(job)] for job in ids if JobId(job) in jobs]
    # the first element has left memory: the others say where they belong
    most = cluster.settings.limits.array_size
    for job in range(first + 1, min(first + most, cluster.shell.committed.next_job)):
        row = jobs.get(JobId(job))
        if row is None:
            continue
        spec = table.spec(row)
        if spec.array is None or row.job - spec.index != first:
            return []
        rest = range(job, first + len(spec.array.tasks))
        return [jobs[JobId(k)] for k in rest if JobId(k) in jobs]
    return []


def live(cluster: Cluster, wanted: control_pb2.Filter, caller: Identity) -> tuple[list[Job], int]:
    """The live jobs that a filter means, and how many of others it leaves out."""
    if names_jobs(wanted):
        rows: Iterable[Job] = chosen_ids(cluster, wanted).rows.values()
    else:
        rows = cluster.shell.committed.jobs.values()
    kept: list[Job] = []
    others = 0
    named = names_jobs(wanted) or bool(wanted.users)
    for row in rows:
        if row.status.is_terminal:
            continue
        if not wanted.all_users and not named and owner_of(cluster, row) != caller.name:
            others += 1
        elif matches(cluster, row, wanted):
            kept.append(row)
    return kept, others


def matches(  # noqa: PLR0911  # one word a return
    cluster: Cluster, row: Job, wanted: control_pb2.Filter
) -> bool:
    """Whether a job is what a filter's words say."""
    table, ledger = cluster.shell.table, cluster.shell.committed
    if wanted.users and owner_of(cluster, row) not in wanted.users:
        return False
    if wanted.partitions and table.field(row, "partition") not in wanted.partitions:
        return False
    if wanted.vcs and not {table.field(row, "vc"), table.field(row, "account")} & set(wanted.vcs):
        return False
    run = ledger.live_run(row.job) if wanted.states or wanted.nodes else None
    if wanted.states and word(row, run) not in wanted.states:
        return False
    if wanted.nodes and (run is None or not set(wanted.nodes) & set(run.members)):
        return False
    if wanted.names:
        name = table.field(row, "name")
        return any(fnmatchcase(name, pattern) for pattern in wanted.names)
    return True


def stored_filter(wanted: control_pb2.Filter, caller: Identity) -> filters.Filter:
    """The same for the store."""
    named = names_jobs(wanted) or wanted.users or wanted.all_users
    return filters.Filter(
        jobs=tuple(map(JobId, wanted.jobs)),
        elements=tuple(
            filters.ArrayElements(array_job=JobId(e.array_job), tasks=tuple(e.tasks))
            for e in (*wanted.elements, *map(_whole, wanted.jobs))
        ),
        users=tuple(wanted.users) if named else (caller.name,),
        partitions=tuple(wanted.partitions),
        vcs=tuple(wanted.vcs),
        states=tuple(wanted.states),
        nodes=tuple(map(NodeName, wanted.nodes)),
        names=tuple(wanted.names),
    )


def _whole(job: int) -> control_pb2.ArrayElements:
    return control_pb2.ArrayElements(array_job=job)


def each_page(rows: list[Job], size: int) -> Iterator[list[Job]]:
    """Rows in pages."""
    for start in range(0, len(rows), size):
        yield rows[start : start + size]


def no_such(subject_: str) -> NotFound:
    """The error for an unknown job."""
    return NotFound(f"job {subject_}: there is no such job")
