"""Whom a job is to wait for: conditions as they came, on jobs that exist, never in a circle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from dlsched.core.errors import BadInput
from dlsched.daemon.control import bounds
from dlsched.db.records import Dependency, JobSpec
from dlsched.protocol.messages import JobId
from dlsched.rpc.v1 import control_pb2

if TYPE_CHECKING:
    from dlsched.daemon.cluster import Cluster

__all__ = ["read_dependencies", "refuse_circle", "resolved", "told"]

KINDS = frozenset({"after", "afterok", "afterany", "afternotok", "aftercorr", "singleton"})
MOST = 1000
Tasks = Sequence[int | None]  # of the element that each condition means


def read_dependencies(
    asked: Sequence[control_pb2.Dependency],
) -> tuple[tuple[Dependency, ...], tuple[int | None, ...]]:
    """Conditions from the wire, and of which element of an array each is.

    Raises:
        BadInput: too many, or an unknown kind.
    """
    bounds.check_count("dependencies", len(asked), MOST)
    found = []
    for each in asked:
        if each.kind not in KINDS:
            bounds.check_text("dependency", each.kind)
            raise BadInput(
                f"dependency {each.kind!r} is not known; known: {', '.join(sorted(KINDS))}"
            )
        if each.kind != "singleton":
            bounds.check_whole("dependency's job", each.job, 1, (1 << 62))
        delay = bounds.check_number("dependency's delay", each.delay_s) or 0.0
        found.append(
            Dependency(kind=each.kind, job=JobId(each.job), delay_s=delay, or_next=each.or_next)
        )
    return tuple(found), tuple(d.task if d.HasField("task") else None for d in asked)


async def resolved(
    cluster: Cluster, asked: Sequence[Dependency], tasks: Tasks
) -> tuple[Dependency, ...]:
    """Dependencies as ids of jobs that exist; elements by their task numbers.

    Raises:
        BadInput: for a job that does not exist.
    """
    shell = cluster.shell
    found = []
    for each, task in zip(asked, tasks, strict=True):
        if each.kind == "singleton":
            found.append(each)
            continue
        spec = None
        row = shell.reserved.jobs.get(each.job)
        if row is not None:
            spec = shell.table.spec(row)
        else:
            known = await shell.read(partial(shell.store.jobs, [each.job]))
            if not known:
                raise BadInput(f"dependency {each.kind}:{each.job}: there is no such job")
            shell.outcomes[each.job] = known[0]
            spec = known[0].spec
            if spec is not None and spec.array is not None and spec.index == 0:
                ids = [JobId(each.job + k) for k in range(1, len(spec.array.tasks))]
                gone = [job for job in ids if job not in shell.reserved.jobs]
                for stored in await shell.read(partial(shell.store.jobs, gone)):
                    shell.outcomes[stored.job.job] = stored
        found.append(_element(each, task, spec))
    return tuple(found)


def _element(dependency: Dependency, task: int | None, spec: JobSpec | None) -> Dependency:
    if task is None:
        return dependency
    tasks = spec.array.tasks if spec is not None and spec.array is not None else ()
    if task not in tasks:
        raise BadInput(f"dependency {dependency.kind}:{dependency.job}_{task}: no such element")
    return replace(dependency, job=JobId(dependency.job + tasks.index(task)))


def refuse_circle(cluster: Cluster, job: JobId, wanted: Sequence[Dependency]) -> None:
    """Refuse conditions under which a job would wait for itself.

    A new job cannot be waited for yet, so only changes can close a circle.

    Raises:
        BadInput: naming the job through which it would.
    """
    table, jobs = cluster.shell.table, cluster.shell.reserved.jobs
    mine = {job}
    spec = table.spec(jobs[job])
    if spec.array is not None:
        mine.add(JobId(job - spec.index))  # who waits for the array waits for its elements
    seen: set[JobId] = set()
    ahead = [(each.job, each.job) for each in wanted if each.kind != "singleton"]
    while ahead:
        through, at = ahead.pop()
        if at in mine:
            raise BadInput(f"it would wait for itself, through job {through}")
        row = jobs.get(at)
        if at in seen or row is None or row.status.is_terminal:
            continue
        seen.add(at)
        spec = table.spec(row)
        ids = [at]
        if spec.array is not None and spec.index == 0:
            ids = [JobId(at + k) for k in range(len(spec.array.tasks))]
            if job in ids:
                raise BadInput(f"it would wait for itself, as an element of job {at}")
        for each in ids:
            if each in jobs:
                further = table.field(jobs[each], "dependencies")
                ahead += [(through, d.job) for d in further if d.kind != "singleton"]


def told(dependencies: Sequence[Dependency]) -> str:
    """Conditions as users write them."""
    words = []
    for place, each in enumerate(dependencies):
        delay = f"+{each.delay_s / 60:g}" if each.delay_s else ""
        words.append(each.kind if each.kind == "singleton" else f"{each.kind}:{each.job}{delay}")
        if place < len(dependencies) - 1:
            words.append("?" if each.or_next else ",")
    return "".join(words)
